// Tests the simulator itself. The seed alone decides a run. The invariants catch cores that are
// broken on purpose.
#include <gtest/gtest.h>

#include "common/log.h"
#include "tests/simulation/sim_world.h"

namespace pdjob::simulation {
namespace {

// The shells' log would hide what a test says.
const bool kQuiet = (log::start("simulation", log::Level::kNothing), true);

using worker::Effect;
using worker::Event;
using Effects = std::vector<Effect>;

// Wraps a core; a canary changes its events or effects.
class BrokenCore : public worker::WorkerCore {
 public:
  explicit BrokenCore(std::unique_ptr<WorkerCore> core) : core_(std::move(core)) {}

  void step(const Event& event, Instant now, Effects& effects) override {
    core_->step(event, now, effects);
  }
  Instant next_wakeup() const override { return core_->next_wakeup(); }
  worker::CoreLoad load() const override { return core_->load(); }

 private:
  std::unique_ptr<WorkerCore> core_;
};

RunResult run(const std::string& scenario, uint64_t seed, Sabotage sabotage = {}) {
  const auto read = read_scenario(std::string(PDJOB_SCENARIOS) + "/" + scenario + ".yaml");
  EXPECT_TRUE(read) << read.error().message;
  return simulate({.scenario = *read, .seed = seed, .sabotage = std::move(sabotage)});
}

// Returns the first violation among 40 seeds: a single seed may be fault-free and hide a canary.
template <class Broken>
std::string caught() {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const RunResult result = run("everyday", seed, [](std::unique_ptr<worker::WorkerCore> core) {
      return std::make_unique<Broken>(std::move(core));
    });
    if (!result.violation.empty()) {
      return result.violation;
    }
  }
  return "";
}

TEST(Simulation, IsDecidedByItsSeedAlone) {
  for (const char* scenario : {"everyday", "cluster", "machines", "tenants", "by_hand"}) {
    const RunResult first = run(scenario, 7);
    const RunResult again = run(scenario, 7);
    EXPECT_EQ(first.trace_hash, again.trace_hash) << scenario;
    EXPECT_EQ(first.trace_lines, again.trace_lines) << scenario;
    EXPECT_NE(first.trace_hash, run(scenario, 8).trace_hash) << scenario;
  }
}

// Idle connections were closed in the order of their addresses in memory.
TEST(Simulation, DoesNotDependOnAddressesInMemory) {
  const RunResult first = run("cluster", 1925);
  EXPECT_EQ(first.trace_hash, run("cluster", 1925).trace_hash);
}

// A hedged request had the killer beside it at two workers at once, and was refused with 422. So
// was a request that was sent to the second worker of a hedged killer.
TEST(Simulation, BlamesNoNeighbourOfAHedgedKiller) {
  EXPECT_EQ(run("cluster", 978).violation, "");
  EXPECT_EQ(run("everyday", 3403).violation, "");
}

TEST(Simulation, ServesEverythingWhenNothingFails) {
  const RunResult result = run("everyday", 4);
  EXPECT_EQ(result.violation, "");
  EXPECT_GT(result.counts.served, 0U);
}

// The first seeds, together.
RunResult first_seeds(const std::string& scenario, uint64_t seeds) {
  RunResult all;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const RunResult result = run(scenario, seed);
    EXPECT_EQ(result.violation, "") << seed;
    all.counts.kills += result.counts.kills;
    all.counts.blamed += result.counts.blamed;
    all.pairs_suspected += result.pairs_suspected;
    all.streams_continued += result.streams_continued;
    all.rows_reused += result.rows_reused;
    all.counts.tokens_cached += result.counts.tokens_cached;
    all.counts.from_cache += result.counts.from_cache;
    all.later.accepted += result.later.accepted;
    all.later.answered += result.later.answered;
    all.later.deleted += result.later.deleted;
  }
  return all;
}

// In each run, every complete reply has the oracle's text, which depends on every row. So these
// counts say that the hard ways to it were taken.
TEST(Simulation, GivesTheRightTextsOnEveryWay) {
  const RunResult all = first_seeds("everyday", 120);
  // Rows that arrive damaged are redone elsewhere, and the pair is suspected.
  EXPECT_GT(all.pairs_suspected, 0U);
  // A stream whose worker died goes on at another one.
  EXPECT_GT(all.streams_continued, 20U);
  // Prompts use the rows of others that begin alike.
  EXPECT_GT(all.rows_reused, 3000U);
  // One request crashes each worker that runs it. After two crashes it is refused; the others keep
  // their ends and texts.
  EXPECT_GT(all.counts.kills, 50U);
  EXPECT_GT(all.counts.blamed, 10U);
}

TEST(Simulation, SharesWithinATenantAndAnswersLater) {
  const RunResult all = first_seeds("tenants", 40);
  EXPECT_GT(all.counts.tokens_cached, 100U);
  EXPECT_GT(all.counts.from_cache, 10U);
  EXPECT_GT(all.later.answered, 200U);
  EXPECT_GT(all.later.deleted, 20U);
}

// Leaks the rows of an offer that has ended.
struct ForgetsOfferEnded final : BrokenCore {
  using BrokenCore::BrokenCore;
  void step(const Event& event, Instant now, Effects& effects) override {
    if (!std::holds_alternative<worker::OfferEnded>(event) || ++offers_ended_ != 2) {
      BrokenCore::step(event, now, effects);
    }
  }
  int offers_ended_ = 0;
};
TEST(SimulationCanary, FindsALeakedOffer) { EXPECT_NE(caught<ForgetsOfferEnded>(), ""); }

