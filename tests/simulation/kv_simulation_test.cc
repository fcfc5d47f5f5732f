// Tests the simulator of KV transfers. The seed alone decides a run. The invariants catch sessions
// that are broken on purpose.
#include <gtest/gtest.h>

#include "tests/simulation/kv_world.h"

namespace pdjob::simulation {
namespace {

std::string caught(const KvSabotage& sabotage) {
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    const KvRunResult result = simulate_kv({.seed = seed, .sabotage = sabotage});
    if (!result.violation.empty()) {
      return result.violation;
    }
  }
  return "";
}

bool is_found(const KvSabotage& sabotage, const char* violation) {
  const std::string found = caught(sabotage);
  EXPECT_NE(found.find(violation), std::string::npos) << "found: '" << found << "'";
  return true;
}

TEST(KvSimulation, IsDecidedByItsSeedAlone) {
  const KvRunResult first = simulate_kv({.seed = 7});
  EXPECT_EQ(first.trace_hash, simulate_kv({.seed = 7}).trace_hash);
  EXPECT_NE(first.trace_hash, simulate_kv({.seed = 8}).trace_hash);
}

TEST(KvSimulation, MovesEverythingWhenNothingFails) {
  const KvRunResult result = simulate_kv({.seed = 4});
  EXPECT_EQ(result.violation, "");
  EXPECT_GT(result.done, 0);
  EXPECT_EQ(result.failed, 0);
}

TEST(KvSimulationCanary, FindsADigestThatIsNotCompared) {
  is_found({.receive_event =
                [](ReceiveSession::Event& event) {
                  if (auto* arrived = std::get_if<ReceiveSession::RowsArrived>(&event)) {
                    arrived->digest = 1;
                  } else if (auto* commit = std::get_if<ReceiveSession::CommitReceived>(&event)) {
                    commit->digest = 1;
                  }
                  return true;
                }},
           "committed rows are the sender's");
}

TEST(KvSimulationCanary, FindsRowsGivenOnBeforeTheSenderHasStopped) {
  is_found({.receive_effects =
                [](std::vector<ReceiveSession::Effect>& effects) {
                  for (ReceiveSession::Effect& effect : effects) {
                    if (auto* failed = std::get_if<ReceiveSession::ReportFailed>(&effect)) {
                      failed->region_safe = true;
                    }
                  }
                }},
           "given on");
}

TEST(KvSimulationCanary, FindsAStoppedSenderThatIsTakenForDead) {
  is_found({.receive_event =
                [](ReceiveSession::Event& event) {
                  if (auto* lost = std::get_if<ReceiveSession::LinkLost>(&event)) {
                    lost->loss = kvtransfer::LinkLoss::kClosed;
                  }
                  return true;
                }},
           "rows that were given on are not written");
}

TEST(KvSimulationCanary, FindsAFetchThatEndsTwice) {
  is_found({.receive_effects =
                [](std::vector<ReceiveSession::Effect>& effects) {
                  for (size_t i = 0, size = effects.size(); i < size; ++i) {
                    if (std::holds_alternative<ReceiveSession::ReportDone>(effects[i])) {
                      effects.push_back(ReceiveSession::Effect(effects[i]));
                    }
                  }
                }},
           "a fetch ends once");
}

TEST(KvSimulationCanary, FindsAnOfferThatEndsTwice) {
  is_found({.send_effects =
                [](std::vector<SendSession::Effect>& effects) {
                  if (!effects.empty() &&
                      std::holds_alternative<SendSession::ReportFailed>(effects.back())) {
                    effects.push_back(SendSession::Effect(effects.back()));
                  }
                }},
           "an offer ends once");
}

TEST(KvSimulationCanary, FindsAReceiverWithoutDeadlines) {
  is_found({.receive_event =
                [](ReceiveSession::Event& event) {
                  return !std::holds_alternative<ReceiveSession::TimePassed>(event);
                }},
           "a fetch ends by its deadline");
}

TEST(KvSimulationCanary, FindsASenderWithoutDeadlines) {
  is_found({.send_event =
                [](SendSession::Event& event) {
                  return !std::holds_alternative<SendSession::TimePassed>(event);
                }},
           "every offer and every grant ends");
}

TEST(KvSimulationCanary, FindsAPushThatNobodyTimes) {
  is_found({.send_event =
                [](SendSession::Event& event) {
                  return !std::holds_alternative<SendSession::RangeStarted>(event);
                }},
           "a range that stopped is given up");
}

// Without PeerWaits the prompt of a request that queues for longer than a lease is computed twice.
TEST(KvSimulationCanary, FindsALeaseThatEndsWhileItsReceiverWaits) {
  is_found({.send_event =
                [](SendSession::Event& event) {
                  return !std::holds_alternative<SendSession::PeerWaits>(event);
                }},
           "where nothing fails all is done");
}

// Without FailLink a peer that ignores a CANCEL keeps the rows for as long as the link lives.
TEST(KvSimulationCanary, FindsACancelThatNobodyInsistsOn) {
  is_found({.receive_effects =
                [](std::vector<ReceiveSession::Effect>& effects) {
                  std::erase_if(effects, [](const ReceiveSession::Effect& effect) {
                    return std::holds_alternative<ReceiveSession::FailLink>(effect);
                  });
                }},
           "gives its rows on");
}

}  // namespace
}  // namespace pdjob::simulation
