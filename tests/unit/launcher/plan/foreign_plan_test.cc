#include "launcher/plan/foreign_plan.h"

#include <gtest/gtest.h>

#include "common/check.h"
#include "launcher/plan/gpu_shares.h"
#include "launcher/specs/job_specs.h"
#include "tests/support/gpu_box.h"
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

// A worker reads its spec as the launcher wrote it: `threads` once made one that no worker read.
TEST(ForeignPlan, EachWorkerReadsTheSpecOfItsEngine) {
  CaseFile all(PDJOB_TEST_DIR "/engine_commands.txt", "--- commands");
  for (const CaseFile::Case& each : all.cases()) {
    const JobConfig config = job(each.yaml);
    const JobSpecs specs = specs_of(config);
    for (const auto& [key, work] : specs.work) {
      const auto spec = net::is_worker(key.first) ? read_worker_spec("a worker", work)
                                                  : Result<WorkerSpec>(WorkerSpec{});
      ASSERT_TRUE(spec.has_value()) << each.name << ": " << spec.error().message;
    }
    EXPECT_EQ(engine_ports(specs), ports_each(config)) << each.name;
  }
}

TEST(ForeignPlan, StoresAndEnginesOfAllNodesKnowTheMasterBesideTheRouters) {
  const JobConfig config =
      job("model: org/m\nengine: {kind: vllm}\nkv_store: {kind: mooncake, memory: 64MiB, port: "
          "7000}\n");
  const auto plan =
      make_plan(config,
                {{.name = "a", .host = "10.0.0.1", .cores = 1, .memory_bytes = 1 << 30},
                 {.name = "b", .host = "10.0.0.2", .cores = 1, .memory_bytes = 1 << 30}},
                {{}});
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  std::string order;
  for (const PlanRow& row : plan->rows) {
    order += row.name + " on " + row.node + ", ";
  }
  EXPECT_EQ(order,
            "router-0 on a, store-master on a, store-0 on a, store-1 on b, prefill-0 on a, "
            "decode-0 on b, ");
  EXPECT_TRUE(has(command_of(*plan, "store-master"), "--rpc_address=10.0.0.1 --rpc_port=7000"));
  EXPECT_TRUE(has(command_of(*plan, "store-1"),
                  "--host=10.0.0.2 --port=20901 --master_server_address=10.0.0.1:7000"));
  EXPECT_TRUE(has(command_of(*plan, "decode-0"), R"("master_server_address":"10.0.0.1:7000")"));
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

// Two nodes with two GPUs each.
LaunchPlan plan_on_two_nodes(const std::string& yaml) {
  std::vector<Node> nodes;
  for (const char* const name : {"a", "b"}) {
    nodes.push_back({.name = name,
                     .host = std::string("10.0.0.") + name,
                     .cores = 64,
                     .memory_bytes = 1 << 30,
                     .gpus = {"0", "1"}});
  }
  const JobConfig config = job(yaml);
  auto plan = make_plan(config, nodes, std::vector<ModelSize>(config.models.size()));
  PDJOB_CHECK(plan.has_value(), plan.error().message);
  return std::move(*plan);
}

TEST(ForeignPlan, AnEngineOverTwoNodesRunsAHeadAndAFollowerThatKnowsTheHead) {
  const LaunchPlan plan = plan_on_two_nodes(
      "model: m\nengine: {kind: vllm, nodes: 2, gpus: 4, parallel: {tensor: 4}}\n"
      "prefill: {workers: 0}\n");
  const PlanRow& row = plan.rows.back();
  ASSERT_EQ(row.more.size(), 1U);
  EXPECT_EQ(row.more[0].node, "b");
  EXPECT_EQ(row.more[0].gpus, row.gpus);
  const std::string common = " --tensor-parallel-size 4 --nnodes 2 --node-rank ";
  const std::string head =
      " --master-addr 10.0.0.a --master-port 21002 "
      "--data-parallel-rpc-port 21018";
  EXPECT_TRUE(row.command.ends_with(common + "0" + head)) << row.command;
  EXPECT_TRUE(row.more[0].command.ends_with(common + "1" + head + " --headless"))
      << row.more[0].command;
  EXPECT_TRUE(has(row.more[0].command, "--host 10.0.0.b "));
  EXPECT_TRUE(has(row.more[0].command, "VLLM_HOST_IP=10.0.0.b GLOO_SOCKET_IFNAME="));
  EXPECT_TRUE(has(plan.to_text(), " a,b "));
  EXPECT_TRUE(has(plan.to_text(), "decode-0 runs on node b: "));
  EXPECT_TRUE(has(plan.to_json(), R"("more_nodes":[{"node":"b","host":"10.0.0.b","gpu":"0,1")"));
}

TEST(ForeignPlan, AnEngineOfSglangOverTwoNodesMeetsAtItsFirst) {
  const LaunchPlan plan = plan_on_two_nodes(
      "model: m\nengine: {kind: sglang, nodes: 2, gpus: 4, parallel: {tensor: 4}}\n"
      "prefill: {workers: 0}\n");
  const std::string all = " --tp-size 4 --nnodes 2 --node-rank ";
  EXPECT_TRUE(plan.rows.back().command.ends_with(all + "0 --dist-init-addr 10.0.0.a:21002"))
      << plan.rows.back().command;
  EXPECT_TRUE(
      plan.rows.back().more[0].command.ends_with(all + "1 --dist-init-addr 10.0.0.a:21002"));
}

TEST(ForeignPlan, AnEngineThatNoNodeHoldsIsRefusedWithWhatItLacks) {
  const JobConfig config = job(
      "model: m\nengine: {kind: vllm, gpus: 8, parallel: {tensor: 8}}\nprefill: {workers: 0}\n");
  const auto plan = make_plan(config, kOneNode, {ModelSize{}});
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().message,
            "the job does not fit: decode has places for 0 of 1 workers, each with 1 core and 8 "
            "GPUs: node local comes nearest: it lacks 4 GPUs");
}

