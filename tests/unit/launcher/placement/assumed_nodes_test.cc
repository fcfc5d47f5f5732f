#include "launcher/placement/assumed_nodes.h"

#include <gtest/gtest.h>

#include "tests/support/gpu_box.h"

namespace pdjob::launcher {
namespace {

std::string errors_of(const std::string& text) {
  const auto nodes = parse_assumed_nodes("nodes.yaml", text);
  return nodes ? "" : nodes.error().message;
}

TEST(AssumedNodes, HaveWhatIsWrittenAndNamesForTheirGpus) {
  const auto nodes = parse_assumed_nodes("nodes.yaml",
                                         "nodes:\n"
                                         "  box: {cores: 64, memory: 512GiB, gpus: 2, count: 2, "
                                         "labels: {zone: a}, cluster: lab}\n"
                                         "  small: {cores: 4, memory: 1000, host: 10.0.0.7}\n");
  ASSERT_TRUE(nodes.has_value()) << nodes.error().message;
  ASSERT_EQ(nodes->size(), 3U);
  const Node& second = nodes->at(1);
  EXPECT_EQ(second.name, "box-1");
  EXPECT_EQ(second.host, "box-1");
  EXPECT_EQ(second.cores, 64U);
  EXPECT_EQ(second.memory_bytes, uint64_t{512} << 30);
  EXPECT_EQ(second.gpus, (std::vector<std::string>{"0", "1"}));
  EXPECT_EQ(second.labels.at("zone"), "a");
  EXPECT_EQ(second.cluster, "lab");
  const Node& small = nodes->at(2);
  EXPECT_EQ(small.name, "small");
  EXPECT_EQ(small.host, "10.0.0.7");
  EXPECT_EQ(small.memory_bytes, 1000U);
  EXPECT_EQ(small.cluster, "") << "the job decides";
}

TEST(AssumedNodes, MemoryIsANumberOfBytesWithOrWithoutAUnit) {
  const auto memory = [](const std::string& written) -> uint64_t {
    const auto nodes =
        parse_assumed_nodes("n", "nodes: {a: {cores: 1, memory: " + written + "}}\n");
    return nodes ? nodes->front().memory_bytes : 0;
  };
  EXPECT_EQ(memory("64 GiB"), uint64_t{64} << 30);
  EXPECT_EQ(memory("2TB"), 2'000'000'000'000U);
  EXPECT_EQ(memory("1048576"), 1048576U);
  for (const char* const wrong : {"64G", "GiB", "0", "-1", "1.5GiB", "99999999999TiB"}) {
    EXPECT_EQ(memory(wrong), 0U) << wrong;
  }
}

TEST(AssumedNodes, AllThatIsMissingIsToldAtOnce) {
  const std::string errors = errors_of("nodes:\n  a: {gpus: 8}\n  b: {cores: 1, memroy: 1}\n");
  EXPECT_NE(errors.find("nodes.a.cores: is missing"), std::string::npos) << errors;
  EXPECT_NE(errors.find("nodes.a.memory: is missing"), std::string::npos) << errors;
  EXPECT_NE(errors.find("unknown key, did you mean memory?"), std::string::npos) << errors;
  EXPECT_NE(errors_of("{}").find("nodes: is missing"), std::string::npos);
  EXPECT_NE(errors_of("nodes: {a: {cores: 1, memory: 1, count: 4096}, b: {cores: 1, memory: 1}}")
                .find("one node too many"),
            std::string::npos);
}

TEST(AssumedNodes, ThoseOfARunningJobAreReadAsTheyAreWritten) {
  std::vector<Node> nodes = {
      {.name = "lab/first",
       .host = "10.0.0.1",
       .cores = 8,
       .memory_bytes = 1 << 20,
       .gpus = {"0", "1"},
       .cluster = "lab",
       .labels = {{"for", "prefill: \"x\""}}},
      {.name = "local", .host = "10.0.0.9", .cores = 2, .routers_only = true}};
  const auto read = parse_assumed_nodes("it", assumed_nodes_text(nodes));
  ASSERT_TRUE(read.has_value()) << read.error().message;
  nodes.pop_back();  // It runs no workers.
  EXPECT_EQ(*read, nodes);
}

TEST(AssumedNodes, HaveTheIslandsNumaNodesAndNicsThatAreWritten) {
  const auto nodes = parse_assumed_nodes("nodes.yaml",
                                         "nodes:\n"
                                         "  box:\n"
                                         "    cores: 8\n"
                                         "    memory: 1GiB\n"
                                         "    gpus: 4\n"
                                         "    islands: [0-1, \"2\"]\n"
                                         "    numa:\n"
                                         "      0: {cpus: \"0-3\", gpus: 0-1}\n"
                                         "      1: {cpus: \"4-7\", gpus: 2-3}\n"
                                         "    nics: {mlx5_0: 0-1, mlx5_1: \"2,3\"}\n");
  ASSERT_TRUE(nodes.has_value()) << nodes.error().message;
  EXPECT_EQ(nodes->front().topology,
            (NodeTopology{.gpus = {{.numa = 0, .island = 0, .nics = {"mlx5_0"}},
                                   {.numa = 0, .island = 0, .nics = {"mlx5_0"}},
                                   {.numa = 1, .island = 1, .nics = {"mlx5_1"}},
                                   {.numa = 1, .nics = {"mlx5_1"}}},
                          .numa = {{0, "0-3"}, {1, "4-7"}}}));
}

TEST(AssumedNodes, ThatSayNothingOfWhatIsNearKnowNothing) {
  const auto nodes = parse_assumed_nodes(
      "n", "nodes: {a: {cores: 1, memory: 1, gpus: 8, numa: {0: {cpus: 0-7}}}}");
  ASSERT_TRUE(nodes.has_value()) << nodes.error().message;
  EXPECT_EQ(nodes->front().topology, NodeTopology());
}

TEST(AssumedNodes, WhatIsNearIsCheckedAtItsPlace) {
  const auto errors = [](const std::string& keys) {
    return errors_of("nodes: {a: {cores: 1, memory: 1, gpus: 4, " + keys + "}}");
  };
  EXPECT_NE(errors("islands: [2-4]").find("nodes.a.islands: must be places of its GPUs"),
            std::string::npos);
  EXPECT_NE(errors("islands: [x]").find("got \"x\""), std::string::npos);
  EXPECT_NE(errors("numa: {x: {cpus: 0-1}}").find("must have a number of a NUMA node"),
            std::string::npos);
  EXPECT_NE(errors("numa: {0: {cpus: 1-0}}").find("must be numbers of CPUs"), std::string::npos);
  EXPECT_NE(errors("numa: {0: {cpus: 0-1, gpus: 4}}").find("numa.0.gpus: must be places"),
            std::string::npos);
  EXPECT_NE(errors("nics: {mlx5_0: 9}").find("nics.mlx5_0: must be places"), std::string::npos);
  EXPECT_NE(errors("nics: {\"a b\": 0}").find("is no name of an RDMA device"), std::string::npos);
}

TEST(AssumedNodes, AGpusMemoryMayBeAllThatIsKnownOfIt) {
  const auto nodes =
      parse_assumed_nodes("n", "nodes: {a: {cores: 1, memory: 1, gpus: 2, gpu_memory: 80GiB}}");
  ASSERT_TRUE(nodes.has_value()) << nodes.error().message;
  EXPECT_EQ(nodes->front().topology, NodeTopology{.gpu_memory_bytes = uint64_t{80} << 30});
  EXPECT_NE(errors_of("nodes: {a: {cores: 1, memory: 1, gpus: 2, gpu_memory: much}}")
                .find("nodes.a.gpu_memory: must be a number of bytes"),
            std::string::npos);
}

TEST(AssumedNodes, OfABoxAreReadAsTheyAreWritten) {
  std::vector<Node> nodes = {gpu_box("a")};
  nodes[0].topology.gpu_memory_bytes = uint64_t{80} << 30;
  const auto read = parse_assumed_nodes("it", assumed_nodes_text(nodes));
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(*read, nodes) << assumed_nodes_text(nodes);
}

}  // namespace
}  // namespace pdjob::launcher
