#include "launcher/placement/placement.h"

#include <gtest/gtest.h>

#include "tests/support/gpu_box.h"

namespace pdjob::launcher {
namespace {

using Words = std::vector<std::string>;

constexpr uint64_t kGiB = 1ULL << 30;

// A node of a cluster that promises only what it has.
Node node(const std::string& name, uint32_t cores, const Words& gpus = {}) {
  return {.name = name,
          .host = "10.0.0.1",
          .cores = cores,
          .memory_bytes = 8 * kGiB,
          .gpus = gpus,
          .cluster = "east",
          .labels = {}};
}

Node local(uint32_t cores, const Words& gpus = {}) {
  Node node{.name = "local", .host = "127.0.0.1", .cores = cores, .memory_bytes = 8 * kGiB};
  node.gpus = gpus;
  node.overcommits = true;
  return node;
}

Demand prefill(uint32_t cores = 1) { return {.cores = cores, .role = "prefill", .model = "m"}; }
Demand decode(uint32_t cores = 1) { return {.cores = cores, .role = "decode", .model = "m"}; }

// "node: why"
std::string taken(Placement& placement, const Demand& demand) {
  const auto choice = placement.take(demand);
  return choice ? choice->place.node + ": " + to_string(choice->why) : "none";
}

TEST(Placement, AGroupIsSpreadAndEqualNodesAreTakenByName) {
  Placement placement({node("b", 4), node("a", 4), node("c", 6)});
  EXPECT_EQ(taken(placement, decode()), "c: most free cores");
  EXPECT_EQ(taken(placement, decode()), "a: first by name");
  EXPECT_EQ(taken(placement, decode()), "b: fewest of its group");
  EXPECT_EQ(taken(placement, decode()), "c: most free cores");
}

TEST(Placement, AWorkerGoesToANodeWhoseWorkerOfTheOtherRoleIsAlone) {
  Placement placement({node("a", 2), node("b", 8), node("c", 8)});
  placement.take({.node = "a", .gpus = {}}, prefill());
  placement.take({.node = "c", .gpus = {}}, prefill());
  EXPECT_EQ(taken(placement, decode()), "c: most free cores");
  EXPECT_EQ(taken(placement, decode()), "a: KV stays on the node");
  EXPECT_EQ(taken(placement, decode()), "b: fewest of its group");
}

TEST(Placement, AllPartsOfAPlaceAreTakenAndGivenBack) {
  Placement placement({node("a", 2, {"0", "1"}), node("b", 2, {"0", "1"})});
  const Demand half{.cores = 2, .gpus = 2, .role = "decode", .model = "m"};
  const Place place{.node = "a", .gpus = {"0", "1"}, .more = {{.node = "b", .gpus = {"0", "1"}}}};
  placement.take(place, half);
  EXPECT_EQ(placement.room(half, {}, 9), 0U);
  EXPECT_TRUE(place.has_part_on("b"));
  placement.release(place, half);
  EXPECT_EQ(placement.room(half, {}, 9), 2U);
}

TEST(Placement, RolesShareTheirCoresOnlyWhereNoneIsLeftAndTheyLend) {
  Placement placement({node("a", 2), node("b", 3), node("c", 4)});
  const auto lends = [](Demand demand) {
    demand.lends = true;
    return demand;
  };
  for (const char* name : {"a", "b", "c"}) {
    placement.take({.node = name, .gpus = {}}, lends(prefill()));
    placement.take({.node = name, .gpus = {}}, lends(decode()));
  }
  const auto shares = [&](const std::string& name, const Demand& demand) {
    return placement.shares_cores({.node = name, .gpus = {}}, demand);
  };
  EXPECT_TRUE(shares("a", lends(decode())));
  EXPECT_FALSE(shares("b", lends(decode()))) << "a core is free";
  EXPECT_FALSE(shares("a", decode())) << "its threads are its own";
  EXPECT_FALSE(shares("", lends(decode()))) << "it has no place";
  uint64_t changes = placement.changes();
  placement.take({.node = "b", .gpus = {}}, lends(decode()));
  EXPECT_GT(placement.changes(), std::exchange(changes, placement.changes()));
  EXPECT_TRUE(shares("b", lends(decode())));
  placement.release({.node = "a", .gpus = {}}, lends(prefill()));
  placement.take({.node = "a", .gpus = {}}, lends(decode()));
  EXPECT_FALSE(shares("a", lends(decode()))) << "decode workers alone";
  changes = placement.changes();
  placement.add(node("b", 8));
  EXPECT_GT(placement.changes(), changes);
  EXPECT_FALSE(shares("b", lends(decode()))) << "the node grew";
}

TEST(Placement, AnotherModelsWorkersAreNoCompany) {
  Placement placement({node("a", 4), node("b", 4)});
  Demand other = prefill();
  other.model = "other";
  placement.take({.node = "b", .gpus = {}}, other);
  EXPECT_EQ(taken(placement, decode()), "a: most free cores");
}

TEST(Placement, APackedGroupFillsANodeBeforeTheNext) {
  Placement placement({node("a", 2), node("b", 3)});
  Demand demand = decode();
  demand.arrange = Arrange::kPack;
  EXPECT_EQ(taken(placement, demand), "b: most free cores");
  EXPECT_EQ(taken(placement, demand), "b: beside its model");
  EXPECT_EQ(taken(placement, demand), "b: beside its model");
  EXPECT_EQ(taken(placement, demand), "a: the only node that fits");
  EXPECT_EQ(taken(placement, demand), "a: the only node that fits");
  EXPECT_EQ(taken(placement, demand), "none");
}

TEST(Placement, AModelStaysInItsClusterWhileThereIsRoom) {
  Node far = node("a", 64);
  far.cluster = "west";
  Placement placement({far, node("b", 2), node("c", 1)});
  placement.take({.node = "b", .gpus = {}}, prefill());
  EXPECT_EQ(taken(placement, decode()), "b: KV stays on the node");
  EXPECT_EQ(taken(placement, decode()), "c: its model is in this cluster");
  EXPECT_EQ(taken(placement, decode()), "a: the only node that fits");
}

TEST(Placement, AWorkerWithoutGpusLeavesThemToOthers) {
  Placement placement({node("a", 64, {"0"}), node("b", 2)});
  EXPECT_EQ(taken(placement, decode()), "b: leaves GPUs to others");
}

TEST(Placement, ANodePromisesItsCoresMemoryAndGpusOnce) {
  Placement cores({node("a", 3)});
  EXPECT_TRUE(cores.take(decode(2)));
  EXPECT_FALSE(cores.take(decode(2)));
  EXPECT_TRUE(cores.take(decode(1)));

  Placement gpus({node("a", 8, {"0", "1", "2"})});
  const Demand two{.gpus = 2};
  EXPECT_EQ(gpus.take(two)->place.gpus, (Words{"0", "1"}));
  EXPECT_FALSE(gpus.take(two));
  EXPECT_EQ(gpus.take({.gpus = 1})->place.gpus, Words{"2"});

  Placement memory({node("a", 8)});
  const Demand five{.memory_bytes = 5 * kGiB};
  EXPECT_TRUE(memory.take(five));
  EXPECT_FALSE(memory.take(five));
}

TEST(Placement, WorkersOfANodeShareTheModelsFile) {
  Placement placement({node("a", 8)});
  Demand demand{.memory_bytes = kGiB, .file = "/m.gguf", .file_bytes = 5 * kGiB};
  const Place first = placement.take(demand)->place;
  EXPECT_TRUE(placement.take(demand));
  Demand other = demand;
  other.file = "/other.gguf";
  EXPECT_FALSE(placement.take(other));
  placement.release(first, demand);
  EXPECT_FALSE(placement.take(other)) << "the second worker still maps the first file";
}

TEST(Placement, TheLaunchersMachineMayPromiseCoresAndGpusMoreThanOnce) {
  Placement placement({local(1, {"0", "1"})});
  EXPECT_TRUE(placement.take({.cores = 8, .memory_bytes = 80 * kGiB}));
  EXPECT_TRUE(placement.take({.cores = 8}));
  EXPECT_EQ(placement.take({.gpus = 1})->place.gpus, Words{"0"});
  EXPECT_EQ(placement.take({.gpus = 2})->place.gpus, (Words{"0", "1"}));
  EXPECT_FALSE(placement.take({.gpus = 3}));
  EXPECT_FALSE(placement.take({.file = "/m.gguf", .file_bytes = 9 * kGiB}));
}

TEST(Placement, OvercommitmentIsTheLastResort) {
  Placement placement({local(1), node("z", 1)});
  EXPECT_EQ(taken(placement, decode()), "local: first by name");
  EXPECT_EQ(taken(placement, decode()), "z: others are full");
  EXPECT_EQ(taken(placement, decode()), "local: the only node that fits");
  EXPECT_FALSE(placement.take(decode(), {.overcommit = false}));
}

TEST(Placement, AGroupMayAskForClustersAndLabels) {
  Node labelled = node("c", 1);
  labelled.labels = {{"disk", "nvme"}, {"rack", "7"}};
  Node west = node("b", 1);
  west.cluster = "west";
  Placement placement({node("a", 64), west, labelled});
  EXPECT_EQ(placement.take({.cores = 1, .labels = {{"disk", "nvme"}}})->place.node, "c");
  EXPECT_FALSE(placement.take({.cores = 1, .labels = {{"disk", "nvme"}}}));
  EXPECT_EQ(placement.take({.cores = 1, .clusters = {"north", "west"}})->place.node, "b");
  EXPECT_FALSE(placement.take({.clusters = {"east"}, .labels = {{"disk", "tape"}}}));
}

TEST(Placement, ANodeForRoutersGetsNoWorkers) {
  Node head = node("a", 64);
  head.routers_only = true;
  Placement placement({head});
  EXPECT_FALSE(placement.take(decode()));
  EXPECT_EQ(placement.nearest(decode()), "node a comes nearest: it is for routers only");
}

TEST(Placement, WhatIsReleasedCanBeTakenAgain) {
  Placement placement({node("a", 4, {"0", "1"})});
  const Demand demand{.cores = 2, .gpus = 2};
  const Place place = placement.take(demand)->place;
  EXPECT_FALSE(placement.take(demand));
  placement.release(place, demand);
  EXPECT_EQ(placement.take(demand)->place, place);
}

TEST(Placement, ALostNodeIsNoPlaceUntilItJoinsAgain) {
  Placement placement({node("a", 1)});
  const Place place = placement.take(decode())->place;
  placement.remove("a");
  EXPECT_FALSE(placement.has("a"));
  EXPECT_FALSE(placement.take(decode()));
  EXPECT_EQ(placement.nearest(decode()), "there is no node");
  placement.release(place, decode());
  placement.add(node("a", 1));
  EXPECT_EQ(placement.take(decode())->place, place);
}

TEST(Placement, ANodeMayComeBackWithAnotherSizeAndCluster) {
  Placement placement({node("a", 1), node("b", 8)});
  ASSERT_TRUE(placement.take_on({"a"}, prefill()));
  Node larger = node("a", 8);
  larger.cluster = "west";
  placement.add(larger);
  EXPECT_EQ(taken(placement, decode()), "a: its model is in this cluster");
  placement.remove("a");
  EXPECT_EQ(taken(placement, decode()), "b: the only node that fits");
}

TEST(Placement, APlaceOnAChosenNodeIsTakenOnlyIfThereIsRoom) {
  Placement placement({node("a", 2), node("b", 2)});
  EXPECT_TRUE(placement.take_on({"b"}, decode(2)));
  EXPECT_FALSE(placement.take_on({"b"}, decode(1)));
  EXPECT_FALSE(placement.take_on({"a"}, {.cores = 1, .clusters = {"west"}}));
  EXPECT_FALSE(placement.take_on({"c"}, decode(1)));
}

TEST(Placement, TheNearestNodeIsNamedWithWhatItLacks) {
  Node west = node("w", 64, {"0", "1"});
  west.cluster = "west";
  west.labels = {{"disk", "tape"}};
  Placement placement({node("a", 2), node("b", 8, {"0"}), west});
  EXPECT_EQ(placement.nearest({.cores = 9, .gpus = 1, .clusters = {"east"}}),
            "node b comes nearest: it lacks 1 core");
  EXPECT_EQ(
      placement.nearest({.cores = 10, .gpus = 2, .memory_bytes = 9 * kGiB, .clusters = {"east"}}),
      "node b comes nearest: it lacks 2 cores, 1 GPU and 1024 MiB of memory");
  EXPECT_EQ(placement.nearest({.clusters = {"north"}}),
            "node a comes nearest: it is of cluster east");
  EXPECT_EQ(placement.nearest({.cores = 80, .clusters = {"west"}, .labels = {{"disk", "nvme"}}}),
            "node w comes nearest: it has the label disk: tape, not nvme, lacks 16 cores");
  EXPECT_EQ(placement.nearest({.clusters = {"east"}, .labels = {{"rack", "7"}}}),
            "node a comes nearest: it has no label rack: 7");
}

Words gpus_of(Placement& placement, uint32_t gpus, Near near = Near::kAll) {
  const auto choice = placement.take({.gpus = gpus, .role = "decode", .model = "m", .near = near});
  return choice ? choice->place.gpus : Words{"none"};
}

TEST(Placement, EnginesOfAllSizesShareABoxWithoutSplittingAnIsland) {
  Placement placement({gpu_box("a")});
  EXPECT_EQ(gpus_of(placement, 1), (Words{"0"}));
  EXPECT_EQ(gpus_of(placement, 4), (Words{"4", "5", "6", "7"}));
  EXPECT_EQ(gpus_of(placement, 2), (Words{"1", "2"}));
  EXPECT_EQ(gpus_of(placement, 1), (Words{"3"}));
  EXPECT_EQ(gpus_of(placement, 1), (Words{"none"}));
}

TEST(Placement, AGpuThatIsGivenBackIsPartOfItsIslandAgain) {
  Placement placement({gpu_box("a")});
  const Demand one{.gpus = 1, .role = "decode", .model = "m"};
  const auto first = placement.take(one);
  EXPECT_EQ(gpus_of(placement, 1), (Words{"1"}));
  placement.release(first->place, one);
  EXPECT_EQ(gpus_of(placement, 1), (Words{"0"}));
  EXPECT_EQ(gpus_of(placement, 4), (Words{"4", "5", "6", "7"}));
}

TEST(Placement, AGpuThatIsLostLeavesTheOtherIslandToALargeEngine) {
  Node less = gpu_box("a");
  less.gpus.erase(less.gpus.begin() + 2);
  less.topology.gpus.erase(less.topology.gpus.begin() + 2);
  Placement placement({gpu_box("a")});
  placement.add(less);
  EXPECT_EQ(gpus_of(placement, 4), (Words{"4", "5", "6", "7"}));
  EXPECT_EQ(gpus_of(placement, 2), (Words{"0", "1"}));
  EXPECT_EQ(gpus_of(placement, 1), (Words{"3"}));
}

TEST(Placement, WhoWantsNoneOfItGetsGpusInTheirOrder) {
  Placement placement({gpu_box("a")});
  EXPECT_EQ(gpus_of(placement, 2, Near::kNothing), (Words{"0", "1"}));
  EXPECT_EQ(gpus_of(placement, 4, Near::kNothing), (Words{"2", "3", "4", "5"}));
}

TEST(Placement, ANodeWithAnIslandForAllGpusIsPreferred) {
  Placement placement({gpu_box("a"), gpu_box("b")});
  placement.take({.node = "a", .gpus = {"0", "4"}}, {.gpus = 2, .role = "x"});
  placement.take({.node = "b", .gpus = {"0", "1", "2"}}, {.gpus = 3, .role = "x"});
  const Demand four{.gpus = 4, .role = "decode", .model = "m"};
  EXPECT_EQ(taken(placement, four), "b: its GPUs are near each other");
  EXPECT_EQ(taken(placement, four), "a: the only node that fits");
}

// The places of engines of one size on boxes, in the order in which they are taken.
std::string golden(size_t boxes, uint32_t gpus, uint32_t engines) {
  std::vector<Node> nodes;
  for (size_t i = 0; i < boxes; ++i) {
    nodes.push_back(gpu_box(std::string(1, static_cast<char>('a' + i))));
  }
  Placement placement(nodes);
  std::string text;
  for (uint32_t i = 0; i < engines; ++i) {
    const auto choice = placement.take({.gpus = gpus, .role = "decode", .model = "m"});
    text += (text.empty() ? "" : " ") + (choice ? choice->place.node : "none");
    for (const std::string& gpu : choice ? choice->place.gpus : Words()) {
      text += gpu;
    }
  }
  return text;
}

TEST(Placement, OfEnginesOnBoxesIsTheGoldenOne) {
  EXPECT_EQ(golden(1, 1, 9), "a0 a1 a2 a3 a4 a5 a6 a7 none");
  EXPECT_EQ(golden(1, 2, 5), "a01 a23 a45 a67 none");
  EXPECT_EQ(golden(1, 4, 3), "a0123 a4567 none");
  EXPECT_EQ(golden(1, 8, 2), "a01234567 none");
  EXPECT_EQ(golden(2, 1, 5), "a0 b0 a1 b1 a2");
  EXPECT_EQ(golden(2, 2, 5), "a01 b01 a23 b23 a45");
  EXPECT_EQ(golden(2, 4, 5), "a0123 b0123 a4567 b4567 none");
  EXPECT_EQ(golden(2, 8, 3), "a01234567 b01234567 none");
  EXPECT_EQ(golden(4, 1, 5), "a0 b0 c0 d0 a1");
  EXPECT_EQ(golden(4, 2, 5), "a01 b01 c01 d01 a23");
  EXPECT_EQ(golden(4, 4, 6), "a0123 b0123 c0123 d0123 a4567 b4567");
  EXPECT_EQ(golden(4, 8, 5), "a01234567 b01234567 c01234567 d01234567 none");
}

}  // namespace
}  // namespace pdjob::launcher
