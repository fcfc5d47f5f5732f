#include "batch/api/batch_request.h"

#include <gtest/gtest.h>

namespace pdjob::batch {
namespace {

std::string body(const std::string& more = "", const std::string& window = "24h") {
  return R"({"input_file_id":"file-1","endpoint":"/v1/completions","completion_window":")" +
         window + "\"" + more + "}";
}

std::string wrong_param(const std::string& text) {
  const auto parsed = parse_batch_request(text, std::chrono::hours(48));
  return parsed ? "none" : parsed.error().param;
}

TEST(BatchRequest, IsRead) {
  const auto parsed = parse_batch_request(
      body(
          R"(, "metadata": {"a": "b"}, "output_expires_after": {"anchor": "created_at", "seconds": 3600}, "x": 1)"),
      std::chrono::hours(48));
  const auto& request = *parsed;
  EXPECT_EQ(request.input_file_id, "file-1");
  EXPECT_EQ(request.endpoint, "/v1/completions");
  EXPECT_EQ(request.window_seconds, 24 * 3600);
  EXPECT_EQ(request.metadata, R"({"a":"b"})");
  EXPECT_EQ(request.output_lifetime, 3600);
}

TEST(BatchRequest, HasAWindowInAnyUnit) {
  EXPECT_EQ(wrong_param(body("", "90s")), "none");
  EXPECT_EQ(wrong_param(body("", "10m")), "none");
  EXPECT_EQ(wrong_param(body("", "2d")), "none");
  for (const char* const window :
       {"49h", "0h", "24", "h", "-1h", "1.5h", "24h ", "9999999999h", "4294967295d", "106752d"}) {
    EXPECT_EQ(wrong_param(body("", window)), "completion_window") << window;
  }
}

TEST(BatchRequest, NamesTheWrongField) {
  EXPECT_EQ(wrong_param(R"({"endpoint":"/v1/completions","completion_window":"1h"})"),
            "input_file_id");
  EXPECT_EQ(
      wrong_param(R"({"input_file_id":1,"endpoint":"/v1/completions","completion_window":"1h"})"),
      "input_file_id");
  EXPECT_EQ(wrong_param(R"({"input_file_id":"f","completion_window":"1h"})"), "endpoint");
  EXPECT_EQ(wrong_param(R"({"input_file_id":"f","endpoint":"/v1/files","completion_window":"1h"})"),
            "endpoint");
  EXPECT_EQ(wrong_param(body(R"(,"metadata":[])")), "metadata");
  EXPECT_EQ(wrong_param(body(R"(,"metadata":{"a":1})")), "metadata");
  EXPECT_EQ(wrong_param(body(",\"metadata\":{\"a\":\"" + std::string(2049, 'x') + "\"}")),
            "metadata");
  EXPECT_EQ(wrong_param(body(R"(,"metadata":null,"output_expires_after":null)")), "none");
  EXPECT_EQ(wrong_param(body(R"(,"output_expires_after":{"anchor":"x","seconds":3600})")),
            "output_expires_after.anchor");
  EXPECT_EQ(wrong_param(body(R"(,"output_expires_after":{"anchor":"created_at"})")),
            "output_expires_after.seconds");
  EXPECT_EQ(wrong_param("[]"), "");
  EXPECT_EQ(wrong_param(""), "");
}

}  // namespace
}  // namespace pdjob::batch
