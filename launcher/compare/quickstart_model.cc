#include "launcher/compare/quickstart_model.h"

#include <chrono>

namespace pdjob::launcher {

// docs/measurements/trace.md has the figures, and the commands that made them.
EngineModel quickstart_model() {
  using std::chrono::microseconds;
  using std::chrono::nanoseconds;
  EngineModel model;
  model.name = "SmolLM2-135M in q8_0, one thread";
  model.source = ModelSource::kMeasured;
  model.step = {.fixed = microseconds(3093),
                .per_prompt_token = microseconds(2223),
                .per_sequence = microseconds(4303),
                .per_prompt_read = nanoseconds(6167),
                .per_context_read = nanoseconds(7020)};
  model.kv_per_token = microseconds(5);
  model.unmeasured = {"kv.per_token_us"};
  model.prefill = {.median = 0.024, .largest = 0.118, .probes = 25};
  model.decode = {.median = 0.182, .largest = 0.553, .probes = 20};
  model.mixed = {.median = 0.027, .largest = 0.278, .probes = 15};
  model.engine = "pdjob's own engine";
  model.date = "2026-11";
  model.device = "one of two shared cores of a virtual machine";
  model.notes = {"kv.per_token_us is a choice: KV never limits this engine"};
  return model;
}

}  // namespace pdjob::launcher
