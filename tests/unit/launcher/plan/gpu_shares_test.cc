#include "launcher/plan/gpu_shares.h"

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

using Words = std::vector<std::string>;

JobConfig job(const std::string& yaml) {
  auto config = parse_job_config("job.yaml", "name: demo\n" + yaml, {});
  PDJOB_CHECK(config.has_value(), config.error().message);
  return std::move(*config);
}

std::vector<Node> node(const Words& gpus) {
  return {{.name = "local",
           .host = "127.0.0.1",
           .cores = 8,
           .memory_bytes = 1 << 30,
           .gpus = gpus,
           .overcommits = true}};
}

// Returns the GPUs of router-0, then the prefill workers, then the decode workers.
Words gpus_of(const LaunchPlan& plan) {
  Words gpus;
  for (const PlanRow& row : plan.rows) {
    gpus.push_back(gpus_text(row.gpus));
  }
  return gpus;
}

TEST(GpuShares, ASettingHidesWhatComesAfterAWordThatNamesNone) {
  EXPECT_EQ(gpus_of_setting("0,2,GPU-8a1"), (Words{"0", "2", "GPU-8a1"}));
  EXPECT_EQ(gpus_of_setting("1,-1,2"), Words{"1"});
  EXPECT_EQ(gpus_of_setting("3,,4"), Words{"3"});
  EXPECT_EQ(gpus_of_setting("NoDevFiles"), Words{});
  EXPECT_EQ(gpus_of_setting(""), Words{});
}

TEST(GpuShares, EachWorkerThatComputesOnAGpuHasOneOfItsOwn) {
  const auto plan = make_plan(job("engine: {kind: fake, gpu: true}\n"
                                  "prefill: {workers: 2}\ndecode: {workers: 2}\n"),
                              node({"0", "1", "2", "3", "4"}), {{}});
  ASSERT_TRUE(plan);
  EXPECT_EQ(gpus_of(*plan), (Words{"", "0", "2", "1", "3"}));
  EXPECT_EQ(plan->warnings, Words{});
}

TEST(GpuShares, WorkersOfTheHostLeaveTheGpusToTheOthers) {
  const auto plan = make_plan(job("engine: {kind: fake}\n"
                                  "prefill: {workers: 2, engine: {gpu: true}}\n"
                                  "decode: {workers: 4}\n"),
                              node({"5", "6"}), {{}});
  ASSERT_TRUE(plan);
  EXPECT_EQ(gpus_of(*plan), (Words{"", "5", "6", "", "", "", ""}));
}

TEST(GpuShares, EachModelSaysWhetherItsWorkersWantOne) {
  const auto plan = make_plan(job("engine: {kind: fake}\n"
                                  "models:\n"
                                  "  small: {}\n"
                                  "  large: {engine: {gpu: true}, decode: {workers: 2}}\n"),
                              node({"3", "4", "5"}), {{}, {}});
  ASSERT_TRUE(plan);
  EXPECT_EQ(gpus_of(*plan), (Words{"", "", "", "3", "4", "5"}));
}

TEST(GpuShares, TooFewGpusAreSharedEvenlyWithAWarning) {
  const auto plan = make_plan(job("engine: {kind: fake, gpu_layers: 3}\n"
                                  "prefill: {workers: 2}\ndecode: {workers: 3}\n"),
                              node({"0", "1"}), {{}});
  ASSERT_TRUE(plan);
  EXPECT_EQ(gpus_of(*plan), (Words{"", "0", "1", "1", "0", "0"}));
  EXPECT_EQ(plan->warnings,
            Words{"node local has 2 GPUs for 5 workers: expect them to share its memory and time"});
}

