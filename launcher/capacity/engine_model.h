// EngineModel: how long the steps of one engine on one kind of machine take, and the KV transfers
// between two such engines; how far off that is, and where it comes from. A file of JSON holds one.
//
// It is measured on a running engine (engine_probes.h), or read from published measurements
// (published_runs.h). Whoever shows a figure of the second kind shows label() with it. Value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config/config_reader.h"
#include "common/result.h"
#include "launcher/simulator/step_time.h"

namespace pdjob::launcher {

enum class ModelSource : uint8_t { kMeasured, kRead };

// The relative errors of a model against the measurements of one kind: 0.02 is 2 %.
struct ModelError {
  double median = 0;
  double largest = 0;
  uint32_t probes = 0;  // 0: nothing of this kind was measured.
  friend bool operator==(const ModelError&, const ModelError&) = default;
};

// One measurement that the model was made of.
struct ModelProbe {
  std::string name;  // "prompt 512 x 2", "decode 8 at 1024", "kv 2048".
  double seconds = 0;
  double model_seconds = 0;  // What the model says.
  friend bool operator==(const ModelProbe&, const ModelProbe&) = default;
};

struct EngineModel {
  using Time = simulation::StepTime::Time;

  std::string name;
  ModelSource source = ModelSource::kMeasured;
  std::string read_from;  // "h100.json (vllm-bench)"; only of kRead.

  simulation::StepTime step;
  // Of a request, outside of the engine's steps: HTTP, tokenizing, the router. It is in no step.
  Time per_request{};
  Time kv_per_transfer{};
  Time kv_per_token{};
  uint64_t kv_tokens = 0;  // That an engine's KV memory holds; 0: unknown.
  // The names of times above that no measurement tells. They are zero, or taken from elsewhere;
  // `notes` say which.
  std::vector<std::string> unmeasured;

  ModelError prefill;
  ModelError decode;
  ModelError mixed;  // Steps with both; the model is not fitted to them.
  ModelError kv;

  std::string engine;  // "vllm 0.32.0"
  std::string date;    // "2026-11-28"
  std::string device;  // What the operator says of the machine.
  std::vector<std::string> notes;
  std::vector<ModelProbe> probes;

  friend bool operator==(const EngineModel&, const EngineModel&) = default;
};

inline constexpr uint32_t kModelProbesMax = 512;

// The declarations of the file's fields.
void read(ConfigReader& in, EngineModel& model);

// `name` is what errors call the file. kInvalidArgument: all errors as lines, each with the field.
Result<EngineModel> parse_engine_model(const std::string& name, const std::string& text);
Result<EngineModel> read_engine_model(const std::string& path);
// JSON that parse_engine_model() reads as the same model, with a line for each field.
std::string engine_model_json(const EngineModel& model);

// Leaves so many digits of each figure as a measurement has: four.
void round_figures(EngineModel& model);

// One line for people: "smollm2, measured 2026-11-28, errors (median/largest): prefill 2 %/9 %,
// decode 4 %/11 %". It says so if the model was read from published measurements.
std::string label(const EngineModel& model);

}  // namespace pdjob::launcher
