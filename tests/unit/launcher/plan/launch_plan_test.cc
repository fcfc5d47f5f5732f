#include "launcher/plan/launch_plan.h"

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

JobConfig job(const std::string& yaml) {
  auto config = parse_job_config(
      "job.yaml", "name: demo\nserved_name: tiny\nengine: {kind: fake}\n" + yaml, {.home = "/h"});
  PDJOB_CHECK(config.has_value(), config.error().message);
  return std::move(*config);
}

const std::vector<Node> kOneNode = {{.name = "local",
                                     .host = "127.0.0.1",
                                     .cores = 8,
                                     .memory_bytes = 1 << 30,
                                     .overcommits = true}};

TEST(JobConfig, APrefillWorkerThatDrainsKeepsItsKvForItsLease) {
  const JobConfig config = job("launcher: {stop_timeout: 5s}\nkvtransfer: {lease: 60s}\n");
  EXPECT_EQ(drain_timeout(config, net::Role::kPrefill), std::chrono::seconds(65));
  EXPECT_EQ(drain_timeout(config, net::Role::kDecode), std::chrono::seconds(5));
}

TEST(LaunchPlan, TextShowsEveryProcessAndWhetherItIsInvariant) {
  const auto plan =
      make_plan(job("prefill: {workers: 2}\ndecode:\n  workers: 1\n  engine: {threads: 3}\n"),
                kOneNode, {{}});
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->to_text(),
            "job demo, model tiny\n"
            "NAME       ROLE     NODE   CORES  ADDRESS\n"
            "router-0   router   local  -      127.0.0.1:8000\n"
            "prefill-0  prefill  local  1      127.0.0.1:any\n"
            "prefill-1  prefill  local  1      127.0.0.1:any\n"
            "decode-0   decode   local  3      127.0.0.1:any\n"
            "invariant: yes (the fake engine computes each sequence alone)\n");
}

TEST(LaunchPlan, SaysWhichDecodeWorkersComputePromptsBecauseTheyShareTheirCores) {
  const std::string line =
      "prompts are computed by decode-0: prefill and decode share the same cores there "
      "(router.decode_prefills: auto)\n";
  const auto text = [](const std::string& yaml, uint32_t cores) {
    std::vector<Node> nodes = kOneNode;
    nodes.front().cores = cores;
    auto config = job("prefill: {workers: 1}\ndecode: {workers: 1}\n" + yaml);
    for (ModelConfig& model : config.models) {
      model.prefill_engine.kind = model.decode_engine.kind = engine::EngineKind::kLlama;
    }
    const auto plan = make_plan(config, nodes, {{}});
    PDJOB_CHECK(plan.has_value(), plan.error().message);
    return plan->to_text();
  };
  EXPECT_NE(text("", 2).find(line), std::string::npos) << text("", 2);
  EXPECT_EQ(text("", 3).find(line), std::string::npos) << "a core is left";
  EXPECT_EQ(text("router: {decode_prefills: never}\n", 2).find(line), std::string::npos);
}

TEST(LaunchPlan, AddressesOfIpv6HaveBracketsInItsText) {
  std::vector<Node> nodes = kOneNode;
  nodes.front().host = "fd00::7";
  const auto plan =
      make_plan(job("router: {listen: \"[::1]:8000\"}\nprefill: {workers: 0}\n"), nodes, {{}});
  ASSERT_TRUE(plan.has_value());
  EXPECT_NE(plan->to_text().find(" [::1]:8000\n"), std::string::npos) << plan->to_text();
  EXPECT_NE(plan->to_text().find(" [fd00::7]:any\n"), std::string::npos) << plan->to_text();
}

TEST(LaunchPlan, JsonHoldsTheSameFacts) {
  const auto plan = make_plan(job("prefill: {workers: 0}\n"), kOneNode, {{}});
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(
      plan->to_json(),
      R"({"job":"demo","model":"tiny","invariant":true,"invariant_because":"the fake engine computes each sequence alone",)"
      R"("nodes":[{"name":"local","cores":8,"cores_bound":"","memory_bytes":1073741824,"memory_bound":""}],)"
      R"("processes":[{"name":"router-0","role":"router","node":"local","cluster":"local","why":"routers run here","cores":0,"host":"127.0.0.1","port":8000},)"
      R"({"name":"decode-0","role":"both","node":"local","cluster":"local","why":"the only node that fits","cores":1,"host":"127.0.0.1","port":0}],)"
      R"("clients":{"listen":"127.0.0.1:8000","tls":false,"tenants":[]},)"
      R"("scaling":{"groups":[],"workers_max":0,"gpus_max":0,"zero_after_seconds":0},"warnings":[]})"
      "\n");
}

