// The two ends of a KV bench: endpoints of stand-alone workers, each process on its own core.
#pragma once

#include <functional>
#include <utility>

#include <sched.h>

#include "common/check.h"
#include "common/os/real_clock.h"
#include "kvtransfer/kv_endpoint.h"

namespace pdjob::bench {

inline kvtransfer::EndpointOptions options(const char* engine_id,
                                           kvtransfer::TransportKind transport,
                                           std::function<void(kvtransfer::EndpointEvent)> sink) {
  return {.config = {.transport = transport}, .engine_id = engine_id, .sink = std::move(sink)};
}

// Pins the process to one core, as two workers would have one each. Without it the scheduler may
// put both on one core, and the bench would measure the scheduler.
inline void keep_to_core(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  PDJOB_CHECK(::sched_setaffinity(0, sizeof cores, &cores) == 0);
}

inline Instant soon() { return real_now() + std::chrono::seconds(60); }

}  // namespace pdjob::bench
