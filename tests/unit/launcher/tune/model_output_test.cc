#include "launcher/tune/model_output.h"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "common/os/read_text.h"

namespace pdjob::launcher {
namespace {

namespace fs = std::filesystem;

class ModelOutputTest : public ::testing::Test {
 protected:
  ModelOutputTest() : folder_(fs::path(::testing::TempDir()) / "model_output_test") {
    fs::remove_all(folder_);
    fs::create_directory(folder_);
  }
  ~ModelOutputTest() override { fs::remove_all(folder_); }
  std::string path() const { return (folder_ / "m.json").string(); }
  bool is_empty() const { return fs::is_empty(folder_); }

 private:
  fs::path folder_;
};

TEST_F(ModelOutputTest, IsThereOnlyWhenItIsWhole) {
  {
    auto output = ModelOutput::open(path());
    ASSERT_TRUE(output);
    EXPECT_FALSE(fs::exists(path()));
    EngineModel model;
    model.name = "m";
    ASSERT_TRUE(output->write(model));
  }
  const auto read = parse_engine_model(path(), read_text(path()));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->name, "m");
  EXPECT_FALSE(fs::exists(path() + ".new"));
}

TEST_F(ModelOutputTest, LeavesNothingUnlessItIsWritten) {
  {
    const auto output = ModelOutput::open(path());
    ASSERT_TRUE(output);
    EXPECT_FALSE(is_empty());
  }
  EXPECT_TRUE(is_empty());
}

TEST_F(ModelOutputTest, RefusesAFolderThatIsNotThere) {
  const auto output = ModelOutput::open(path() + "/none/m.json");
  ASSERT_FALSE(output);
  EXPECT_EQ(output.error().code, ErrorCode::kInvalidArgument);
}

TEST(DateText, IsADayInUtc) {
  EXPECT_EQ(date_text(0), "1970-01-01");
  EXPECT_EQ(date_text(1795871859), "2026-11-28");
}

TEST(ModelSummary, HasUnitsThatKeepDigitsFew) {
  EngineModel model;
  model.name = "m";
  model.step.fixed = EngineModel::Time(3093000);
  model.step.per_prompt_token = EngineModel::Time(32000);
  model.step.per_context_read = EngineModel::Time(0.39);
  model.unmeasured = {"kv.per_token_us"};
  const std::string text = model_summary(model);
  for (const char* const part :
       {"3.09 ms", "32.00 us", "0.39 ns", "not measured: kv.per_token_us"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

}  // namespace
}  // namespace pdjob::launcher