constexpr const char* kTenant =
    "key_sha256: 1311f8fc80a7ea28d78dd7723f09c44c1754cd35160ca8e7133ae3d7f636a19a";

TEST(LaunchPlan, ShowsWhoMayAskAndWarnsOfARouterThatIsOpenToOthers) {
  const auto planned = [](const std::string& router) {
    const auto plan = make_plan(job("router: {" + router + "}\n"), kOneNode, {{}});
    PDJOB_CHECK(plan.has_value(), plan.error().message);
    return *plan;
  };
  const LaunchPlan open = planned("listen: '0.0.0.0:8000'");
  EXPECT_NE(open.to_text().find("clients: http, no tenants: whoever reaches it may ask\n"),
            std::string::npos)
      << open.to_text();
  ASSERT_EQ(open.warnings.size(), 2U);
  EXPECT_TRUE(open.warnings[0].starts_with("router.listen is 0.0.0.0:8000, and there are no ten"));
  EXPECT_TRUE(open.warnings[1].starts_with("router.listen is 0.0.0.0:8000 without TLS"));
  const std::string tenants = std::string(", tenants: {a: {") + kTenant + "}}";
  EXPECT_EQ(planned("listen: '10.0.0.1:80'" + tenants).warnings.size(), 1U) << "only TLS lacks";
  const LaunchPlan local = planned("listen: '127.0.0.1:0'" + tenants);
  EXPECT_TRUE(local.warnings.empty());
  EXPECT_NE(local.to_text().find("clients: http, 1 tenant (a)\n"), std::string::npos);
  EXPECT_NE(local.to_json().find(R"("tls":false,"tenants":["a"]})"), std::string::npos);
  EXPECT_EQ(planned("listen: 'localhost:0'").to_text().find("clients:"), std::string::npos);
}

TEST(LaunchPlan, ShowsHowFarAGroupMayGrowAndWhetherItHasRoom) {
  const JobConfig config =
      job("prefill: {workers: 1, scaling: {max: 2, ttft: 500ms}}\n"
          "decode: {workers: 1, scaling: {max: 20, itl: 50ms}}\n"
          "scaling: {workers_max: 10, gpus_max: 3, zero_after: 10min}\n");
  const auto plan = make_plan(config, kOneNode, {{}});
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  EXPECT_NE(plan->to_text().find(
                "scaling: prefill has 1 to 2 workers, ttft 500ms\n"
                "scaling: decode has 1 to 20 workers, itl 50ms\n"
                "scaling: the job takes at most 10 workers, 3 GPUs\n"
                "scaling: without requests for 10min, all workers end\n"
                "warning: decode may grow to 20 workers, and these nodes have room for 7\n"),
            std::string::npos)
      << plan->to_text();
  EXPECT_NE(plan->to_json().find(R"("group":"decode","min":1,"max":20,)"), std::string::npos);
}

// Two machines of one cluster, and the launcher's own, which runs only routers.
std::vector<Node> three_nodes() {
  return {{.name = "here", .host = "10.0.0.9", .cores = 64, .routers_only = true},
          {.name = "a", .host = "10.0.0.1", .cores = 4, .memory_bytes = 1, .cluster = "east"},
          {.name = "b", .host = "10.0.0.2", .cores = 2, .memory_bytes = 1, .cluster = "east"}};
}

TEST(LaunchPlan, ABatchIsShown) {
  JobConfig config = job("mode: batch\nbatch: {in: [a.jsonl, b.jsonl], out: results}\n");
  const auto plan = make_plan(config, {{.name = "a", .cores = 4}}, {{}});
  ASSERT_TRUE(plan.has_value());
  EXPECT_NE(plan->to_text().find("batch: the rows of a.jsonl b.jsonl, results in results\n"),
            std::string::npos)
      << plan->to_text();
  EXPECT_NE(plan->to_json().find(R"("batch":{"in":["a.jsonl","b.jsonl"],"out":"results"})"),
            std::string::npos)
      << plan->to_json();
}