TEST(ForeignPlan, HeadsOfTheModelDecideWhatItsRanksCanShare) {
  const auto planned = [](const std::string& roles, const engine::ModelFolder& folder) {
    const JobConfig config = job("model: m\nengine: {kind: vllm, gpu: true}\n" + roles);
    const auto plan = make_plan(config, kOneNode, {ModelSize{.folder = folder}});
    std::string text = plan ? "" : plan.error().message;
    for (const std::string& warning : plan ? plan->warnings : std::vector<std::string>()) {
      text += has(warning, "KV heads") ? warning : "";
    }
    return text;
  };
  const std::string wide = "prefill: {engine: {parallel: {tensor: 3}}}\n";
  EXPECT_EQ(planned(wide, {.heads = 8, .kv_heads = 8}),
            "the model m has 8 attention heads, which tensor 3 of prefill does not divide");
  EXPECT_EQ(planned(wide, {.heads = 6, .kv_heads = 6}), "");
  EXPECT_EQ(planned(wide, {.heads = 6, .kv_heads = 1, .latent = true}), "");
  EXPECT_EQ(planned(wide, {.heads = 6, .kv_heads = 2}),
            "prefill has tensor 3 and decode 1: connectors take this only of models with at least "
            "3 KV heads, or with latent attention (MLA); this one has 2");
}

