#include "batch/stages/stage_line.h"

#include <gtest/gtest.h>

namespace pdjob::batch {
namespace {

// `members`: of the line, beside its custom_id.
StageReply read_line(StageSide side, const std::string& members) {
  return read_stage_line(side, R"({"custom_id":"a")" + members + "}", "a").value();
}
StageReply read_before(const std::string& members) {
  return read_line(StageSide::kBefore, members);
}
StageReply read_after(const std::string& members) { return read_line(StageSide::kAfter, members); }

TEST(StageLine, BeforeTheModelIsARowInOpenAisForm) {
  EXPECT_EQ(stage_line(StageSide::kBefore,
                       {.custom_id = "a\"b", .url = "/v1/completions", .body = "{ \"prompt\":\n1}"},
                       {{"first", R"({"n":1})"}}),
            R"({"custom_id":"a\"b","method":"POST","url":"/v1/completions","body":{"prompt":1},)"
            R"("stages":{"first":{"n":1}}})");
}

TEST(StageLine, AfterTheModelHasTheRequestAndTheResponse) {
  EXPECT_EQ(stage_line(StageSide::kAfter,
                       {.custom_id = "a", .url = "/u", .body = "{}", .response = "{\"x\": 1}"}, {}),
            R"({"custom_id":"a","request":{"url":"/u","body":{}},"response":{"x":1},"stages":{}})");
}

TEST(StageLine, TheRowItselfReturnedChangesNothing) {
  const StageReply reply =
      read_before(R"(,"method":"POST","url":"/u","body":{"p":1},"stages":{"first":{}})");
  EXPECT_EQ(reply.kind, StageReply::Kind::kChanged);
  EXPECT_EQ(reply.url, "/u");
  EXPECT_EQ(reply.body, R"({"p":1})");
  EXPECT_EQ(reply.notes, "");
}

TEST(StageLine, UnknownMembersAreNotes) {
  EXPECT_EQ(read_after(R"(,"score":5,"request":{},"why":"a\nb")").notes,
            R"({"score":5,"why":"a\nb"})");
  EXPECT_EQ(read_after(R"(,"response":{"x":2})").response, R"({"x":2})");
  EXPECT_EQ(read_after("").notes, "");
  EXPECT_EQ(read_before(R"(,"response":1)").notes, R"({"response":1})") << "there is none yet";
}

TEST(StageLine, AReasonEndsTheRow) {
  const StageReply dropped = read_before(R"(,"pdjob_drop":"too short")");
  EXPECT_EQ(dropped.kind, StageReply::Kind::kDropped);
  EXPECT_EQ(dropped.reason, "too short");
  EXPECT_EQ(read_after(R"(,"pdjob_error":{"x":1})").kind, StageReply::Kind::kFailed);
}

TEST(StageLine, ABodyThatIsNoObjectFailsTheRow) {
  EXPECT_EQ(read_before(R"(,"body":"x")").reason, "its body is not a JSON object");
  EXPECT_EQ(read_after(R"(,"response":[1])").reason, "its response is not a JSON object");
}

TEST(StageLine, ALineThatMakesNoSenseIsTheFaultOfItsProcess) {
  for (const char* line :
       {"", "hello", "[1]", "{\"a\":}", "{} {}", "{}", R"({"score":1})", R"({"custom_id":"b"})",
        R"({"custom_id":1})", "{\"custom_id\":\"a\",\"a\":\"\xff\"}"}) {
    const auto read = read_stage_line(StageSide::kBefore, line, "a");
    EXPECT_EQ(read ? ErrorCode::kInternal : read.error().code, ErrorCode::kCorrupt) << line;
  }
}

}  // namespace
}  // namespace pdjob::batch