TEST(LaunchPlan, WorkersAreSpreadOverTheNodes) {
  const std::vector<Node> nodes = three_nodes();
  const auto plan = make_plan(job("prefill: {workers: 3}\ndecode: {workers: 3}\n"), nodes, {{}});
  ASSERT_TRUE(plan.has_value());
  std::string placed;
  for (const PlanRow& row : plan->rows) {
    placed += row.node;
  }
  EXPECT_EQ(placed, "hereabaaba");
  EXPECT_TRUE(plan->warnings.empty());
}

TEST(LaunchPlan, SeveralNodesAreShownWithTheReason) {
  const auto plan =
      make_plan(job("prefill: {workers: 1, cluster: east}\ndecode: {workers: 6, min_workers: 2}\n"
                    "clusters: {east: {listen: \"10.0.0.9:7700\", key_file: key}}\n"),
                three_nodes(), {{}});
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  EXPECT_EQ(plan->to_text(),
            "job demo, model tiny\n"
            "NAME       ROLE     CLUSTER  NODE  CORES  ADDRESS         WHY\n"
            "router-0   router   local    here  -      127.0.0.1:8000  routers run here\n"
            "prefill-0  prefill  east     a     1      10.0.0.1:any    most free cores\n"
            "decode-0   decode   east     a     1      10.0.0.1:any    KV stays on the node\n"
            "decode-1   decode   east     b     1      10.0.0.2:any    fewest of its group\n"
            "decode-2   decode   east     a     1      10.0.0.1:any    most free cores\n"
            "decode-3   decode   east     b     1      10.0.0.2:any    fewest of its group\n"
            "decode-4   decode   east     a     1      10.0.0.1:any    the only node that fits\n"
            "decode-5   decode   -        -     1      -               waits for a node\n"
            "invariant: yes (the fake engine computes each sequence alone)\n"
            "warning: decode starts with 5 of 6 workers: the others wait for nodes that join\n");
  EXPECT_NE(plan->to_json().find(R"({"name":"decode-0","role":"decode","node":"a",)"
                                 R"("cluster":"east","why":"KV stays on the node","cores":1,)"),
            std::string::npos)
      << plan->to_json();
}

TEST(LaunchPlan, AGroupWithoutAPlaceIsRefusedWithWhatIsShort) {
  const auto plan =
      make_plan(job("decode: {workers: 2, labels: {gpu: h100}}\n"), three_nodes(), {{}});
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(plan.error().message,
            "the job does not fit: decode has places for 0 of 2 workers, each with 1 core: node a "
            "comes nearest: it has no label gpu: h100");
  EXPECT_EQ(make_plan(job(""), {}, {{}}).error().message, "the job does not fit: there is no node");
}

TEST(LaunchPlan, AWorkerNeedsTheModelsFileAndItsKv) {
  constexpr uint64_t kMiB = 1 << 20;
  JobConfig config = job("prefill: {memory_mib: 7}\n");
  ModelConfig& model = config.models.front();
  model.decode_engine.kind = engine::EngineKind::kLlama;
  model.decode_engine.sequences = 4;
  model.decode_engine.tokens_per_sequence = 1024;
  const std::vector<ModelSize> sizes = {{.file_bytes = 10 * kMiB, .kv_bytes_per_token = 1024}};
  std::vector<Node> nodes = three_nodes();
  nodes[1].memory_bytes = 21 * kMiB;  // The file once, 7 MiB for prefill, 4 MiB for decode.
  EXPECT_TRUE(make_plan(config, nodes, sizes).has_value());
  nodes[1].memory_bytes -= 1;
  EXPECT_EQ(make_plan(config, nodes, sizes).error().message,
            "the job does not fit: decode has places for 0 of 1 workers, each with 1 core and 14 "
            "MiB of memory: node a comes nearest: it lacks 1 MiB of memory");
  model.decode_engine.gpu = true;  // Its KV is in the GPU's memory.
  nodes[1].gpus = {"0"};
  EXPECT_TRUE(make_plan(config, nodes, sizes).has_value());
}

TEST(LaunchPlan, AWorkerThatUpdatesItsWeightsNeedsThemAndItsKvTwice) {
  constexpr uint64_t kMiB = 1 << 20;
  JobConfig config = job("");
  config.mode = Mode::kRollout;
  for (ModelConfig& model : config.models) {
    model.decode_engine.kind = model.prefill_engine.kind = engine::EngineKind::kLlama;
    model.decode_engine.sequences = model.prefill_engine.sequences = 4;
    model.decode_engine.tokens_per_sequence = model.prefill_engine.tokens_per_sequence = 1024;
  }
  const std::vector<ModelSize> sizes = {{.file_bytes = 10 * kMiB, .kv_bytes_per_token = 1024}};
  std::vector<Node> nodes = three_nodes();
  nodes[1].memory_bytes = 56 * kMiB;
  EXPECT_TRUE(make_plan(config, nodes, sizes).has_value());
  nodes[1].memory_bytes -= 1;
  EXPECT_FALSE(make_plan(config, nodes, sizes).has_value());
}

