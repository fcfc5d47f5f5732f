// The configuration of an engine. Value.
#pragma once

#include <cstdint>
#include <string>

#include "common/config/config_reader.h"
#include "common/time.h"
#include "engine/kernels/cpu_kernels.h"
#include "engine/recipes/foreign_config.h"
#include "gpu/gpu_config.h"

namespace pdjob::engine {

// kForeign: an engine of another make, which a worker runs as a child process.
enum class EngineKind { kLlama, kFake, kForeign };
enum class KvType { kF16, kQ8_0 };

struct EngineConfig {
  EngineKind kind = EngineKind::kLlama;
  // Absolute path of a GGUF file; empty for the fake engine. For a foreign engine, a path or a name
  // that it looks up itself.
  std::string model_path;
  std::string served_name;  // Empty for the file's name without its extension.
  // With q8_0, batch composition and chunking do not change the logits
  // (docs/explanation/determinism.md).
  KvType kv_type = KvType::kQ8_0;
  CpuKernels cpu = CpuKernels::kAuto;
  uint32_t threads = 1;
  // Steps also use threads of engines that have no work (engine/threads).
  bool lend_threads = true;
  // Not a key. The memory where engines of this machine meet for that (ThreadBoard); -1: none.
  // open_engine() takes it over.
  int threads_fd = -1;
  uint32_t sequences = 8;  // Sequences decoded or held at once.
  // Prompt and output; rounded up so that a window fills whole pages.
  uint32_t tokens_per_sequence = 2048;
  uint32_t batch_tokens = 512;  // Per step, over all sequences.
  bool shared_kv = true;       // KV memory in one sealed memfd per sequence, for the shm transport.
  uint32_t gpu_percent = 100;  // Of the GPU, with `gpu`; less than all only of a single one.
  bool gpu = false;  // The GPU's memory holds the KV and, except for the fake engine, the model.
  // Its GPUs are near each other, and its NICs, CPUs and memory near them, where that is known.
  bool near = true;
  // Layers that the GPU computes; the output counts as one. 0: all with `gpu`, otherwise none.
  uint32_t gpu_layers = 0;
  GpuConfig cuda;  // The job's section `gpu`. It has no keys here.
  // Has no key. The weights are in this process's own memory, so their file may change while the
  // engine runs, and ModelFacts::digest is of the whole file.
  bool own_weights = false;
  // For tests on machines with only a CPU; has no key. With `gpu`, libllama computes on the CPU, in
  // memory of a simulated GPU that the CPU can access.
  bool cpu_computes_in_gpu_memory = false;
  Duration fake_delay_per_step{};   // The fake engine sleeps this long in each step,
  Duration fake_delay_per_token{};  // The fake engine sleeps this long for each token of a step.
  // For tests: the fake engine aborts or hangs when it computes this token. 0: never.
  uint32_t fake_crash_on_token = 0;
  uint32_t fake_hang_on_token = 0;

  ForeignConfig foreign;  // Of kForeign.
};

const char* to_string(KvType type);

// Whether one open engine could serve as the other. False for engines of another make.
bool same_engine(const EngineConfig& one, const EngineConfig& other);

// Whether its steps may use threads of other engines: if their number cannot change a token.
bool borrows_threads(const EngineConfig& config);

// Declares the keys of `engine:`. model_path and served_name come from the job's `model:`.
void read(ConfigReader& in, EngineConfig& config);

}  // namespace pdjob::engine
