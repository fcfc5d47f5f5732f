// Scenario: the kind of jobs, load and faults that a simulation draws from. A file in
// tests/simulation/scenarios; the seed chooses within its ranges. Value.
#pragma once

#include <cstdint>
#include <string>

#include "common/random.h"
#include "common/result.h"
#include "common/time.h"

namespace pdjob::simulation {

// Both ends are possible. In a file: "3" or "1..8".
struct Range {
  uint32_t low = 0;
  uint32_t high = 0;
  uint32_t draw(Random& random) const {
    return low + static_cast<uint32_t>(random.below(uint64_t{high} - low + 1));
  }
};

// Each weight says how often that fault is chosen, against the others of its run.
struct FaultWeights {
  uint32_t kill = 0, freeze = 0, slow = 0, hang = 0;
  uint32_t step_fails = 0;
  uint32_t kv_link_breaks = 0, connection_breaks = 0, goes_dead = 0, partition = 0;
  uint32_t node_lost = 0;  // With agents: the agent is killed, or its machine loses its power.
  uint32_t agent_link_breaks = 0;
  uint32_t trainer = 0;        // An order: a pause, its end, or other weights.
  uint32_t reorganise = 0;     // An order: one more process, one less, or another role.
  uint32_t starve = 0;         // A process gets no core for a while.
  uint32_t limps = 0;          // A worker computes slowly as long as it lives.
  uint32_t node_limps = 0;     // All workers on a node do, also those that come.
  uint32_t poison = 0;         // A decode worker has a wrong KV address of a prefill worker.
  uint32_t launcher_dies = 0;  // By kill -9, at any step. Another one adopts the job.
};

struct Scenario {
  std::string name;

  Range nodes{2, 4};
  Range routers{1, 1};
  Range models{1, 1};
  Range prefill{1, 3}, decode{1, 3}, both{0, 0};  // Workers of each model.
  Range sequences{1, 8}, rows{128, 128}, batch_tokens{8, 64}, chunk_tokens{4, 64};
  double shared_kv = 0.5;  // The share of the runs that have it; so for all shares.
  double two_hop = 0.3;
  double limits = 0.3;  // Few requests at once for each worker.
  double short_queues = 0.2;
  double hedged = 0.3;
  double any_policy = 1;       // Otherwise round robin.
  double ends_heard_soon = 0;  // By the launcher.
  Range tenants{0, 0};         // 0: everybody may ask.
  double asynchronous = 0;
  double cache = 0;
  double by_hand = 0;     // Without a launcher.
  double agents = 0;      // Nodes have agents.
  double lasts = 0;       // The same, also that of the routers: processes outlive their launcher.
  double scales = 0;      // Groups change their size by themselves.
  double spares = 0;      // Each group has a spare.
  double stragglers = 0;  // Slow workers are replaced.
  double slow_steps = 0;  // Engines take 20 ms for a step, as a large model's do.

  Range requests{10, 60};
  Duration load{};
  double bursts = 0.3;
  Range prompt_tokens{1, 70}, output_tokens{1, 30}, choices{1, 3};
  double leaving = 0.2;
  double killer = 0.3;
  double repeats = 0;
  double background = 0;

  double faultless = 0.25;
  Range faults{0, 12};
  FaultWeights weights;
  double messages_lost = 0;  // Chances, in a run with faults.
  double push_fails = 0, row_damaged = 0, step_fails = 0, reserve_fails = 0, spawn_fails = 0,
         messages_twice = 0, agent_messages_lost = 0;
};

// kInvalidArgument: all errors of the file.
Result<Scenario> read_scenario(const std::string& path);

}  // namespace pdjob::simulation