TEST(LaunchPlan, TheLaunchersMachineTakesMoreThanItHasWithAWarning) {
  JobConfig config = job("prefill: {memory_mib: 700}\ndecode: {memory_mib: 700}\n");
  const auto plan = make_plan(config, kOneNode, {{.file_bytes = 100 << 20}});
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->warnings, std::vector<std::string>{"node local lacks 476 MiB of memory: expect "
                                                     "processes to be killed"});
}

TEST(LaunchPlan, OvercommitmentIsAWarning) {
  const auto plan = make_plan(job("decode:\n  engine: {threads: 8}\n"), kOneNode, {{}});
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->warnings,
            std::vector<std::string>{
                "node local has 8 cores for 9 engine threads: expect them to slow each other"});
}

std::vector<Node> one_node_of_a_container() {
  std::vector<Node> nodes = kOneNode;
  nodes.front().cores = 1;
  nodes.front().cores_bound = "CPU quota of cgroup /x";
  nodes.front().memory_bound = "memory.max of cgroup /x";
  return nodes;
}

TEST(LaunchPlan, ItsTextSaysWhatBoundsANode) {
  const auto plan = make_plan(job("prefill: {workers: 0}\n"), one_node_of_a_container(), {{}});
  ASSERT_TRUE(plan.has_value());
  EXPECT_TRUE(
      plan->to_text().ends_with("alone)\nnode local: 1 core (CPU quota of cgroup /x), 1.0 "
                                "GiB of memory (memory.max of cgroup /x)\n"))
      << plan->to_text();
  EXPECT_NE(plan->to_json().find(R"("nodes":[{"name":"local","cores":1,)"
                                 R"("cores_bound":"CPU quota of cgroup /x",)"),
            std::string::npos);
}

TEST(LaunchPlan, NodesWithoutAProcessAreNoneOfItsNodes) {
  const auto plan = make_plan(job("prefill: {workers: 0}\n"), three_nodes(), {{}});
  ASSERT_TRUE(plan.has_value());
  ASSERT_EQ(plan->nodes.size(), 2U);
  EXPECT_EQ(plan->nodes[0].name, "here");
  EXPECT_EQ(plan->nodes[1].name, "a");
}

TEST(LaunchPlan, AWorkerWithMoreThreadsThanItsNodeHasCoresIsAWarning) {
  const auto plan = make_plan(job("prefill: {workers: 0}\ndecode: {engine: {threads: 2}}\n"),
                              one_node_of_a_container(), {{}});
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->warnings,
            (std::vector<std::string>{
                "a worker of decode computes with 2 threads, and node local has 1 core (CPU quota "
                "of cgroup /x): the threads wait for each other, so lower engine.threads",
                "node local has 1 core (CPU quota of cgroup /x) for 2 engine threads: expect them "
                "to slow each other"}));
}

TEST(LaunchPlan, ARefusalSaysWhatBoundsTheNearestNode) {
  const auto plan = make_plan(job("prefill: {workers: 0}\n"), one_node_of_a_container(),
                              {{.file_bytes = 2ULL << 30}});
  ASSERT_FALSE(plan.has_value());
  EXPECT_TRUE(plan.error().message.ends_with(
      "node local comes nearest: it lacks 1024 MiB of memory, has 1.0 GiB of memory (memory.max of "
      "cgroup /x)"))
      << plan.error().message;
}

TEST(LaunchPlan, APortOfKvEventsIsNoneOfItsWorkers) {
  const auto plan = make_plan(
      job("router: {prefill_policy: prefix_aware, kv_events: {port: 5557}}\n"), kOneNode, {{}});
  ASSERT_TRUE(plan.has_value());
  ASSERT_EQ(plan->warnings.size(), 1U);
  EXPECT_NE(plan->warnings[0].find("router.kv_events.port"), std::string::npos);
}

