#include "launcher/placement/gpu_choice.h"

#include <algorithm>
#include <random>
#include <set>

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

using Places = std::vector<size_t>;

// Two islands of four, each in a NUMA node of its own.
std::vector<GpuState> two_islands(const std::vector<uint32_t>& used = std::vector<uint32_t>(8)) {
  std::vector<GpuState> gpus;
  for (uint32_t i = 0; i < 8; ++i) {
    gpus.push_back({.used = used[i], .numa = i / 4, .island = i / 4});
  }
  return gpus;
}

// All joined by switches, as in most machines with eight GPUs.
std::vector<GpuState> one_island(const std::vector<uint32_t>& used = std::vector<uint32_t>(8)) {
  std::vector<GpuState> gpus = two_islands(used);
  std::ranges::for_each(gpus, [](GpuState& gpu) { gpu.island = 0; });
  return gpus;
}

TEST(GpuChoice, AnEngineOfSeveralGpusGetsAnIslandThatHoldsThemAll) {
  EXPECT_EQ(choose_gpus(two_islands(), 4), (Places{0, 1, 2, 3}));
  EXPECT_EQ(choose_gpus(two_islands({1, 0, 0, 0, 0, 0, 0, 0}), 4), (Places{4, 5, 6, 7}));
  EXPECT_EQ(choose_gpus(two_islands({1, 0, 0, 0, 0, 0, 0, 0}), 2), (Places{1, 2}));
  EXPECT_EQ(choose_gpus(two_islands(), 8), (Places{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(GpuChoice, OneGpuIsTakenWhereLeastIsLeftSoThatIslandsStayWhole) {
  EXPECT_EQ(choose_gpus(two_islands({0, 0, 0, 0, 0, 0, 1, 0}), 1), (Places{4}));
  EXPECT_EQ(choose_gpus(two_islands({1, 1, 1, 0, 0, 1, 1, 0}), 1), (Places{3}));
  EXPECT_EQ(choose_gpus(one_island({0, 0, 0, 0, 0, 0, 1, 0}), 1), (Places{4}))
      << "the same within an island, by NUMA nodes";
}

TEST(GpuChoice, APartIsTakenOfTheFullestGpuThatHasRoom) {
  EXPECT_EQ(choose_part(two_islands({0, 50, 75, 100, 0, 0, 0, 0}), 25), 2U);
  EXPECT_EQ(choose_part(two_islands({0, 50, 75, 100, 0, 0, 0, 0}), 50), 1U);
  EXPECT_EQ(choose_part(two_islands({0, 50, 75, 100, 0, 0, 0, 0}), 60), 0U);
  EXPECT_EQ(choose_part(one_island({100, 90, 75, 100, 100, 100, 100, 80}), 30), 2U)
      << "nothing is left: the one with the most";
}

TEST(GpuChoice, WithinAnIslandTheyAreOfOneNumaNode) {
  EXPECT_EQ(choose_gpus(one_island({1, 0, 0, 0, 0, 0, 0, 0}), 4), (Places{4, 5, 6, 7}));
  EXPECT_EQ(choose_gpus(one_island({1, 0, 0, 0, 0, 0, 0, 1}), 4), (Places{1, 2, 3, 4}));
}

TEST(GpuChoice, WithoutALargeIslandItIsOneNumaNodeOfFewIslands) {
  std::vector<GpuState> pairs = two_islands();
  for (uint32_t i = 0; i < 8; ++i) {
    pairs[i].island = i / 2;
  }
  pairs[1].used = 1;
  EXPECT_EQ(choose_gpus(pairs, 4), (Places{4, 5, 6, 7}));
  EXPECT_EQ(choose_gpus(pairs, 3), (Places{0, 2, 3}));
  EXPECT_EQ(choose_gpus(pairs, 2), (Places{2, 3}));
}

TEST(GpuChoice, WhereNothingHoldsAllItTakesFewIslands) {
  EXPECT_EQ(choose_gpus(two_islands({1, 0, 0, 1, 0, 0, 0, 1}), 4), (Places{1, 4, 5, 6}));
  EXPECT_EQ(choose_gpus(two_islands({1, 0, 0, 1, 0, 0, 0, 1}), 5), (Places{1, 2, 4, 5, 6}));
}

TEST(GpuChoice, TheLeastUsedOnesComeFirst) {
  EXPECT_EQ(choose_gpus(two_islands({2, 2, 2, 2, 0, 1, 1, 0}), 3), (Places{4, 5, 7}));
  EXPECT_EQ(choose_gpus(two_islands({1, 1, 1, 1, 2, 2, 2, 2}), 1), (Places{0}));
}

TEST(GpuChoice, UnknownGroupsLeaveTheOrderOfTheList) {
  EXPECT_EQ(choose_gpus({{.used = 1}, {}, {}, {}}, 2), (Places{1, 2}));
  EXPECT_EQ(choose_gpus({{}, {.numa = 1, .island = 0}, {}, {.numa = 1, .island = 0}}, 2),
            (Places{1, 3}));
  EXPECT_EQ(choose_gpus({{}, {.numa = 1, .island = 0}, {}, {.numa = 1, .island = 0}}, 3),
            (Places{0, 1, 3}));
  EXPECT_EQ(choose_gpus({{}, {.numa = 1}, {}, {.numa = 1}}, 2), (Places{1, 3}));
  EXPECT_EQ(choose_gpus({}, 0), Places());
}

TEST(GpuChoice, CountsTheFreeOnesThatAreNear) {
  EXPECT_EQ(most_near_free(two_islands()), 4U);
  EXPECT_EQ(most_near_free(two_islands({1, 0, 0, 0, 1, 1, 0, 0})), 3U);
  EXPECT_EQ(most_near_free(one_island({1, 0, 0, 0, 0, 0, 0, 0})), 7U);
  EXPECT_EQ(most_near_free({{}, {.used = 1}, {}}), 2U);
  EXPECT_EQ(most_near_free({{.numa = 0}, {.numa = 1}, {.numa = 1}}), 2U);
}

// Whatever is known: each once, none that is more used than one that is left out, and one island if
// the least used ones of an island suffice.
TEST(GpuChoice, HoldsItsRulesForRandomMachines) {
  std::mt19937 random(7);  // NOLINT(bugprone-random-generator-seed): the same each time.
  const auto below = [&random](uint32_t bound) { return static_cast<uint32_t>(random() % bound); };
  for (int run = 0; run < 2000; ++run) {
    std::vector<GpuState> gpus(1 + below(12));
    for (GpuState& gpu : gpus) {
      gpu = {.used = below(3),
             .numa = below(4) == 0 ? kUnknownGroup : below(2),
             .island = below(4) == 0 ? kUnknownGroup : below(4)};
    }
    const size_t count = below(static_cast<uint32_t>(gpus.size()) + 1);
    const Places chosen = choose_gpus(gpus, count);
    const std::set<size_t> each(chosen.begin(), chosen.end());
    ASSERT_EQ(each.size(), count);
    uint32_t most = 0;
    for (const size_t gpu : chosen) {
      most = std::max(most, gpus[gpu].used);
    }
    std::array<size_t, 4> free_of_island{};
    for (size_t i = 0; i < gpus.size(); ++i) {
      ASSERT_TRUE(each.contains(i) || gpus[i].used >= most);
      if (gpus[i].used == 0 && gpus[i].island != kUnknownGroup) {
        ++free_of_island[gpus[i].island];
      }
    }
    if (count > 0 && most == 0 && std::ranges::max(free_of_island) >= count) {
      for (const size_t gpu : chosen) {
        ASSERT_EQ(gpus[gpu].island, gpus[chosen.front()].island);
        ASSERT_NE(gpus[gpu].island, kUnknownGroup);
      }
    }
  }
}

}  // namespace
}  // namespace pdjob::launcher
