#include "batch/answer_record.h"

#include <gtest/gtest.h>

namespace pdjob::batch {
namespace {

const RowName kRow{.record_id = "batch_req_1", .custom_id = "a\"b", .place = "in.jsonl:7"};

TEST(AnswerRecord, IsOneLineInOpenAisForm) {
  EXPECT_EQ(answer_line(kRow, {.status = 200, .body = "{\n \"x\": \"a b\"\n}", .request_id = "r"}),
            R"({"id":"batch_req_1","custom_id":"a\"b","response":{"status_code":200,)"
            R"("request_id":"r","body":{"x":"a b"}},"error":null})");
}

TEST(AnswerRecord, AnErrorNamesFileAndLine) {
  EXPECT_EQ(error_line({.record_id = "batch_req_1", .custom_id = "", .place = "in.jsonl:7"},
                       {.cause = "invalid_json_line", .message = "it is not a JSON object"}),
            R"({"id":"batch_req_1","custom_id":null,"response":null,"error":)"
            R"({"code":"invalid_json_line","message":"in.jsonl:7: it is not a JSON object"}})");
}

TEST(AnswerRecord, AnErrorOfTheServerHasItsReply) {
  EXPECT_EQ(error_line(kRow, {.status = 400,
                              .body = R"({"error":1})",
                              .request_id = "r",
                              .cause = "http_400",
                              .message = "the server answered with status 400"}),
            R"({"id":"batch_req_1","custom_id":"a\"b","response":{"status_code":400,)"
            R"("request_id":"r","body":{"error":1}},"error":{"code":"http_400",)"
            R"("message":"in.jsonl:7: the server answered with status 400"}})");
}

TEST(AnswerRecord, NotesOfStagesStandBesideTheResponse) {
  EXPECT_EQ(answer_line(kRow, {.status = 200, .body = "{}", .stages = R"({"judge":{"score":1}})"}),
            R"({"id":"batch_req_1","custom_id":"a\"b","response":{"status_code":200,)"
            R"("request_id":"","body":{}},"error":null,"stages":{"judge":{"score":1}}})");
  EXPECT_EQ(error_line(kRow, {.stages = "{}", .cause = "dropped_by_judge", .message = "no"}),
            R"({"id":"batch_req_1","custom_id":"a\"b","response":null,"error":)"
            R"({"code":"dropped_by_judge","message":"in.jsonl:7: no"},"stages":{}})");
}

TEST(AnswerRecord, ReadsHowManyTokensAReplyHas) {
  RowStats stats;
  read_usage(R"({"usage":{"prompt_tokens":3,"completion_tokens":40,"total_tokens":43}})", stats);
  EXPECT_EQ(stats.prompt_tokens, 3U);
  EXPECT_EQ(stats.completion_tokens, 40U);
  read_usage(R"({"usage":null})", stats);
  read_usage("[]", stats);
  EXPECT_EQ(stats.completion_tokens, 40U);
}

}  // namespace
}  // namespace pdjob::batch
