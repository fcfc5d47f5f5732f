#include "launcher/placement/near_devices.h"

#include <gtest/gtest.h>

#include "tests/support/gpu_box.h"

namespace pdjob::launcher {
namespace {

NearDevices near_gpus(const Node& node, const std::vector<std::string>& gpus, uint32_t cores,
                      Near near = Near::kAll) {
  return near_devices({node}, {.node = node.name, .gpus = gpus}, {.cores = cores, .near = near});
}

TEST(NearDevices, OfAnIslandAreItsNicsAndTheCoresAndMemoryOfItsNumaNode) {
  const NearDevices near = near_gpus(gpu_box("a"), {"4", "5"}, 8);
  EXPECT_EQ(near, (NearDevices{.gpus = "one NVLink island",
                               .nics = {"mlx5_4", "mlx5_5"},
                               .cpus = "24-47,72-95",
                               .memory_node = "1"}));
  EXPECT_EQ(near.text(),
            "one NVLink island; nearest NICs mlx5_4,mlx5_5; cores 24-47,72-95 and memory of NUMA "
            "node 1");
}

TEST(NearDevices, OfOneGpuNameItsIsland) {
  EXPECT_EQ(near_gpus(gpu_box("a"), {"7"}, 1).text(),
            "NVLink island 1; nearest NIC mlx5_7; cores 24-47,72-95 and memory of NUMA node 1");
}

TEST(NearDevices, OfTheWholeMachineAreAllNicsAndNothingIsBound) {
  const NearDevices near = near_gpus(gpu_box("a"), gpu_box("a").gpus, 1);
  EXPECT_EQ(near.gpus, "2 NVLink islands");
  EXPECT_EQ(near.nics.size(), 8U);
  EXPECT_EQ(near.cpus, "");
  EXPECT_EQ(near.memory_node, "");
}

TEST(NearDevices, CoresAreLeftAloneIfThereWouldBeTooFew) {
  EXPECT_EQ(near_gpus(gpu_box("a"), {"0"}, 48).cpus, "0-23,48-71");
  EXPECT_EQ(near_gpus(gpu_box("a"), {"0"}, 49).cpus, "");
  EXPECT_EQ(near_gpus(gpu_box("a"), {"0"}, 49).memory_node, "");
}

TEST(NearDevices, OfTwoOfFourNumaNodesAreTheCoresOfBothAndTheMemoryOfAny) {
  Node node = gpu_box("a");
  node.topology.numa = {{0, "0-7"}, {1, "8-15"}, {2, "16-23"}, {3, "24-31"}};
  const NearDevices near = near_gpus(node, {"0", "4"}, 1);
  EXPECT_EQ(near.cpus, "0-15");
  EXPECT_EQ(near.memory_node, "");
}

TEST(NearDevices, AreUnknownWithoutFacts) {
  Node node = gpu_box("a");
  EXPECT_EQ(near_gpus(node, {}, 1), NearDevices()) << "a worker without a GPU";
  EXPECT_EQ(near_gpus(node, {"0", "9"}, 1), NearDevices()) << "a GPU that it does not have";
  node.topology.gpus[0] = {};
  EXPECT_EQ(near_gpus(node, {"0"}, 1), NearDevices());
  EXPECT_EQ(near_gpus(node, {"0", "1"}, 1), (NearDevices{.nics = {"mlx5_1"}}));
  node.topology = {};
  EXPECT_EQ(near_gpus(node, {"0"}, 1), NearDevices());
  EXPECT_EQ(NearDevices().text(), "");
}

TEST(NearDevices, AMachineWithOneNumaNodeBindsNothing) {
  Node node = gpu_box("a");
  node.topology.numa = {{0, "0-95"}};
  EXPECT_EQ(near_gpus(node, {"0"}, 1).cpus, "");
}

TEST(NearDevices, CoresThatAreNotOursBindNothing) {
  Node node = gpu_box("a");
  node.topology.numa = {{0, "0-23"}};  // The launcher may use no other.
  EXPECT_EQ(near_gpus(node, {"0"}, 1).cpus, "");
  EXPECT_EQ(near_gpus(node, {"4"}, 1).cpus, "");
}

TEST(NearDevices, AreThoseThatTheWorkerWants) {
  EXPECT_EQ(near_gpus(gpu_box("a"), {"0"}, 1, Near::kNothing), NearDevices());
  const NearDevices cores = near_gpus(gpu_box("a"), {"0"}, 1, Near::kCores);
  EXPECT_TRUE(cores.nics.empty());
  EXPECT_EQ(cores.cpus, "0-23,48-71");
}

TEST(NearDevices, HaveNoNicsIfANodeWithGpusHasNone) {
  std::vector<Node> nodes = {gpu_box("a"), gpu_box("b"), {.name = "routers"}};
  const PlacePart part{.node = "a", .gpus = {"0"}};
  EXPECT_FALSE(near_devices(nodes, part, {}).nics.empty());
  nodes[1].topology = {};
  EXPECT_TRUE(near_devices(nodes, part, {}).nics.empty());
  EXPECT_FALSE(near_devices(nodes, part, {}).cpus.empty());
  nodes[1].gpus.clear();
  EXPECT_FALSE(near_devices(nodes, part, {}).nics.empty());
  EXPECT_EQ(near_devices({}, part, {}), NearDevices()) << "the node is lost";
}

}  // namespace
}  // namespace pdjob::launcher
