#include "batch/api/input_check.h"

#include <gtest/gtest.h>

#include "tests/unit/batch/scratch_folder.h"

namespace pdjob::batch {
namespace {

constexpr const char* kUrl = "/v1/completions";

std::string row(const std::string& id, const std::string& model = "m",
                const std::string& url = kUrl) {
  return R"({"custom_id":")" + id + R"(","method":"POST","url":")" + url +
         R"(","body":{"model":")" + model + "\"}}\n";
}

InputFacts check(const std::string& text, uint64_t rows_max = 10) {
  const ScratchFolder folder;
  const auto facts =
      check_input(folder.write("input.jsonl", text), {.endpoint = kUrl, .rows_max = rows_max});
  EXPECT_TRUE(facts) << facts.error().message;
  return *facts;
}

TEST(InputCheck, PassesAFileOfRightLines) {
  const InputFacts facts = check(row("1") + "\n" + row("2"));
  EXPECT_TRUE(facts.errors.empty());
  EXPECT_EQ(facts.rows, 2U);
  EXPECT_EQ(facts.model, "m");
  EXPECT_EQ(check(row("1") + row("2", "other")).model, "");
}

TEST(InputCheck, NamesEveryWrongLine) {
  const InputFacts facts =
      check(row("1") + "{\n" + row("") + row("4", "m", "/v1/chat/completions"));
  ASSERT_EQ(facts.errors.size(), 3U);
  EXPECT_EQ(facts.errors[0].code, "invalid_json_line");
  EXPECT_EQ(facts.errors[0].line, 2U);
  EXPECT_EQ(facts.errors[1].code, "invalid_custom_id");
  EXPECT_EQ(facts.errors[2].code, "invalid_url");
  EXPECT_EQ(facts.errors[2].line, 4U);
  EXPECT_EQ(
      errors_text({facts.errors[0]}),
      R"({"code":"invalid_json_line","line":2,"message":"it is not a JSON object","param":null})");
}

TEST(InputCheck, StopsAtItsLimits) {
  std::string wrong;
  for (int i = 0; i < 500; ++i) {
    wrong += "x\n";
  }
  EXPECT_EQ(check(wrong, 1000).errors.size(), kInputErrorsMax);
  const InputFacts facts = check(row("1") + row("2"), 1);
  ASSERT_EQ(facts.errors.size(), 1U);
  EXPECT_EQ(facts.errors[0].code, "too_many_requests");
  EXPECT_EQ(check("\n\n").errors[0].code, "empty_file");
}

TEST(InputCheck, SaysThatAFileIsGone) {
  EXPECT_FALSE(check_input("/nowhere/input.jsonl", {.endpoint = kUrl, .rows_max = 1}));
}

}  // namespace
}  // namespace pdjob::batch
