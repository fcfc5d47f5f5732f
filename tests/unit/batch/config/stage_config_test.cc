#include "batch/config/stage_config.h"

#include <gtest/gtest.h>

#include "batch/config/batch_config.h"

namespace pdjob::batch {
namespace {

std::string read_stages(const std::string& text, StagesConfig& config) {
  ConfigReader in = ConfigReader::parse("f", text);
  in.section("stages", {.doc = ""}, [&](ConfigReader& section) { read(section, config); });
  return in.finish();
}

std::string errors_of(const std::string& text) {
  StagesConfig config;
  return read_stages(text, config);
}

TEST(StageConfig, StagesAreInTheOrderOfTheFile) {
  StagesConfig config;
  EXPECT_EQ(
      read_stages("stages:\n  before:\n    z: {command: [cat], workers: 2}\n"
                  "    a: {python: 'a.py:f', timeout: 5s}\n  after: {j: {command: [cat, -u]}}\n",
                  config),
      "");
  ASSERT_EQ(config.before.size(), 2U);
  EXPECT_EQ(config.before[0].name, "z");
  EXPECT_EQ(config.before[0].workers, 2U);
  EXPECT_EQ(config.before[1].python, "a.py:f");
  EXPECT_EQ(config.before[1].timeout, std::chrono::seconds(5));
  EXPECT_EQ(command_text(config.after[0]), "cat -u");
}

TEST(StageConfig, MistakesAreToldWhereTheyStand) {
  EXPECT_NE(errors_of("stages: {before: {a: {workers: 2}}}").find("either `command` or `python`"),
            std::string::npos);
  EXPECT_NE(errors_of("stages: {after: {a: {python: judge.py}}}").find("must be FILE:FUNCTION"),
            std::string::npos);
  EXPECT_NE(errors_of("stages: {before: {A b: {command: [cat]}}}").find("the name of a stage"),
            std::string::npos);
  EXPECT_NE(errors_of("stages: {before: {a: {command: [cat]}}, after: {a: {command: [cat]}}}")
                .find("two stages are called a"),
            std::string::npos);
  EXPECT_NE(errors_of("stages: {before: {a: {command: [cat], workers: 0}}}")
                .find("stages.before.a.workers: must be 1..1024, got 0"),
            std::string::npos);
}

TEST(StageConfig, FlagsThatNameNoStageKeepThem) {
  BatchConfig config;
  config.stages.before.push_back({.name = "clean", .command = {"cat"}});
  ConfigReader in = ConfigReader::parse("flags", "order: completed\n");
  read(in, config);
  EXPECT_EQ(in.finish(), "");
  ASSERT_EQ(config.stages.before.size(), 1U);
  EXPECT_EQ(config.stages.before[0].command, (std::vector<std::string>{"cat"}));
}

TEST(StageConfig, ItsIdentityIsWhatAnswersDependOn) {
  StagesConfig one;
  EXPECT_EQ(identity_of(one), "");
  one.before.push_back({.name = "a", .command = {"cat"}});
  StagesConfig other = one;
  other.before[0].workers = 8;
  EXPECT_EQ(identity_of(one), identity_of(other));
  other.before[0].command.emplace_back("-u");
  EXPECT_NE(identity_of(one), identity_of(other));
  other = one;
  std::swap(other.before, other.after);
  EXPECT_NE(identity_of(one), identity_of(other));
}

}  // namespace
}  // namespace pdjob::batch
