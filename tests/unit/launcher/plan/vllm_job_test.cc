#include "launcher/plan/vllm_job.h"

#include <gtest/gtest.h>

#include "launcher/plan/launch_plan.h"
#include "tests/unit/launcher/plan/case_file.h"

namespace pdjob::launcher {
namespace {

const Places kPlaces{.home = "/home/nobody"};
const std::vector<Node> kOneNode = {{.name = "local",
                                     .host = "127.0.0.1",
                                     .cores = 64,
                                     .memory_bytes = 1 << 30,
                                     .gpus = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9",
                                              "10", "11", "12", "13", "14", "15"}}};

std::string plan_text(const JobConfig& config) {
  const auto plan = make_plan(config, kOneNode, {{}});
  return plan ? plan->to_text() : plan.error().message;
}

// Every file of vllm_jobs.txt becomes the text below it, followed by its warnings, or is refused by
// it.
TEST(VllmJob, EachBecomesTheGoldenNativeFile) {
  CaseFile all(PDJOB_TEST_DIR "/vllm_jobs.txt", "--- native");
  ASSERT_GE(all.cases().size(), 20U);
  for (CaseFile::Case& each : all.cases()) {
    ASSERT_TRUE(is_vllm_job(each.yaml)) << each.name;
    const auto native = native_job("jobs/my job.yaml", each.yaml);
    const std::string text = native ? native->yaml + native->warnings : native.error().message;
    if (CaseFile::updating()) {
      each.expected = text;
    }
    EXPECT_EQ(text, each.expected) << each.name;
  }
  if (CaseFile::updating()) {
    all.write();
  }
}

TEST(VllmJob, TheFileAndItsTranslationHaveTheSamePlan) {
  CaseFile all(PDJOB_TEST_DIR "/vllm_jobs.txt", "--- native");
  size_t planned = 0;
  for (const CaseFile::Case& each : all.cases()) {
    const auto native = native_job("jobs/my job.yaml", each.yaml);
    const auto direct = parse_job_config("jobs/my job.yaml", each.yaml, kPlaces);
    if (!native) {
      EXPECT_EQ(direct.error().message, native.error().message) << each.name;
      continue;
    }
    EXPECT_FALSE(is_vllm_job(native->yaml)) << each.name;
    const auto translated = parse_job_config("jobs/native.yaml", native->yaml, kPlaces);
    ASSERT_TRUE(direct.has_value()) << each.name << direct.error().message;
    ASSERT_TRUE(translated.has_value()) << each.name << translated.error().message;
    EXPECT_EQ(plan_text(*direct), plan_text(*translated)) << each.name;
    EXPECT_EQ(direct->warnings, native->warnings);
    EXPECT_EQ(direct->text, native->yaml) << "processes read the translation";
    EXPECT_EQ(translated->warnings, "");
    planned += 1;
  }
  EXPECT_GE(planned, 10U);
}

// The pull request's example: 8 GPUs for one engine of prefill, and 4 ranks of 2 GPUs for decode.
TEST(VllmJob, TheExampleOfThePullRequestIsPlannedOnSixteenGpus) {
  CaseFile all(PDJOB_TEST_DIR "/vllm_jobs.txt", "--- native");
  const auto config = parse_job_config("job.yaml", all.cases().front().yaml, kPlaces);
  ASSERT_TRUE(config.has_value()) << config.error().message;
  const auto plan = make_plan(*config, kOneNode, {{}});
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  ASSERT_EQ(plan->rows.size(), 3U);
  EXPECT_EQ(plan->rows[1].gpus.size(), 8U);
  EXPECT_EQ(plan->rows[2].gpus.size(), 8U);
  EXPECT_NE(plan->rows[1].command.find(" --tensor-parallel-size 8"), std::string::npos);
  EXPECT_NE(plan->rows[2].command.find(" --tensor-parallel-size 2 --data-parallel-size 4"),
            std::string::npos);
}

TEST(VllmJob, AnErrorOfTheOrdinaryReaderNamesTheTranslation) {
  const auto config = parse_job_config("job.yaml",
                                       "scheduler: {command: x}\n"
                                       "general: {params: {model: m, api_key: secret}}\n",
                                       kPlaces);
  ASSERT_FALSE(config.has_value());
  EXPECT_TRUE(
      config.error().message.starts_with("job.yaml (as `pdjob convert` prints it):14:7: "
                                         "prefill.engine.args: --api-key shows a secret"))
      << config.error().message;
}

TEST(VllmJob, ANativeFileAndABrokenOneAreNone) {
  EXPECT_FALSE(is_vllm_job("name: x\nscheduler: {}\n"));
  EXPECT_FALSE(is_vllm_job("engine: {kind: fake}\n"));
  EXPECT_FALSE(is_vllm_job("general: [\n"));
  EXPECT_FALSE(is_vllm_job(""));
}

TEST(VllmJob, IsNamedAfterItsFile) {
  const std::string yaml = "scheduler: {command: x}\ngeneral: {params: {model: m}}\n";
  EXPECT_TRUE(native_job("/a/Config_2.yaml", yaml)->yaml.starts_with("name: config_2\n"));
  EXPECT_TRUE(native_job("/a/my job.yaml", yaml)->yaml.starts_with("name: my-job\n"));
  EXPECT_TRUE(native_job("", yaml)->yaml.starts_with("name: vllm\n"));
}

}  // namespace
}  // namespace pdjob::launcher
