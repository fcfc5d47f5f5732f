// EngineSample: what an engine of another make says in its metrics. The text may be anything; it is
// read once, line by line. Value.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/recipes/engine_recipe.h"

namespace pdjob::worker {

// A histogram of Prometheus without its buckets.
struct LatencyTotal {
  double seconds = 0;
  uint64_t count = 0;
  LatencyTotal& operator+=(const LatencyTotal& more) {
    seconds += more.seconds;
    count += more.count;
    return *this;
  }
  friend bool operator==(const LatencyTotal&, const LatencyTotal&) = default;
};

struct EngineSample {
  uint64_t running = 0;
  uint64_t queued = 0;
  uint64_t in_flight = 0;  // HTTP requests under way.
  uint64_t kv_used = 0;    // Tokens; where the engine tells only a share, of 10,000.
  uint64_t kv_max = 0;
  uint64_t progress = 0;  // Grows while the engine works; the sum of its counters.
  uint64_t kv_received = 0;
  LatencyTotal ttft;
  LatencyTotal itl;
  LatencyTotal queue_time;
  LatencyTotal prefill_time;
  LatencyTotal kv_time;

  bool works() const { return running > 0 || in_flight > 0; }
  bool idle() const { return !works() && queued == 0; }
  friend bool operator==(const EngineSample&, const EngineSample&) = default;
};

// Reads Prometheus text. Series that it does not have, and values that are no count, read as 0.
EngineSample read_sample(const engine::RecipeMetrics& metrics, std::string_view text);

}  // namespace pdjob::worker