TEST(ForeignPlan, WeightsThatCannotFitAreSaidBeforeAnythingStarts) {
  constexpr uint64_t kGib = uint64_t{1} << 30;
  const auto said = [](const std::string& engine, uint64_t gpu_gib) {
    Node box = gpu_box("a");
    box.topology.gpu_memory_bytes = gpu_gib * kGib;
    const JobConfig config =
        job("model: m\nengine: {kind: vllm, gpu: true, " + engine + "}\nprefill: {workers: 0}\n");
    const auto plan = make_plan(config, {box}, {ModelSize{.folder = {.weight_bytes = 140 * kGib}}});
    std::string text = plan ? "" : plan.error().message;
    for (const std::string& warning : plan ? plan->warnings : std::vector<std::string>()) {
      text += has(warning, "for its weights") ? warning : "";
    }
    return text;
  };
  EXPECT_EQ(said("", 80),
            "both of m needs at least 140.0 GiB on each GPU for its weights, and node a has 80.0 "
            "GiB: it will run out of memory at its start");
  EXPECT_EQ(said("", 141), "");
  EXPECT_EQ(said("", 0), "") << "nobody knows its GPUs";
  EXPECT_EQ(said("parallel: {tensor: 2}", 80), "");
  EXPECT_NE(said("parallel: {data: 2}", 80), "") << "each rank has all weights";
  EXPECT_EQ(said("parallel: {data: 2, expert: true}", 80), "") << "at the least they share all";
  EXPECT_NE(said("parallel: {tensor: 4}", 34), "");
  EXPECT_EQ(said("parallel: {tensor: 2, pipeline: 2}", 36), "");
  EXPECT_EQ(said("args: [--quantization, fp8]", 80), "") << "they shrink";
  EXPECT_EQ(said("args: [--cpu-offload-gb=100]", 80), "") << "they are elsewhere";
}

