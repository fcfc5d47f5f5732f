#include "engine/threads/step_threads.h"

#include <algorithm>

namespace pdjob::engine {
namespace {

// An engine between two steps keeps its own threads. Otherwise another one would take them for a
// long step, just before they are needed.
uint64_t in_use(const EngineUse& engine, Instant now) {
  if (engine.computing > 0) {
    return engine.computing;
  }
  const bool has_work = engine.idle_since != Instant{} && now - engine.idle_since < kBetweenSteps;
  return has_work ? engine.own : 0;
}

}  // namespace

uint32_t threads_of_step(uint32_t own, std::span<const EngineUse> others, uint32_t cores,
                         Instant now) {
  uint64_t shared = own;
  uint64_t used = 0;
  for (const EngineUse& each : others) {
    shared += each.own;
    used += in_use(each, now);
  }
  shared = std::min<uint64_t>(shared, cores);
  const uint64_t idle = shared > used ? shared - used : 0;
  return std::max(own, static_cast<uint32_t>(idle));
}

}  // namespace pdjob::engine