TEST(LaunchPlan, AModelLargerThanEveryNodeIsNotPlaced) {
  const auto plan = make_plan(job(""), kOneNode, {{.file_bytes = 2ULL << 30}});
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().message,
            "the job does not fit: prefill has places for 0 of 1 workers, each with 1 core and "
            "2048 MiB of memory: node local comes nearest: it lacks 1024 MiB of memory; decode has "
            "places for 0 of 1 workers, each with 1 core and 2048 MiB of memory: node local comes "
            "nearest: it lacks 1024 MiB of memory");
}

TEST(LaunchPlan, InvarianceFollowsTheMeasuredRules) {
  JobConfig config = job("");
  ModelConfig& model = config.models.front();
  model.prefill_engine.kind = model.decode_engine.kind = engine::EngineKind::kLlama;
  const auto invariant = [&] {
    return make_plan(config, kOneNode, {{}})->models.front().invariant;
  };
  model.prefill_engine.kv_type = model.decode_engine.kv_type = engine::KvType::kQ8_0;
  model.decode_engine.threads = 4;
  EXPECT_TRUE(invariant());
  model.prefill_engine.kv_type = model.decode_engine.kv_type = engine::KvType::kF16;
  EXPECT_FALSE(invariant());
  model.decode_engine.threads = model.prefill_engine.threads = 1;
  model.prefill.prefix_cache = model.decode.prefix_cache = false;
  EXPECT_FALSE(invariant());  // Its last chunk may be short.
  model.prefill_engine.kv_type = model.decode_engine.kv_type = engine::KvType::kQ8_0;
  EXPECT_TRUE(invariant());
  model.prefill_engine.gpu = true;
  EXPECT_FALSE(invariant());
}

const char* const kTwoModels =
    "models:\n"
    "  small: {decode: {workers: 2}}\n"
    "  large: {served_name: org/Large-7B, prefill: {workers: 0}, engine: {threads: 3}}\n";

JobConfig two_models(const std::string& more = "") {
  auto config = parse_job_config(
      "job.yaml", std::string("name: demo\nengine: {kind: fake}\n") + kTwoModels + more,
      {.home = "/h"});
  PDJOB_CHECK(config.has_value(), config.error().message);
  return std::move(*config);
}

TEST(LaunchPlan, SeveralModelsHaveWorkersOfTheirOwn) {
  JobConfig config = two_models();
  config.models[1].decode_engine.kind = engine::EngineKind::kLlama;
  const auto plan = make_plan(config, kOneNode, {{}, {}});
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->to_text(),
            "job demo, models small, org/Large-7B\n"
            "NAME             MODEL         ROLE     NODE   CORES  ADDRESS\n"
            "router-0         -             router   local  -      127.0.0.1:8000\n"
            "small-prefill-0  small         prefill  local  1      127.0.0.1:any\n"
            "small-decode-0   small         decode   local  1      127.0.0.1:any\n"
            "small-decode-1   small         decode   local  1      127.0.0.1:any\n"
            "large-decode-0   org/Large-7B  both     local  3      127.0.0.1:any\n"
            "small is invariant: yes (the fake engine computes each sequence alone)\n"
            "org/Large-7B is invariant: yes (q8_0 KV)\n");
}

TEST(LaunchPlan, SaysWhatIsPromisedOfTokensWhereAGpuComputes) {
  JobConfig config = two_models();
  config.models[1].decode_engine.kind = engine::EngineKind::kLlama;
  config.models[1].decode_engine.gpu = true;
  const auto plan = make_plan(config, kOneNode, {{}, {}});
  ASSERT_TRUE(plan.has_value());
  EXPECT_NE(plan->to_text().find("org/Large-7B is invariant: no (a GPU computes: a request alone "
                                 "gives equal tokens, but a batch takes other kernels)\n"),
            std::string::npos)
      << plan->to_text();
}

TEST(LaunchPlan, JsonSaysWhichWorkerIsOfWhichOfSeveralModels) {
  const auto plan = make_plan(two_models(), kOneNode, {{}, {}});
  ASSERT_TRUE(plan.has_value());
  const std::string json = plan->to_json();
  EXPECT_EQ(json.find(R"({"job":"demo","models":[{"name":"small","invariant":true,)"
                      R"("invariant_because":"the fake engine computes each sequence alone"},)"
                      R"({"name":"org/Large-7B",)"),
            0U)
      << json;
  EXPECT_NE(json.find(R"({"name":"router-0","role":"router","node")"), std::string::npos) << json;
  EXPECT_NE(json.find(R"({"name":"large-decode-0","role":"both","model":"org/Large-7B",)"),
            std::string::npos)
      << json;
}

