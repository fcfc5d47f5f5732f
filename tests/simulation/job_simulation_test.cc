// Tests the simulator of jobs. The seed alone decides a run. The invariants catch a Job core that
// is broken on purpose.
#include <gtest/gtest.h>

#include "tests/simulation/job_world.h"

namespace pdjob::simulation {
namespace {

using launcher::Effect;
using launcher::Event;

std::string caught(const JobRunOptions& sabotage) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    JobRunOptions options = sabotage;
    options.seed = seed;
    const JobRunResult result = simulate_job(options);
    if (!result.violation.empty()) {
      return result.violation;
    }
  }
  return "";
}

void expect_found(const JobRunOptions& sabotage, const char* violation) {
  const std::string found = caught(sabotage);
  EXPECT_FALSE(found.empty());
  EXPECT_NE(found.find(violation), std::string::npos) << "found: '" << found << "'";
}

TEST(JobSimulation, IsDecidedByItsSeedAlone) {
  const JobRunResult first = simulate_job({.seed = 7});
  EXPECT_EQ(first.trace_hash, simulate_job({.seed = 7}).trace_hash);
  EXPECT_NE(first.trace_hash, simulate_job({.seed = 8}).trace_hash);
}

TEST(JobSimulationCanary, FindsWorkersThatServeBeforeTheyAreProved) {
  expect_found({.effects =
                    [](std::vector<Effect>& effects) {
                      for (Effect& effect : effects) {
                        auto* send = std::get_if<launcher::Send>(&effect);
                        auto* told = send ? std::get_if<net::Membership>(&send->message) : nullptr;
                        for (size_t i = 0; told != nullptr && i < told->workers.size(); ++i) {
                          told->workers[i].standing = net::Standing::kServing;
                        }
                      }
                    }},
               "gets clients' requests, and no probe went through it");
}

TEST(JobSimulationCanary, FindsALostNodeThatIsNotNoticed) {
  expect_found(
      {.event = [](Event& event) { return !std::holds_alternative<launcher::NodeLost>(event); }},
      "");
}

TEST(JobSimulationCanary, FindsARetirementThatIsForgotten) {
  expect_found({.event =
                    [](Event& event) {
                      auto* exited = std::get_if<launcher::ProcessExited>(&event);
                      return exited == nullptr || exited->how != "exit code 0";
                    }},
               "");
}

TEST(JobSimulationCanary, FindsProbesWhoseAnswersAreMixedUp) {
  expect_found({.event =
                    [](Event& event) {
                      if (const auto* failed = std::get_if<launcher::ProbeFailed>(&event)) {
                        event = launcher::ProbeSucceeded{failed->probe, 1};
                      }
                      return true;
                    }},
               "no probe went through it");
}

TEST(JobSimulationCanary, FindsASpawnThatIsDoneTwice) {
  expect_found({.effects =
                    [](std::vector<Effect>& effects) {
                      for (size_t i = 0, size = effects.size(); i < size; ++i) {
                        if (auto* spawn = std::get_if<launcher::Spawn>(&effects[i])) {
                          launcher::Spawn again = *spawn;
                          again.incarnation.value += 1000000;
                          effects.push_back(again);
                        }
                      }
                    }},
               "is started while it runs");
}

TEST(JobSimulationCanary, FindsAKillThatIsNotCarriedOut) {
  expect_found({.effects =
                    [](std::vector<Effect>& effects) {
                      std::erase_if(effects, [](const Effect& effect) {
                        const auto* sent = std::get_if<launcher::SendSignal>(&effect);
                        return sent != nullptr && sent->signal == launcher::Signal::kKill;
                      });
                    }},
               "");
}

}  // namespace
}  // namespace pdjob::simulation
