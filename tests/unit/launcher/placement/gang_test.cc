#include "launcher/placement/gang.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "common/random.h"
#include "launcher/placement/gang_search.h"

namespace pdjob::launcher {
namespace {

using Words = std::vector<std::string>;

constexpr uint64_t kMiB = 1 << 20;

Node node(const std::string& name, uint32_t cores, const Words& gpus = {},
          const std::string& cluster = "east") {
  return {.name = name,
          .host = "10.0.0.1",
          .cores = cores,
          .memory_bytes = 1024 * kMiB,
          .gpus = gpus,
          .cluster = cluster,
          .labels = {}};
}

Group group(const std::string& role, uint32_t workers, uint32_t cores, uint32_t gpus = 0) {
  return {.name = role,
          .demand = {.cores = cores, .gpus = gpus, .role = role, .model = "m"},
          .workers = workers,
          .workers_min = workers};
}

// "prefill: a b; decode: a -"
std::string text_of(const Place& place) {
  std::string text;
  for (const PlacePart& part : place.parts()) {
    text += (text.empty() ? "" : "+") + part.node;
  }
  return text;
}

std::string text_of(const GangPlaces& places, const std::vector<Group>& groups) {
  std::string text;
  for (size_t g = 0; g < groups.size(); ++g) {
    text += (g == 0 ? "" : "; ") + groups[g].name + ":";
    for (size_t i = 0; i < groups[g].workers; ++i) {
      text += " " + (i < places[g].size() ? text_of(places[g][i].place) : "-");
    }
  }
  return text;
}

std::string placed(const std::vector<Node>& nodes, const std::vector<Group>& groups) {
  Placement placement(nodes);
  const auto places = place_together(placement, groups);
  return places ? text_of(*places, groups) : places.error().message;
}

TEST(Gang, EachNodeGetsWorkersOfBothRoles) {
  EXPECT_EQ(placed({node("a", 4), node("b", 4)}, {group("prefill", 2, 1), group("decode", 2, 1)}),
            "prefill: a b; decode: a b");
}

TEST(Gang, AModelGoesToTheFirstClusterThatHoldsAllOfIt) {
  const std::vector<Node> nodes = {node("a", 3, {}, "east"), node("b", 2, {}, "west"),
                                   node("c", 2, {}, "west"), node("d", 64, {}, "zulu")};
  EXPECT_EQ(placed(nodes, {group("prefill", 2, 1), group("decode", 2, 1)}),
            "prefill: b c; decode: b c");
}

TEST(Gang, AModelThatNoClusterHoldsKeepsPairsTogether) {
  const std::vector<Node> nodes = {node("a", 2, {}, "east"), node("b", 2, {}, "west")};
  EXPECT_EQ(placed(nodes, {group("prefill", 2, 1), group("decode", 2, 1)}),
            "prefill: a b; decode: a b");
}

TEST(Gang, GroupsGoWhereTheyMayRun) {
  Group prefill = group("prefill", 1, 1);
  prefill.demand.clusters = {"east"};
  Group decode = group("decode", 2, 1);
  decode.demand.clusters = {"west"};
  EXPECT_EQ(placed({node("a", 4, {}, "west"), node("b", 4, {}, "east")}, {prefill, decode}),
            "prefill: b; decode: a a");
}

TEST(Gang, AGroupThatFitsNowhereElseComesFirst) {
  // In turns, the small workers would take the core that the large one needs.
  const std::vector<Node> nodes = {node("a", 4), node("b", 3)};
  const std::vector<Group> groups = {group("prefill", 3, 1), group("decode", 1, 4)};
  EXPECT_EQ(placed(nodes, groups), "prefill: b b b; decode: a");
}

TEST(Gang, NothingIsTakenIfTheGroupsDoNotFitTogether) {
  Placement placement({node("a", 4), node("b", 4)});
  const auto places = place_together(placement, {group("prefill", 2, 3), group("decode", 1, 2)});
  ASSERT_FALSE(places);
  EXPECT_EQ(places.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(places.error().message,
            "decode has places for 0 of 1 workers, each with 2 cores: node a comes nearest: it "
            "lacks 1 core");
  EXPECT_TRUE(placement.take_on({"a"}, {.cores = 4}));
  EXPECT_TRUE(placement.take_on({"b"}, {.cores = 4}));
}

TEST(Gang, EveryGroupThatIsShortIsNamed) {
  Group prefill = group("prefill", 1, 8, 1);
  Group decode = group("decode", 2, 1);
  decode.demand.clusters = {"west"};
  EXPECT_EQ(placed({node("a", 4)}, {prefill, decode}),
            "prefill has places for 0 of 1 workers, each with 8 cores and 1 GPU: node a comes "
            "nearest: it lacks 4 cores and 1 GPU; decode has places for 0 of 2 workers, each with "
            "1 core: node a comes nearest: it is of cluster east");
  EXPECT_EQ(placed({}, {group("decode", 1, 0)}),
            "decode has places for 0 of 1 workers, each with a node: there is no node");
}

TEST(Gang, AJobStartsWithItsMinimumAndSharesTheRest) {
  Group prefill = group("prefill", 4, 1);
  Group decode = group("decode", 4, 1);
  prefill.workers_min = decode.workers_min = 1;
  EXPECT_EQ(placed({node("a", 5)}, {prefill, decode}), "prefill: a a a -; decode: a a - -");
  decode.workers_min = 3;
  EXPECT_EQ(placed({node("a", 5)}, {prefill, decode}), "prefill: a a - -; decode: a a a -");
  prefill.workers_min = 3;
  EXPECT_EQ(placed({node("a", 5)}, {prefill, decode}),
            "decode has places for 2 of 3 workers, each with 1 core: node a comes nearest: it "
            "lacks 1 core");
}

TEST(Gang, TheLaunchersMachineIsOvercommittedOnlyWhenTheOthersAreFull) {
  Node local = node("l", 2, {}, "local");
  local.overcommits = true;
  EXPECT_EQ(placed({local}, {group("prefill", 2, 1), group("decode", 2, 1)}),
            "prefill: l l; decode: l l");
  EXPECT_EQ(placed({local, node("a", 2)}, {group("prefill", 2, 1), group("decode", 2, 1)}),
            "prefill: a l; decode: a l");
}

Group over_nodes(const std::string& role, uint32_t workers, uint32_t parts, uint32_t gpus) {
  Group each = group(role, workers, 1, gpus);
  each.demand.parts = parts;
  return each;
}

TEST(Gang, AnEngineOverSeveralNodesGetsAllOfThemInOneClusterOrNone) {
  const Words gpus = {"0", "1"};
  const std::vector<Node> nodes = {node("a", 8, gpus, "east"), node("b", 8, gpus, "west"),
                                   node("c", 8, gpus, "west")};
  EXPECT_EQ(placed(nodes, {over_nodes("decode", 1, 2, 2)}), "decode: b+c");
  EXPECT_EQ(placed(nodes, {over_nodes("decode", 1, 3, 2)}),
            "decode has places for 0 of 1 workers, each with 3 nodes of 1 core and 2 GPUs: node a "
            "comes nearest: it");
  EXPECT_EQ(placed(nodes, {over_nodes("decode", 2, 2, 1), group("prefill", 1, 1, 2)}),
            "decode: b+c b+c; prefill: a");
}

TEST(Gang, NoTwoPartsOfAnEngineAreOnOneNode) {
  const Words gpus = {"0", "1", "2", "3"};
  EXPECT_EQ(placed({node("a", 8, gpus), node("b", 8, {"0"})}, {over_nodes("decode", 1, 2, 1)}),
            "decode: a+b");
  // 4 + 1 GPUs are enough for two engines of two, and yet one node takes part in each.
  const std::string refused =
      placed({node("a", 8, gpus), node("b", 8, {"0"})}, {over_nodes("decode", 2, 2, 1)});
  EXPECT_TRUE(refused.starts_with("decode has places for 1 of 2 workers")) << refused;
}

TEST(Gang, AThousandWorkersOfSeveralShapesOnTwoHundredNodesHaveTheirPlaces) {
  std::vector<Node> nodes;
  for (int i = 0; i < 200; ++i) {
    nodes.push_back(node("n" + std::to_string(i), 96, {"0", "1", "2", "3", "4", "5", "6", "7"}));
  }
  const std::vector<Group> groups = {group("prefill", 400, 1, 1), group("decode", 500, 1, 2),
                                     over_nodes("wide", 100, 2, 1)};
  Placement placement(nodes);
  const auto places = place_together(placement, groups);
  ASSERT_TRUE(places.has_value()) << places.error().message;
  EXPECT_EQ((*places)[2].size(), 100U);
}

TEST(Gang, PartsOfGpusFillTheirGpusSoThatOthersStayWhole) {
  Group small = group("prefill", 2, 0, 1);
  small.demand.gpu_percent = 25;
  Group large = group("decode", 1, 0, 1);
  large.demand.gpu_percent = 50;
  Group whole = group("whole", 1, 0, 1);
  Placement placement({node("a", 4, {"0", "1"})});
  const auto places = place_together(placement, {small, large, whole});
  ASSERT_TRUE(places) << places.error().message;
  const std::string gpu = places->at(0).at(0).place.gpus.front();
  EXPECT_EQ(places->at(0).at(1).place.gpus, Words{gpu});
  EXPECT_EQ(places->at(1).at(0).place.gpus, Words{gpu});
  EXPECT_NE(places->at(2).at(0).place.gpus, Words{gpu});

  const auto one_more = place_together(placement, {small});
  ASSERT_FALSE(one_more);
  EXPECT_EQ(one_more.error().message,
            "prefill has places for 0 of 2 workers, each with 0.25 of a GPU: node a comes nearest: "
            "it lacks 0.25 of a GPU");
}

TEST(GangSearch, PartsThatDoNotDivideEachOtherAreGivenUpInsteadOfCalledImpossible) {
  // 45, 30 and 25 fill one GPU, and 35, 35 and 30 the other one. The largest ones first do not.
  std::vector<SearchGroup> groups;
  for (const auto& [percent, workers] :
       {std::pair(45U, 1U), std::pair(35U, 2U), std::pair(30U, 2U), std::pair(25U, 1U)}) {
    groups.push_back({.demand = {.gpus = 1, .gpu_percent = percent}, .workers = workers});
  }
  const std::vector<NodeShare> box = {NodeShare(node("a", 4, {"0", "1"}))};
  EXPECT_EQ(search_places(box, groups, false).outcome, SearchResult::Outcome::kGivenUp);
  groups = {{.demand = {.gpus = 1, .gpu_percent = 50}, .workers = 3},
            {.demand = {.gpus = 1, .gpu_percent = 25}, .workers = 3}};
  EXPECT_EQ(search_places(box, groups, false).outcome, SearchResult::Outcome::kImpossible);
}

TEST(GangSearch, AnEndlessSearchIsGivenUpAndSaysSo) {
  // They have 2235 cores. The first two groups want 1580 of them.
  std::vector<NodeShare> nodes;
  for (int i = 0; i < 30; ++i) {
    nodes.emplace_back(node("n" + std::to_string(i), 60 + i));
  }
  const auto search = [&](uint32_t last, uint64_t steps) {
    return search_places(nodes,
                         {{.demand = {.cores = 7}, .workers = 100},
                          {.demand = {.cores = 11}, .workers = 80},
                          {.demand = {.cores = 13}, .workers = last}},
                         false, steps)
        .outcome;
  };
  EXPECT_EQ(search(40, 100'000), SearchResult::Outcome::kFound);
  EXPECT_EQ(search(50, 100'000), SearchResult::Outcome::kGivenUp);
  EXPECT_EQ(search(51, 100'000), SearchResult::Outcome::kImpossible);
}

// --- random jobs against an oracle that tries every way

struct Instance {
  std::vector<Node> nodes;
  std::vector<Group> groups;
};

Instance draw_instance(Random& random) {
  const auto below = [&random](uint64_t limit) {
    return static_cast<uint32_t>(random.below(limit));
  };
  Instance instance;
  const uint32_t nodes = below(4) + (below(8) == 0 ? 0 : 1);
  for (uint32_t i = 0; i < nodes; ++i) {
    Node each = node("n" + std::to_string(i), below(5));
    each.overcommits = below(6) == 0;
    each.cluster = below(2) == 0 ? "east" : "west";
    each.memory_bytes = below(5) * kMiB;
    for (uint32_t gpu = below(4); gpu > 1; --gpu) {
      each.gpus.push_back(std::to_string(gpu));
      if (below(6) == 0) {
        each.gpu_parts[each.gpus.back()] = 25 * (1 + below(3));
      }
    }
    if (below(2) == 0) {
      each.labels["disk"] = "nvme";
    }
    instance.nodes.push_back(each);
  }
  const uint32_t groups = 1 + below(3);
  for (uint32_t i = 0; i < groups; ++i) {
    Group each =
        group("g" + std::to_string(i), below(4), below(3), below(4) == 0 ? 1 + below(2) : 0);
    if (each.demand.gpus == 0 && below(3) == 0) {
      each.demand.gpus = 1;
      each.demand.gpu_percent = below(2) == 0 ? 25 : 50;
    }
    each.demand.parts = below(5) == 0 ? 2 : 1;
    each.workers_min = below(2) == 0 ? each.workers : below(each.workers + 1);
    each.demand.memory_bytes = below(2) * kMiB;
    each.demand.arrange = below(2) == 0 ? Arrange::kPack : Arrange::kSpread;
    if (const uint32_t file = below(4); file > 0) {
      each.demand.file = "/" + std::to_string(file);
      each.demand.file_bytes = file * kMiB / 2;
    }
    if (below(4) == 0) {
      each.demand.clusters = {below(2) == 0 ? "east" : "west"};
    }
    if (below(4) == 0) {
      each.demand.labels["disk"] = "nvme";
    }
    instance.groups.push_back(each);
  }
  return instance;
}

// The rules as docs/explanation/placement.md states them, written again.
struct Load {
  uint64_t cores = 0;
  std::map<std::string, uint32_t> gpus;  // Percent.
  uint64_t memory = 0;
  std::map<std::string, uint64_t> files;
  uint64_t file_bytes() const {
    uint64_t sum = 0;
    for (const auto& [file, bytes] : files) {
      sum += bytes;
    }
    return sum;
  }
};

bool allowed(const Node& node, const Demand& demand) {
  const bool cluster =
      demand.clusters.empty() || std::ranges::count(demand.clusters, node.cluster) > 0;
  return cluster && (demand.labels.empty() || node.labels.contains("disk"));
}

Load with(Load load, const Demand& demand, const Words& gpus) {
  load.cores += demand.cores;
  for (const std::string& gpu : gpus) {
    load.gpus[gpu] += demand.gpu_percent;
  }
  load.memory += demand.memory_bytes;
  if (!demand.file.empty()) {
    load.files[demand.file] = demand.file_bytes;
  }
  return load;
}

bool holds(const Node& node, const Load& load) {
  if (node.overcommits) {
    return load.file_bytes() <= node.memory_bytes;
  }
  const bool gpus = std::ranges::all_of(load.gpus, [&](const auto& gpu) {
    return gpu.second <= percent_of(node.gpu_parts, gpu.first);
  });
  return load.cores <= node.cores && gpus && load.memory + load.file_bytes() <= node.memory_bytes;
}

// The GPUs that it could take, in each way. Whole ones that are free are all alike.
std::vector<Words> ways(const Node& node, const Load& load, const Demand& demand) {
  std::vector<Words> ways;
  Words whole;
  for (const std::string& gpu : node.gpus) {
    const uint32_t used = load.gpus.contains(gpu) ? load.gpus.at(gpu) : 0;
    const bool fits =
        used + demand.gpu_percent <= percent_of(node.gpu_parts, gpu) || node.overcommits;
    if (demand.gpu_percent < kWholeGpu && fits) {
      ways.push_back({gpu});
    } else if (fits && whole.size() < demand.gpus) {
      whole.push_back(gpu);
    }
  }
  if (demand.gpu_percent == kWholeGpu && whole.size() == demand.gpus) {
    ways.push_back(whole);
  }
  return ways;
}

bool has_room(const Node& node, const Load& load, const Demand& demand) {
  return std::ranges::any_of(ways(node, load, demand), [&](const Words& gpus) {
    return holds(node, with(load, demand, gpus));
  });
}

// A part of a worker, and the node of the part before it; kNoNode: it is the first.
struct OraclePart {
  const Demand* demand = nullptr;
  bool first = true;
};
constexpr size_t kNoNode = SIZE_MAX;

// Tries each node for each part. The parts of a worker stand side by side; those behind the first
// are on other nodes of its cluster. Two are the most here.
bool oracle(const std::vector<Node>& nodes, std::vector<Load>& loads,
            std::vector<OraclePart>& parts, size_t before = kNoNode) {
  if (parts.empty()) {
    return true;
  }
  const OraclePart part = parts.back();
  parts.pop_back();
  bool found = false;
  for (size_t n = 0; n < nodes.size() && !found; ++n) {
    if (!part.first && (n == before || nodes[n].cluster != nodes[before].cluster)) {
      continue;
    }
    const Load kept = loads[n];
    for (const Words& gpus : ways(nodes[n], kept, *part.demand)) {
      loads[n] = with(kept, *part.demand, gpus);
      found = found || (allowed(nodes[n], *part.demand) && holds(nodes[n], loads[n]) &&
                        oracle(nodes, loads, parts, n));
    }
    loads[n] = kept;
  }
  parts.push_back(part);
  return found;
}

bool oracle_places(const Instance& instance, bool all) {
  std::vector<Load> loads(instance.nodes.size());
  std::vector<OraclePart> parts;  // The last comes first.
  for (const Group& group : instance.groups) {
    for (uint32_t i = 0; i < (all ? group.workers : group.workers_min); ++i) {
      for (uint32_t part = group.demand.parts; part > 0; --part) {
        parts.push_back({.demand = &group.demand, .first = part == 1});
      }
    }
  }
  return oracle(instance.nodes, loads, parts);
}

// What the places load onto each node; checks each rule.
std::vector<Load> check_rules(const Instance& instance, const GangPlaces& places) {
  std::vector<Load> loads(instance.nodes.size());
  for (size_t g = 0; g < instance.groups.size(); ++g) {
    const Demand& demand = instance.groups[g].demand;
    EXPECT_LE(places[g].size(), instance.groups[g].workers);
    EXPECT_GE(places[g].size(), instance.groups[g].workers_min);
    for (const ChosenPlace& choice : places[g]) {
      std::set<std::string> own;
      std::set<std::string> clusters;
      for (const PlacePart& part : choice.place.parts()) {
        const auto at = std::ranges::find(instance.nodes, part.node, &Node::name);
        Load& load = loads[static_cast<size_t>(at - instance.nodes.begin())];
        load = with(load, demand, part.gpus);
        own.insert(part.node);
        clusters.insert(at->cluster);
        EXPECT_TRUE(allowed(*at, demand));
        EXPECT_TRUE(holds(*at, load));
        EXPECT_EQ(part.gpus.size(), demand.gpus);
        for (const std::string& gpu : part.gpus) {
          EXPECT_TRUE(std::ranges::count(at->gpus, gpu) == 1);
          EXPECT_EQ(std::ranges::count(part.gpus, gpu), 1);
        }
      }
      EXPECT_EQ(own.size(), demand.parts);
      EXPECT_EQ(clusters.size(), 1U);
    }
  }
  return loads;
}

constexpr uint64_t kInstances = 4000;

TEST(Gang, ARandomJobIsPlacedIfAndOnlyIfAnOracleFindsAWay) {
  uint64_t all_fit = 0;
  uint64_t some_fit = 0;
  uint64_t searched = 0;
  for (uint64_t seed = 0; seed < kInstances; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Instance instance = draw_instance(random);
    Placement placement(instance.nodes);
    const auto places = place_together(placement, instance.groups);
    const bool all = oracle_places(instance, true);
    const bool least = oracle_places(instance, false);
    ASSERT_EQ(places.has_value(), least);
    if (!places) {
      EXPECT_EQ(places.error().message.find("was not found"), std::string::npos);
      continue;
    }
    const std::vector<Load> loads = check_rules(instance, *places);
    size_t waiting = 0;
    for (size_t g = 0; g < instance.groups.size(); ++g) {
      const Group& group = instance.groups[g];
      waiting += group.workers - (*places)[g].size();
      std::map<std::string, uint32_t> open;  // By cluster, the nodes that could take a part.
      for (size_t n = 0; n < loads.size() && (*places)[g].size() < group.workers; ++n) {
        const bool room = allowed(instance.nodes[n], group.demand) &&
                          has_room(instance.nodes[n], loads[n], group.demand);
        open[instance.nodes[n].cluster] += room ? 1 : 0;
      }
      for (const auto& [cluster, count] : open) {
        EXPECT_LT(count, group.demand.parts) << "a worker waits although it has a place";
      }
      for (const ChosenPlace& choice : (*places)[g]) {
        searched += choice.why == Reason::kSearched || choice.why == Reason::kTightest ? 1 : 0;
      }
    }
    ASSERT_EQ(waiting == 0, all);
    (all ? all_fit : some_fit) += 1;
  }
  // The instances are of all kinds.
  EXPECT_GT(all_fit, kInstances / 5);
  EXPECT_GT(some_fit, kInstances / 20);
  EXPECT_GT(searched, 10U);
  EXPECT_LT(all_fit + some_fit, kInstances * 9 / 10);
}

TEST(Gang, TheOrderInWhichNodesJoinDoesNotMatter) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Instance instance = draw_instance(random);
    const std::string first = placed(instance.nodes, instance.groups);
    std::ranges::reverse(instance.nodes);
    EXPECT_EQ(placed(instance.nodes, instance.groups), first);
  }
}

// Two launchers that share nodes: each asks for all that its job needs at once, and holds nothing
// while it waits. Whatever the order in which they ask and end, one of them always runs.
TEST(Gang, TwoJobsThatCannotBothFitNeverHoldAPartAndWait) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const std::vector<Node> nodes = {node("a", 4), node("b", 4), node("c", 4)};
    Placement shared(nodes);
    const std::vector<Group> job = {group("prefill", 2, 2), group("decode", 2, 2)};
    std::array<std::optional<GangPlaces>, 2> running;
    std::array<int, 2> runs = {};
    for (int turn = 0; turn < 200; ++turn) {
      const size_t who = random.below(2);
      if (running[who]) {
        for (size_t g = 0; g < job.size(); ++g) {
          for (const ChosenPlace& choice : (*running[who])[g]) {
            shared.release(choice.place, job[g].demand);
          }
        }
        running[who].reset();
      } else if (auto places = place_together(shared, job)) {
        running[who] = std::move(*places);
        ++runs[who];
      }
      EXPECT_FALSE(running[0] && running[1]);
      int64_t used = 0;
      for (const NodeShare& share : shared.shares()) {
        used += 4 - share.cores_free();
      }
      EXPECT_EQ(used, running[0] || running[1] ? 8 : 0) << "a job holds a part";
    }
    EXPECT_GT(runs[0], 10);
    EXPECT_GT(runs[1], 10);
  }
}

}  // namespace
}  // namespace pdjob::launcher
