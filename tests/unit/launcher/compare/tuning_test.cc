#include "launcher/compare/tuning.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <gtest/gtest.h>

#include "launcher/compare/quickstart_model.h"
#include "launcher/played/load_words.h"

namespace pdjob::launcher {
namespace {

using std::chrono::milliseconds;

constexpr uint32_t kWorkers = 4;

struct Case {
  const char* rate;
  const char* prompt;
  const char* output;
  milliseconds ttft;
  milliseconds itl;
};

// Loads for which one kind of fleet or the other is better, and both.
constexpr Case kCases[] = {
    {"1", "300", "20", milliseconds(2500), milliseconds(60)},
    {"2", "400", "10", milliseconds(3000), milliseconds(80)},
    {"3", "50..200", "60", milliseconds(1000), milliseconds(40)},
    {"6", "40", "80", milliseconds(600), milliseconds(50)},
    {"1.5", "500~0.5", "30~0.5", milliseconds(4000), milliseconds(45)},
    {"4", "100", "8", milliseconds(800), milliseconds(200)},
    {"2", "200", "40", milliseconds(1500), milliseconds(30)},
    {"1", "600", "60", milliseconds(5000), milliseconds(35)},
    {"4@10s,1@10s", "150", "20", milliseconds(1200), milliseconds(60)},
    {"8", "20..60", "30", milliseconds(300), milliseconds(100)},
};

TuningAsked asked_of(const Case& each, Duration duration = std::chrono::seconds(40)) {
  TuningAsked asked;
  SimulationAsked& simulation = asked.simulation;
  simulation::LoadWords words;
  words.rate = *simulation::parse_rate("rate", each.rate);
  words.prompt = *simulation::parse_length("prompt", each.prompt);
  words.output = *simulation::parse_length("output", each.output);
  words.duration = duration;
  simulation.load = *simulation::make_load(words, 1);
  simulation.slo = {.ttft = each.ttft, .itl = each.itl};
  const EngineModel model = quickstart_model();
  simulation::TraceJob& job = simulation.job.job;
  job.prefill = job.decode = 1;
  job.engine = {.sequences = 16, .rows_per_sequence = 2048, .batch_tokens = 512};
  job.step_time = model.step;
  job.kv_row_time = model.kv_per_token;
  asked.search = search_options(job);
  asked.search.workers_max = kWorkers;
  return asked;
}

// Of all fleets with so many workers and all settings that a search may choose.
std::vector<Fleet> all_fleets(uint32_t workers, const FleetSearchOptions& options) {
  std::vector<Fleet> fleets;
  std::vector<uint32_t> sequences = options.sequences;
  sequences.push_back(0);
  for (const uint32_t each : sequences) {
    for (const uint32_t chunk : options.chunks) {
      fleets.push_back({.both = workers, .settings = {.chunk = chunk, .sequences = each}});
    }
    for (uint32_t prefill = 1; prefill < workers; ++prefill) {
      for (const bool spills : {false, true}) {
        fleets.push_back({.prefill = prefill,
                          .decode = workers - prefill,
                          .settings = {.sequences = each, .spills = spills}});
      }
    }
  }
  return fleets;
}

TEST(Tuning, ReachesTheGoodputOfAnExhaustiveSearch) {
  // All take minutes with sanitizers.
  const bool all = std::getenv("PDJOB_TEST_ALL") != nullptr;
  for (size_t i = all ? 0 : 1; i < std::size(kCases); i += all ? 1 : 5) {
    TuningAsked asked = asked_of(kCases[i], std::chrono::seconds(all ? 40 : 5));
    asked.workers = kWorkers;
    const Tuning tuning = tune(asked, [](const std::string&) {});
    ASSERT_TRUE(tuning.answer.best);
    double best = 0;
    std::string name;
    for (const Fleet& fleet : all_fleets(kWorkers, asked.search)) {
      const FleetFigures figures =
          simulated(asked.simulation, job_of(asked.simulation.job.job, fleet), asked.search.margin);
      if (figures.share() > best) {
        best = figures.share();
        name = fleet.name();
      }
    }
    std::printf("case %zu: %.3f with %s after %zu fleets; the best of %zu is %.3f with %s\n", i,
                tuning.answer.best->score.share, tuning.answer.best->fleet.name().c_str(),
                tuning.answer.simulated, all_fleets(kWorkers, asked.search).size(), best,
                name.c_str());
    EXPECT_GE(tuning.answer.best->score.share, 0.95 * best);
  }
}

TEST(Tuning, OneSeedGivesOneAnswer) {
  const TuningAsked asked = asked_of(kCases[5], std::chrono::seconds(3));
  const auto quiet = [](const std::string&) {};
  const Tuning tuning = tune(asked, quiet);
  const Tuning again = tune(asked, quiet);
  EXPECT_EQ(tuning_text(tuning), tuning_text(again));
  EXPECT_EQ(tuning_json(tuning), tuning_json(again));
}

TEST(Tuning, SettingsAreKeysOfAJobFile) {
  EXPECT_EQ(fleet_settings({.prefill = 2, .decode = 3, .settings = {.spills = true}}),
            (std::vector<std::string>{"prefill.workers=2", "decode.workers=3",
                                      "router.bypass_busy_requests=2",
                                      "router.decode_prefills=waiting"}));
  EXPECT_EQ(
      fleet_settings({.both = 4, .settings = {.chunk = 32, .sequences = 8}}),
      (std::vector<std::string>{"prefill.workers=0", "decode.workers=4",
                                "decode.local_chunk_tokens=32", "decode.engine.sequences=8"}));
}

}  // namespace
}  // namespace pdjob::launcher
