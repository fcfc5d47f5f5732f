// What an engine is built from. Value.
#pragma once

#include <cstdint>
#include <string>

#include "common/config_reader.h"
#include "common/time.h"

namespace pdjob::engine {

enum class EngineKind { kLlama, kFake };
enum class KvType { kF16, kQ8_0 };

struct EngineConfig {
  EngineKind kind = EngineKind::kLlama;
  std::string model_path;          // Absolute path of a GGUF file; empty for the fake engine.
  std::string served_name;         // Empty: the file's name without its ending.
  KvType kv_type = KvType::kQ8_0;  // q8_0: every batch composition and chunking gives the same
                                   // logits (docs/determinism.md).
  uint32_t threads = 1;
  uint32_t sequences = 8;  // Decoded or held at once.
  uint32_t tokens_per_sequence =
      2048;                     // Prompt and output; rounded up so that a window is whole pages.
  uint32_t batch_tokens = 512;  // Of one step, over all sequences.
  bool shared_kv = true;    // KV memory in one sealed memfd per sequence, for the shm transport.
  bool gpu = false;         // KV is in the GPU's memory (and, but for the fake engine, the model).
  uint32_t gpu_layers = 0;  // What the GPU computes, the output counted as one; 0: all with `gpu`,
                            // else none.
  // Which GPU, and the CUDA runtime: as in kvtransfer.nccl, which has their keys.
  uint32_t device = 0;
  std::string cuda_library = "libcudart.so.13";
  // No key, for tests where no GPU is: with `gpu`, libllama computes on the CPU, in memory of a
  // "GPU" that the CPU reaches as its own.
  bool cpu_computes_in_gpu_memory = false;
  Duration fake_delay_per_token{};  // The fake engine sleeps this long for each token of a step.
  // For tests: the fake engine aborts, or hangs, when it computes this token. 0: it does not.
  uint32_t fake_crash_on_token = 0;
  uint32_t fake_hang_on_token = 0;
};

const char* to_string(KvType type);

// Declares the keys of `engine:` (all but model_path and served_name, which come from the job's
// `model:`).
void read(ConfigReader& in, EngineConfig& config);

}  // namespace pdjob::engine