TEST(LaunchPlan, OneOfSeveralModelsThatIsTooLargeIsNamed) {
  const auto plan =
      make_plan(two_models(), kOneNode, {{.file_bytes = 1}, {.file_bytes = 2ULL << 30}});
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().message,
            "the job does not fit: large-decode has places for 0 of 1 workers, each with 3 cores "
            "and 2048 MiB of memory: node local comes nearest: it lacks 1025 MiB of memory");
}

TEST(LaunchPlan, ModelsMustFitTogetherEachFileOnce) {
  JobConfig config = two_models();
  config.models[0].decode_engine.model_path = config.models[1].decode_engine.model_path = "/same";
  EXPECT_TRUE(make_plan(config, kOneNode, {{.file_bytes = 600 << 20}, {.file_bytes = 600 << 20}})
                  .has_value());
  config.models[0].decode_engine.model_path = "/other";
  const auto plan =
      make_plan(config, kOneNode, {{.file_bytes = 600 << 20}, {.file_bytes = 600 << 20}});
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().message.substr(0, 57),
            "the job does not fit: large-decode has places for 0 of 1 ")
      << plan.error().message;
}

// --- stores

const std::vector<Node> kTwoNodes = {
    {.name = "a", .host = "10.0.0.1", .cores = 1, .memory_bytes = 1 << 30},
    {.name = "b", .host = "10.0.0.2", .cores = 1, .memory_bytes = 1 << 30},
    {.name = "c", .host = "10.0.0.3", .cores = 1, .memory_bytes = 1 << 30}};

TEST(LaunchPlan, EachNodeWithWorkersHasAStore) {
  const auto plan =
      make_plan(job("kv_store: {memory: 1048576}\nprefill: {workers: 1}\ndecode: {workers: 1}\n"),
                kTwoNodes, {{}});
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  EXPECT_EQ(
      plan->to_text(),
      "job demo, model tiny\n"
      "NAME       ROLE     NODE  CORES  ADDRESS         WHY\n"
      "router-0   router   a     -      127.0.0.1:8000  routers run here\n"
      "store-0    store    a     -      10.0.0.1:any    keeps KV for the workers of this node\n"
      "store-1    store    b     -      10.0.0.2:any    keeps KV for the workers of this node\n"
      "prefill-0  prefill  a     1      10.0.0.1:any    first by name\n"
      "decode-0   decode   b     1      10.0.0.2:any    first by name\n"
      "invariant: yes (the fake engine computes each sequence alone)\n");
  EXPECT_NE(
      plan->to_json().find(
          R"({"name":"store-1","role":"store","node":"b","cluster":"local",)"
          R"("why":"keeps KV for the workers of this node","cores":0,"host":"10.0.0.2","port":0})"),
      std::string::npos)
      << plan->to_json();
}

TEST(LaunchPlan, WorkersGetTheMemoryThatStoresLeave) {
  const std::string groups = "prefill: {workers: 0}\ndecode: {workers: 3, memory_mib: 600}\n";
  const auto with = make_plan(job("kv_store: {memory: 536870912}\n" + groups), kTwoNodes, {{}});
  ASSERT_FALSE(with.has_value());
  EXPECT_NE(with.error().message.find("MiB of memory"), std::string::npos) << with.error().message;
  EXPECT_TRUE(make_plan(job("kv_store: {memory: 268435456}\n" + groups), kTwoNodes, {{}}));
}

TEST(LaunchPlan, ANodeThatIsSmallerThanAStoreHasNone) {
  const auto plan = make_plan(job("kv_store: {memory: 2147483648}\nprefill: {workers: 0}\n"),
                              {kTwoNodes.front()}, {{}});
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  ASSERT_EQ(plan->rows.size(), 2U);
  EXPECT_EQ(plan->warnings, std::vector<std::string>{
                                "node a gets no store: its memory is less than kv_store.memory"});
  const auto here =
      make_plan(job("kv_store: {memory: 2147483648}\nprefill: {workers: 0}\n"), kOneNode, {{}});
  ASSERT_TRUE(here.has_value()) << here.error().message;
  EXPECT_EQ(here->rows[1].name, "store-0");
  EXPECT_EQ(here->warnings,
            std::vector<std::string>{
                "node local lacks 1024 MiB of memory: expect processes to be killed"});
}

}  // namespace
}  // namespace pdjob::launcher
