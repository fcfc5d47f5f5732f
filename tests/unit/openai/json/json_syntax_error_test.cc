#include "openai/json/json_syntax_error.h"

#include <string>

#include <gtest/gtest.h>

#include "common/limits.h"
#include "openai/openai.h"

namespace pdjob::openai {
namespace {

TEST(JsonLargeNumber, IsNamedByItsPath) {
  EXPECT_EQ(json_large_number(R"({"a":{"b":[1,{"c":[0,1e999]}]}})"), "a.b[1].c[1]");
  EXPECT_EQ(json_large_number(R"({"a":[[],[-9e999]]})"), "a[1][0]");
  EXPECT_EQ(json_large_number(R"({"a":[{"b":1},{"b":2}],"c":-1e400})"), "c");
}

TEST(JsonLargeNumber, IsNoneInOtherTexts) {
  for (const char* text :
       {"{}", "", "{", R"({"seed":18446744073709551615})", R"({"a":-9223372036854775808})",
        R"({"seed":18446744073709551616})", R"({"a":1.5e300,"b":0.00000000000000000000000000001})",
        R"({"a":"18446744073709551616"})"}) {
    EXPECT_EQ(json_large_number(text), "") << text;
  }
  EXPECT_EQ(json_large_number(std::string(2 * limits::kMiB, ' ') + R"({"a":1e999})"), "");
}

TEST(ParseNumbers, ATooLargeOneIsAMistakeInItsField) {
  for (const auto& [field, body] : {
           std::pair{"temperature", R"({"prompt":"a","temperature":1e999})"},
           std::pair{"metadata.k[0]", R"({"prompt":"a","metadata":{"k":[1e400]}})"},
       }) {
    const auto parsed = parse_api_request(ApiKind::kCompletion, body);
    ASSERT_FALSE(parsed) << body;
    EXPECT_EQ(parsed.error().status, 400);
    EXPECT_EQ(parsed.error().param, field);
    EXPECT_EQ(parsed.error().message, std::string(field) + ": the number is too large");
  }
}

TEST(ParseNumbers, ATooLargeIntegerIsAMistakeOnlyWhereItCounts) {
  const auto parsed = [](const std::string& fields) {
    return parse_api_request(ApiKind::kCompletion, R"({"prompt":"a",)" + fields + "}");
  };
  for (
      const char* fields :
      {R"("unknown":123456789012345678901234567890)", R"("metadata":{"k":[-99999999999999999999]})",
       R"("response_format":{"type":"json_schema","json_schema":{"schema":{"type":"integer","maximum":340282366920938463463374607431768211455}}})"}) {
    EXPECT_TRUE(parsed(fields)) << fields;
  }
  for (const char* seed : {"18446744073709551616", "-99999999999999999999999"}) {
    const auto refused = parsed(R"("unknown":[9223372036854775807],"seed":)" + std::string(seed));
    ASSERT_FALSE(refused) << seed;
    EXPECT_EQ(refused.error().param, "seed");
  }
  const auto exact = parsed(R"("seed":9223372036854775807,"unknown":100000000000000000000)");
  ASSERT_TRUE(exact);
  EXPECT_EQ(exact->sampling.seed, 9223372036854775807U);
}

TEST(LargeIntegers, GetAPointOutsideOfTexts) {
  EXPECT_EQ(
      with_points_in_large_integers(
          R"({"18446744073709551616":[18446744073709551616,18446744073709551615,-9223372036854775809],"\"":"\"99999999999999999999","b":1e30})"),
      R"({"18446744073709551616":[18446744073709551616.0,18446744073709551615,-9223372036854775809.0],"\"":"\"99999999999999999999","b":1e30})");
}

}  // namespace
}  // namespace pdjob::openai
