#include "launcher/plan/foreign_plan.h"

#include <gtest/gtest.h>

#include "common/check.h"
#include "tests/unit/launcher/plan/case_file.h"

namespace pdjob::launcher {
namespace {

const std::vector<Node> kOneNode = {{.name = "local",
                                     .host = "127.0.0.1",
                                     .cores = 64,
                                     .memory_bytes = 1 << 30,
                                     .gpus = {"0", "1", "2", "3"}}};

JobConfig job(const std::string& yaml) {
  auto config = parse_job_config("/jobs/job.yaml", "name: demo\n" + yaml, {.home = "/h"});
  PDJOB_CHECK(config.has_value(), config.error().message);
  return std::move(*config);
}

LaunchPlan plan_of(const std::string& yaml) {
  const JobConfig config = job(yaml);
  auto plan = make_plan(config, kOneNode, std::vector<ModelSize>(config.models.size()));
  PDJOB_CHECK(plan.has_value(), plan.error().message);
  return std::move(*plan);
}

std::string command_of(const LaunchPlan& plan, const std::string& name) {
  for (const PlanRow& row : plan.rows) {
    if (row.name == name) {
      return row.command;
    }
  }
  return "no " + name;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Every job file of engine_commands.txt runs exactly the commands below it.
TEST(ForeignPlan, CommandsAreTheGoldenOnes) {
  CaseFile all(PDJOB_TEST_DIR "/engine_commands.txt", "--- commands");
  ASSERT_GE(all.cases().size(), 30U);
  for (CaseFile::Case& each : all.cases()) {
    const LaunchPlan plan = plan_of(each.yaml);
    std::string text;
    for (const PlanRow& row : plan.rows) {
      text += row.command.empty() ? "" : row.name + ": " + row.command + "\n";
    }
    for (const std::string& warning : plan.warnings) {
      text += "warning: " + warning + "\n";
    }
    if (CaseFile::updating()) {
      each.expected = text;
    }
    EXPECT_EQ(text, each.expected) << each.name;
  }
  if (CaseFile::updating()) {
    all.write();
  }
}

TEST(ForeignPlan, EachEngineHasPortsOfItsOwn) {
  const LaunchPlan plan = plan_of(
      "model: org/m\nengine: {kind: vllm, ports: 3000-3009}\nprefill: {workers: 2}\n"
      "decode: {workers: 1}\n");
  EXPECT_TRUE(has(command_of(plan, "prefill-0"), "--port 3000 ")) << plan.to_text();
  EXPECT_TRUE(has(command_of(plan, "prefill-1"), "--port 3002 "));
  EXPECT_TRUE(has(command_of(plan, "prefill-1"), "VLLM_NIXL_SIDE_CHANNEL_PORT=3003 "));
  EXPECT_TRUE(has(command_of(plan, "decode-0"), "--port 3004 "));
  EXPECT_TRUE(command_of(plan, "router-0").empty());
}

TEST(ForeignPlan, ANameIsTheEnginesToLookUpAndAPathStartsAtTheFilesFolder) {
  EXPECT_TRUE(has(command_of(plan_of("model: org/m\nengine: {kind: vllm}\n"), "decode-0"),
                  "serve org/m --served-model-name org/m "));
  EXPECT_TRUE(has(command_of(plan_of("model: ./models/m\nengine: {kind: vllm}\n"), "decode-0"),
                  "serve /jobs/./models/m --served-model-name m "));
  EXPECT_TRUE(has(command_of(plan_of("model: ~/m\nengine: {kind: vllm}\n"), "decode-0"),
                  "serve /h/m --served-model-name m "));
}

TEST(ForeignPlan, ARoleAndAModelMayHaveTheirOwnArguments) {
  const LaunchPlan plan = plan_of(R"(
engine: {kind: vllm, args: [--a]}
models:
  one: {model: org/m, decode: {engine: {args: [--b]}}}
  two: {model: org/n, engine: {kind: sglang, args: [--c]}}
)");
  EXPECT_TRUE(command_of(plan, "one-prefill-0").ends_with("--a"));
  EXPECT_TRUE(command_of(plan, "one-decode-0").ends_with("--b"));
  EXPECT_TRUE(command_of(plan, "two-decode-0").ends_with("--c"));
  EXPECT_TRUE(has(command_of(plan, "two-decode-0"), "sglang.launch_server"));
}

TEST(ForeignPlan, SaysWhatStaysOpenAndWhatIsContradictedOnce) {
  const LaunchPlan plan = plan_of(
      "model: m\nengine: {kind: sglang, env: [OMP_NUM_THREADS=9]}\nprefill: {workers: 2}\n");
  EXPECT_EQ(plan.warnings,
            (std::vector<std::string>{
                "engine.env sets OMP_NUM_THREADS, which pdjob sets, too: yours is used",
                "sglang answers without a key: every route, the bootstrap server; it listens on "
                "127.0.0.1"}));
}

TEST(ForeignPlan, WarnsOfAnEngineThatTakesMoreGpusThanAWorkerGets) {
  const auto warnings = [](const std::string& engine) {
    const LaunchPlan plan =
        plan_of("model: m\nengine: {kind: vllm, " + engine + "}\nprefill: {workers: 1}\n");
    std::string all;
    for (const std::string& warning : plan.warnings) {
      all += has(warning, "GPUs by its engine.args") ? warning + "\n" : "";
    }
    return all;
  };
  const std::string text =
      " GPUs by its engine.args, and pdjob gives a worker one: vllm will not start\n";
  EXPECT_EQ(warnings("gpu: true, args: [--tensor-parallel-size, '4', --pipeline_parallel_size=2]"),
            "an engine of role prefill takes 8" + text + "an engine of role decode takes 8" + text);
  EXPECT_EQ(warnings("gpu: true, args: [--tensor-parallel-size, '1']"), "");
  EXPECT_EQ(warnings("args: [--tensor-parallel-size, '4']"), "") << "on CPUs";
  EXPECT_EQ(warnings("gpu: true, args: [--tensor-parallel-size, '2'], "
                     "env: ['CUDA_VISIBLE_DEVICES=0,1']"),
            "")
      << "the user gave them";
}

TEST(ForeignPlan, JsonHasTheCommandsToo) {
  const LaunchPlan plan = plan_of("model: m\nengine: {kind: vllm}\nprefill: {workers: 0}\n");
  EXPECT_TRUE(has(plan.to_json(), R"("command":"VLLM_NO_USAGE_STATS=1 )"));
  EXPECT_TRUE(has(plan.to_text(), "invariant: no (an engine of another make computes)\n"));
}

TEST(ForeignPlan, TheSlotsOfWorkersWithPdjobsOwnEngineAreNotCounted) {
  const JobConfig config = job(R"(
models:
  own: {model: x, engine: {kind: fake}}
  one: {model: m, engine: {kind: vllm}}
)");
  EXPECT_EQ(foreign_slot(config, "one-prefill-0"), 0U);
  EXPECT_EQ(foreign_slot(config, "one-decode-0"), 1U);
  EXPECT_EQ(foreign_slot(config, "nobody"), 0U);
}

}  // namespace
}  // namespace pdjob::launcher