TEST(GpuShares, NcclIsNotPlacedWhereTwoWorkersWouldShareAGpu) {
  const JobConfig config = job("engine: {kind: fake}\nkvtransfer: {transport: nccl}\n");
  const auto refused = make_plan(config, node({"0"}), {{}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(refused.error().message,
            "node local has 1 GPU for 2 workers, and NCCL takes one for each: have fewer workers, "
            "take another kvtransfer.transport, or set NCCL_MULTI_RANK_GPU_ENABLE=1 in the "
            "environment (experimental, NCCL 2.30 and newer)");
  EXPECT_TRUE(make_plan(config, node({"0", "1"}), {{}}));
  ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  const auto shared = make_plan(config, node({"0"}), {{}});
  ::unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
  ASSERT_TRUE(shared);
  EXPECT_EQ(shared->warnings,
            Words{"node local has 1 GPU for 2 workers: expect them to share its memory and time"});
}

TEST(GpuShares, WorkersWithPartsShareAGpuAndThePlanSaysWhatKeepsThemApart) {
  const auto plan = make_plan(job("engine: {kind: fake}\nprefill: {engine: {gpu: 0.4}}\n"
                                  "decode: {engine: {gpu: 0.6}}\n"),
                              node({"0", "1"}), {{}});
  ASSERT_TRUE(plan);
  EXPECT_EQ(gpus_of(*plan), (Words{"", "0", "0"}));
  EXPECT_EQ(plan->warnings, Words{});
  const std::string text = plan->to_text();
  EXPECT_NE(text.find(" 0 (0.4) "), std::string::npos) << text;
  EXPECT_NE(text.find("GPU 0 of node local: prefill-0 has 0.4, decode-0 has 0.6\n"
                      "parts of a GPU: each engine keeps to its part of the memory by itself."),
            std::string::npos)
      << text;
  EXPECT_NE(plan->to_json("{}").find(R"("gpu":"0","gpu_part":0.4)"), std::string::npos);
}

TEST(GpuShares, ThePlanSaysWhatASliceIsolates) {
  const auto plan = make_plan(job("engine: {kind: fake, gpu: true}\nprefill: {workers: 0}\n"),
                              node({"MIG-11c2"}), {{}});
  ASSERT_TRUE(plan);
  EXPECT_NE(plan->to_text().find("\nGPU MIG-11c2 of node local is a slice: its memory, "
                                 "multiprocessors and faults are its own\n"),
            std::string::npos)
      << plan->to_text();
}

TEST(GpuShares, NcclTakesNoParts) {
  const JobConfig config = job("engine: {kind: fake, gpu: 0.5}\nkvtransfer: {transport: nccl}\n");
  const auto refused = make_plan(config, node({"0", "1"}), {{}});
  ASSERT_FALSE(refused);
  EXPECT_TRUE(refused.error().message.starts_with(
      "prefill-0 and decode-0 have parts of GPU 0 of node local, and NCCL takes one for each: "))
      << refused.error().message;
}

TEST(GpuShares, APartIsNeverMoreThanItsNumberSays) {
  const auto read = [](const std::string& gpu) {
    const auto config =
        parse_job_config("job.yaml", "name: a\nengine: {kind: fake, gpu: " + gpu + "}\n", {});
    return config ? std::to_string(config->models.front().decode_engine.gpu_percent) +
                        (config->models.front().decode_engine.gpu ? " on" : " off")
                  : config.error().message;
  };
  EXPECT_EQ(read("true"), "100 on");
  EXPECT_EQ(read("1"), "100 on");
  EXPECT_EQ(read("1.00"), "100 on");
  EXPECT_EQ(read("0.5"), "50 on");
  EXPECT_EQ(read("0.07"), "7 on");
  EXPECT_EQ(read("false"), "100 off");
  EXPECT_EQ(read("0"), "100 off");
  for (const char* const wrong : {"2", "0.125", "-1", "half", "1.01", "."}) {
    EXPECT_NE(read(wrong).find("expected true, false, or a part from 0.01 to 1"), std::string::npos)
        << read(wrong);
  }
}

TEST(GpuShares, ANodeWithoutGpusIsAWarning) {
  const auto plan = make_plan(job("engine: {kind: fake, gpu: true}\n"), node({}), {{}});
  ASSERT_TRUE(plan);
  EXPECT_EQ(gpus_of(*plan), (Words{"", "", ""}));
  EXPECT_EQ(plan->warnings, Words{"node local has no GPU for 2 workers: look at nvidia-smi, "
                                  "/dev/nvidia* and CUDA_VISIBLE_DEVICES"});
}

TEST(GpuShares, ThePlanShowsThemWhereThereAreAny) {
  const auto plan = make_plan(job("engine: {kind: fake}\nprefill: {engine: {gpu: true}}\n"),
                              node({"GPU-8a1"}), {{}});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->to_text(),
            "job demo, model fake\n"
            "NAME       ROLE     NODE   CORES  GPU      ADDRESS\n"
            "router-0   router   local  -      -        127.0.0.1:8000\n"
            "prefill-0  prefill  local  1      GPU-8a1  127.0.0.1:any\n"
            "decode-0   decode   local  1      -        127.0.0.1:any\n"
            "invariant: yes (the fake engine computes each sequence alone)\n");
  const std::string json = plan->to_json();
  EXPECT_NE(
      json.find(
          R"("name":"prefill-0","role":"prefill","node":"local","cluster":"local","why":"the only node that fits","cores":1,"gpu":"GPU-8a1")"),
      std::string::npos);
  EXPECT_EQ(json.find(R"("gpu")"), json.rfind(R"("gpu")"));
}

}  // namespace
}  // namespace pdjob::launcher