TEST(ForeignPlan, JsonHasTheCommandsToo) {
  const LaunchPlan plan = plan_of("model: m\nengine: {kind: vllm}\nprefill: {workers: 0}\n");
  EXPECT_TRUE(has(plan.to_json(), R"("command":"VLLM_NO_USAGE_STATS=1 )"));
  EXPECT_TRUE(has(plan.to_text(), "invariant: no (an engine of another make computes)\n"));
}

LaunchPlan plan_on_boxes(size_t boxes, const std::string& yaml) {
  std::vector<Node> nodes;
  for (size_t i = 0; i < boxes; ++i) {
    nodes.push_back(gpu_box(std::string(1, static_cast<char>('a' + i))));
    nodes.back().cluster = "lab";
  }
  const JobConfig config = job(yaml);
  auto plan = make_plan(config, nodes, std::vector<ModelSize>(config.models.size()));
  PDJOB_CHECK(plan.has_value(), plan.error().message);
  return std::move(*plan);
}

// "prefill-0 a 0: NVLink island 0; ..."
std::string near_lines(const LaunchPlan& plan) {
  std::string text;
  for (const PlanRow& row : plan.rows) {
    if (const std::string near = row.near.text(); !near.empty()) {
      text += row.name + " " + row.node + " " + gpus_text(row.gpus) + ": " + near + "\n";
    }
  }
  return text;
}

TEST(ForeignPlan, SaysWhatIsNearTheGpuOfEachWorker) {
  const LaunchPlan plan =
      plan_on_boxes(1,
                    "model: org/m\nengine: {kind: vllm, gpu: true}\nprefill: {workers: 3}\n"
                    "decode: {workers: 3}\n");
  EXPECT_EQ(near_lines(plan),
            "prefill-0 a 0: NVLink island 0; nearest NIC mlx5_0; cores 0-23,48-71 and memory of "
            "NUMA node 0\n"
            "prefill-1 a 2: NVLink island 0; nearest NIC mlx5_2; cores 0-23,48-71 and memory of "
            "NUMA node 0\n"
            "prefill-2 a 4: NVLink island 1; nearest NIC mlx5_4; cores 24-47,72-95 and memory of "
            "NUMA node 1\n"
            "decode-0 a 1: NVLink island 0; nearest NIC mlx5_1; cores 0-23,48-71 and memory of "
            "NUMA node 0\n"
            "decode-1 a 3: NVLink island 0; nearest NIC mlx5_3; cores 0-23,48-71 and memory of "
            "NUMA node 0\n"
            "decode-2 a 5: NVLink island 1; nearest NIC mlx5_5; cores 24-47,72-95 and memory of "
            "NUMA node 1\n");
  EXPECT_TRUE(has(plan.to_text(),
                  "\ndecode-2 on GPU 5: NVLink island 1; nearest NIC mlx5_5; cores 24-47,72-95 and "
                  "memory of NUMA node 1\n"))
      << plan.to_text();
  EXPECT_TRUE(has(plan.to_json(), R"("gpu":"5","gpu_why":"NVLink island 1","nics":["mlx5_5"],)"
                                  R"("cpus":"24-47,72-95","memory_node":"1")"))
      << plan.to_json();
  EXPECT_TRUE(has(command_of(plan, "decode-2"), "UCX_NET_DEVICES=mlx5_5:1 NCCL_IB_HCA==mlx5_5 "))
      << command_of(plan, "decode-2");
}

TEST(ForeignPlan, OnSeveralBoxesUsesTheNicsOfEach) {
  for (const size_t boxes : {2U, 4U}) {
    const LaunchPlan plan =
        plan_on_boxes(boxes,
                      "model: org/m\nengine: {kind: sglang, gpu: true}\nprefill: {workers: 4}\n"
                      "decode: {workers: 4}\n");
    for (const PlanRow& row : plan.rows) {
      if (row.role != net::Role::kRouter) {
        EXPECT_EQ(row.near.nics, std::vector<std::string>{"mlx5_" + row.gpus.front()}) << row.name;
        EXPECT_TRUE(has(row.command, " --disaggregation-ib-device mlx5_" + row.gpus.front()))
            << row.command;
      }
    }
  }
}

TEST(ForeignPlan, AnEngineOverTwoBoxesTakesAnIslandAndItsNicsOnEach) {
  const LaunchPlan plan =
      plan_on_boxes(2,
                    "model: m\nengine: {kind: vllm, nodes: 2, gpus: 8, parallel: {tensor: 8}}\n"
                    "prefill: {workers: 0}\n");
  const PlanRow& row = plan.rows.back();
  ASSERT_EQ(row.more.size(), 1U);
  const std::vector<std::string> island = {"0", "1", "2", "3"};
  EXPECT_EQ(row.gpus, island);
  EXPECT_EQ(row.more[0].gpus, island);
  const std::string nics = "UCX_NET_DEVICES=mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1 ";
  EXPECT_TRUE(has(row.command, nics)) << row.command;
  EXPECT_TRUE(has(row.more[0].command, nics)) << row.more[0].command;
  EXPECT_TRUE(has(plan.to_text(), "decode-0 on GPU 0,1,2,3 of node b: one NVLink island"));
}

TEST(ForeignPlan, SetsNothingIfTheKeySaysSoOrGpusAreNamedByHand) {
  for (const char* const engine :
       {"{kind: vllm, gpu: true, near: false}",
        "{kind: vllm, gpu: true, env: [\"CUDA_VISIBLE_DEVICES=6,7\"]}", "{kind: vllm}"}) {
    const LaunchPlan plan = plan_on_boxes(1, std::string("model: org/m\nengine: ") + engine + "\n");
    EXPECT_EQ(near_lines(plan), "") << engine;
    EXPECT_FALSE(has(plan.to_text(), "UCX_NET_DEVICES")) << engine;
    EXPECT_FALSE(has(plan.to_json(), "gpu_why")) << engine;
  }
}

TEST(ForeignPlan, NamesNoNicsIfAnEngineOfTheModelIsOnCpus) {
  const LaunchPlan plan = plan_on_boxes(1,
                                        "model: org/m\nengine: {kind: vllm}\n"
                                        "prefill: {engine: {gpu: true}}\n");
  EXPECT_EQ(near_lines(plan),
            "prefill-0 a 0: NVLink island 0; cores 0-23,48-71 and memory of NUMA node 0\n");
  EXPECT_FALSE(has(plan.to_text(), "UCX_NET_DEVICES")) << plan.to_text();
}

TEST(ForeignPlan, SetsNothingOnAMachineThatDoesNotTell) {
  const LaunchPlan plan = plan_of("model: org/m\nengine: {kind: vllm, gpu: true}\n");
  EXPECT_EQ(near_lines(plan), "");
  EXPECT_FALSE(has(plan.to_text(), "UCX_NET_DEVICES")) << plan.to_text();
}

}  // namespace
}  // namespace pdjob::launcher