// Delivers one token twice.
struct DeliversTwice final : BrokenCore {
  using BrokenCore::BrokenCore;
  void step(const Event& event, Instant now, Effects& effects) override {
    Effects once;
    BrokenCore::step(event, now, once);
    for (const Effect& effect : once) {
      effects.push_back(effect);
      if (const auto* deliver = std::get_if<worker::Deliver>(&effect);
          deliver != nullptr && deliver->finish == FinishReason::kNone) {
        effects.push_back(effect);
      }
    }
  }
};
TEST(SimulationCanary, FindsATokenDeliveredTwice) {
  EXPECT_NE(caught<DeliversTwice>().find("the oracle's text"), std::string::npos);
}

// Ends a request twice.
struct EndsTwice final : BrokenCore {
  using BrokenCore::BrokenCore;
  void step(const Event& event, Instant now, Effects& effects) override {
    BrokenCore::step(event, now, effects);
    if (!effects.empty() && std::holds_alternative<worker::EndRequest>(effects.back())) {
      effects.push_back(Effect(effects.back()));
    }
  }
};
TEST(SimulationCanary, FindsARequestThatEndsTwice) {
  EXPECT_NE(caught<EndsTwice>().find("ends exactly once"), std::string::npos);
}

// Frees rows that a stopped peer may still write.
struct TrustsEveryPeer final : BrokenCore {
  using BrokenCore::BrokenCore;
  void step(const Event& event, Instant now, Effects& effects) override {
    if (std::holds_alternative<worker::FetchReleased>(event)) {
      return;
    }
    Event changed = event;
    if (auto* failed = std::get_if<worker::FetchFailed>(&changed)) {
      failed->region_safe = true;
    }
    BrokenCore::step(changed, now, effects);
  }
};
TEST(SimulationCanary, FindsRowsGivenOnThatMayStillBeWritten) {
  EXPECT_NE(caught<TrustsEveryPeer>(), "");
}

// Decodes before the rows have arrived.
struct CannotWait final : BrokenCore {
  using BrokenCore::BrokenCore;
  void step(const Event& event, Instant now, Effects& effects) override {
    if (std::holds_alternative<worker::RowsFetched>(event)) {
      return;
    }
    BrokenCore::step(event, now, effects);
    for (const Effect& effect : Effects(effects)) {
      if (const auto* fetch = std::get_if<worker::StartFetch>(&effect)) {
        BrokenCore::step(worker::RowsFetched{fetch->request}, now, effects);
      }
    }
  }
};
TEST(SimulationCanary, FindsADecodeThatDoesNotAwaitItsRows) {
  EXPECT_NE(caught<CannotWait>().find("decoding starts only"), std::string::npos);
}

// Treats every prompt as the beginning of every other one.
struct TellsNoPromptsApart final : BrokenCore {
  using BrokenCore::BrokenCore;
  void step(const Event& event, Instant now, Effects& effects) override {
    Event changed = event;
    if (auto* arrived = std::get_if<worker::RequestArrived>(&changed)) {
      arrived->prompt = worker::make_prompt(std::vector<Token>(arrived->prompt_tokens, 7));
    }
    BrokenCore::step(changed, now, effects);
  }
};
TEST(SimulationCanary, FindsRowsOfAnotherPrompt) {
  EXPECT_NE(caught<TellsNoPromptsApart>().find("the oracle's text"), std::string::npos);
}

// Keeps more rows than it reports.
struct TrimsNothing final : BrokenCore {
  using BrokenCore::BrokenCore;
  void step(const Event& event, Instant now, Effects& effects) override {
    BrokenCore::step(event, now, effects);
    std::erase_if(effects, [](const Effect& effect) {
      return std::holds_alternative<worker::TrimSequence>(effect);
    });
  }
};
TEST(SimulationCanary, FindsRowsThatShouldBeGone) { EXPECT_NE(caught<TrimsNothing>(), ""); }

// Answers the failures of peers and faults as if the client's request were wrong.
struct BlamesTheClient final : BrokenCore {
  using BrokenCore::BrokenCore;
  void step(const Event& event, Instant now, Effects& effects) override {
    BrokenCore::step(event, now, effects);
    for (Effect& effect : effects) {
      if (auto* failed = std::get_if<worker::FailRequest>(&effect)) {
        failed->error.code = ErrorCode::kCancelled;
      }
    }
  }
};
TEST(SimulationCanary, FindsAClientThatIsBlamed) {
  EXPECT_NE(caught<BlamesTheClient>().find("never called wrong"), std::string::npos);
}

// Stops running its engine after a while, so a request waits forever.
struct StopsRunning final : BrokenCore {
  using BrokenCore::BrokenCore;
  void step(const Event& event, Instant now, Effects& effects) override {
    if (!std::holds_alternative<worker::EngineFree>(event) || ++steps_ < 100) {
      BrokenCore::step(event, now, effects);
    }
  }
  int steps_ = 0;
};
TEST(SimulationCanary, FindsARequestThatHangs) {
  EXPECT_NE(caught<StopsRunning>().find("soon after the last fault"), std::string::npos);
}

}  // namespace
}  // namespace pdjob::simulation
