// The real model with its KV in a GPU's memory. If PDJOB_GPU_CUDART names a CUDA runtime (`./dev
// gpu`), it uses the real GPU, which also computes. Otherwise it uses the double of tests/support
// in its unified mode, where the CPU computes.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>

#include "engine/engine.h"

namespace pdjob::engine {

inline bool gpu_is_real() { return std::getenv("PDJOB_GPU_CUDART") != nullptr; }

inline EngineConfig in_gpu(EngineConfig config) {
  config.gpu = true;
  config.cpu_computes_in_gpu_memory = !gpu_is_real();
  config.cuda.library = gpu_is_real() ? std::getenv("PDJOB_GPU_CUDART") : PDJOB_FAKE_CUDART;
  return config;
}

// While one exists, the CPU may touch the memory that the double maps during that time.
class UnifiedMemory {
 public:
  UnifiedMemory() { ::setenv("FAKE_CUDA_UNIFIED", "1", 1); }
  ~UnifiedMemory() { ::unsetenv("FAKE_CUDA_UNIFIED"); }
  UnifiedMemory(const UnifiedMemory&) = delete;
  UnifiedMemory& operator=(const UnifiedMemory&) = delete;
};

}  // namespace pdjob::engine
