#include "launcher/compare/fleet_search.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "common/random.h"

namespace pdjob::launcher {
namespace {

// What workers of a made-up load do: requests per second of one prefill worker, of one decode
// worker, and of one of both roles by its chunk.
struct MadeUp {
  double prefill = 1, decode = 1;
  std::vector<double> both{0.3, 0.4, 0.5};
  double rate = 1;
  double spill_gain = 1;
  double alone = 1;  // The share within the SLO of requests that come one by one.

  FleetScore operator()(const Fleet& fleet, double times) const {
    if (times == kOneByOne) {
      return {.share = alone, .strain = alone < 1 ? 2 : 0.5};
    }
    const size_t chunk = fleet.settings.chunk == 16 ? 0 : fleet.settings.chunk == 64 ? 1 : 2;
    double room = fleet.disaggregated() ? std::min(fleet.prefill * prefill, fleet.decode * decode)
                                        : fleet.both * both[chunk];
    room *= fleet.settings.spills ? spill_gain : 1;
    const double load = rate * times / room;
    return {.share = load <= 1 ? 1 - 0.04 * load : std::exp(-load), .strain = load};
  }
};

FleetSearchOptions options_of(uint32_t workers_max = 64) {
  return {.workers_max = workers_max, .chunks = {16, 64, 256}, .sequences = {}};
}

FleetAnswer smallest(const MadeUp& load, uint32_t workers_max = 64) {
  return FleetSearch(options_of(workers_max), load).smallest();
}

// The fewest workers of any fleet that is enough, found by trying all.
uint32_t fewest_of_all(const MadeUp& load, const FleetSearchOptions& options) {
  for (uint32_t workers = 1; workers <= options.workers_max; ++workers) {
    std::vector<Fleet> fleets;
    for (const uint32_t chunk : options.chunks) {
      fleets.push_back({.both = workers, .settings = {.chunk = chunk}});
    }
    for (uint32_t prefill = 1; prefill < workers; ++prefill) {
      for (const bool spills : {false, true}) {
        fleets.push_back(
            {.prefill = prefill, .decode = workers - prefill, .settings = {.spills = spills}});
      }
    }
    if (std::ranges::any_of(fleets, [&](const Fleet& fleet) {
          return load(fleet, options.margin).share >= options.share;
        })) {
      return workers;
    }
  }
  return 0;
}

TEST(FleetSearch, FindsAsFewWorkersAsAnExhaustiveSearch) {
  Random random(7);
  const auto between = [&](double least, double most) {
    return least * std::pow(most / least, random.unit());
  };
  for (int i = 0; i < 300; ++i) {
    const MadeUp load{.prefill = between(0.1, 10),
                      .decode = between(0.1, 10),
                      .both = {between(0.05, 3), between(0.05, 3), between(0.05, 3)},
                      .rate = between(0.1, 10),
                      .spill_gain = between(0.8, 1.2)};
    MadeUp sorted = load;  // Longer chunks are better, or worse: no valley lies between.
    std::ranges::sort(sorted.both);
    const FleetAnswer answer = smallest(sorted);
    const uint32_t fewest = fewest_of_all(sorted, options_of());
    ASSERT_EQ(answer.best ? answer.best->fleet.workers() : 0, fewest) << "load " << i;
    ASSERT_LT(answer.simulated, 250U);
  }
}

TEST(FleetSearch, SaysWhichKindNeedsMoreWorkers) {
  const FleetAnswer answer =
      smallest({.prefill = 1, .decode = 3, .both = {0.2, 0.3, 0.25}, .rate = 2});
  ASSERT_TRUE(answer.best && answer.runner_up);
  EXPECT_EQ(answer.best->fleet.name(), "3 prefill + 1 decode");
  EXPECT_EQ(answer.runner_up->fleet.name(), "8 both, chunk 64");
}

TEST(FleetSearch, OneWorkerMayBeEnough) {
  const FleetAnswer answer = smallest({.both = {1, 2, 3}, .rate = 0.5});
  ASSERT_TRUE(answer.best);
  EXPECT_EQ(answer.best->fleet.workers(), 1U);
}

TEST(FleetSearch, MoreWorkersCannotHelpARequestThatIsTooSlowAlone) {
  const FleetAnswer answer = smallest({.alone = 0.5});
  EXPECT_FALSE(answer.possible);
  EXPECT_FALSE(answer.best);
  EXPECT_EQ(answer.simulated, 2U);
}

TEST(FleetSearch, NamesTheNearestFleetIfNoneIsEnough) {
  const FleetAnswer answer = smallest({.prefill = 1, .decode = 1, .rate = 100}, 8);
  EXPECT_TRUE(answer.possible);
  EXPECT_FALSE(answer.best);
  ASSERT_TRUE(answer.nearest);
  EXPECT_EQ(answer.nearest->fleet.workers(), 8U);
}

TEST(FleetSearch, TheBestOfSoManyWorkersHasTheirNumber) {
  for (uint32_t workers = 1; workers < 20; ++workers) {
    const FleetAnswer answer =
        FleetSearch(options_of(), MadeUp{.prefill = 1, .decode = 4, .rate = 50}).best_of(workers);
    ASSERT_TRUE(answer.best);
    EXPECT_EQ(answer.best->fleet.workers(), workers);
  }
}

TEST(FleetSearch, OtherSettingsMaySaveAWorker) {
  const MadeUp load{
      .prefill = 1, .decode = 1, .both = {0.1, 0.1, 0.1}, .rate = 2.05 / 1.1, .spill_gain = 1.1};
  const FleetAnswer answer = smallest(load);
  ASSERT_TRUE(answer.best);
  EXPECT_EQ(answer.best->fleet.name(), "2 prefill + 2 decode, idle workers help");
}

}  // namespace
}  // namespace pdjob::launcher
