#include "openai/json/json_syntax_error.h"

#include <string>

#include <gtest/gtest.h>

#include "common/limits.h"
#include "openai/openai.h"

namespace pdjob::openai {
namespace {

TEST(JsonLargeNumber, IsNamedByItsPath) {
  EXPECT_EQ(json_large_number(R"({"seed":18446744073709551616})"), "seed");
  EXPECT_EQ(json_large_number(R"({"a":{"b":[1,{"c":[0,1e999]}]}})"), "a.b[1].c[1]");
  EXPECT_EQ(json_large_number(R"({"a":[[],[-99999999999999999999]]})"), "a[1][0]");
  EXPECT_EQ(json_large_number(R"({"a":[{"b":1},{"b":2}],"c":-1e400})"), "c");
}

TEST(JsonLargeNumber, IsNoneInOtherTexts) {
  for (const char* text :
       {"{}", "", "{", R"({"seed":18446744073709551615})", R"({"a":-9223372036854775808})",
        R"({"a":1.5e300,"b":0.00000000000000000000000000001})",
        R"({"a":"18446744073709551616"})"}) {
    EXPECT_EQ(json_large_number(text), "") << text;
  }
  EXPECT_EQ(json_large_number(std::string(2 * limits::kMiB, ' ') + R"({"a":1e999})"), "");
}

TEST(ParseNumbers, ATooLargeOneIsAMistakeInItsField) {
  for (const auto& [field, body] : {
           std::pair{"seed", R"({"prompt":"a","seed":18446744073709551616})"},
           std::pair{"seed", R"({"prompt":"a","seed":-99999999999999999999999})"},
           std::pair{"temperature", R"({"prompt":"a","temperature":1e999})"},
           std::pair{"metadata.k[0]", R"({"prompt":"a","metadata":{"k":[1e400]}})"},
           std::pair{"unknown", R"({"prompt":"a","unknown":123456789012345678901234567890})"},
       }) {
    const auto parsed = parse_api_request(ApiKind::kCompletion, body);
    const auto* error = std::get_if<ApiError>(&parsed);
    ASSERT_NE(error, nullptr) << body;
    EXPECT_EQ(error->status, 400);
    EXPECT_EQ(error->param, field);
    EXPECT_EQ(error->message, std::string(field) + ": the number is too large");
  }
}

}  // namespace
}  // namespace pdjob::openai
