// The real model with its KV in a GPU's memory: of the real GPU, which also computes, where
// PDJOB_GPU_CUDART names a CUDA runtime (`./dev gpu`); else of the double of tests/support in its
// unified mode, in which the CPU computes.
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
  config.cuda_library = gpu_is_real() ? std::getenv("PDJOB_GPU_CUDART") : PDJOB_FAKE_CUDART;
  return config;
}

// The CPU may touch what is mapped of the double's memory while one lives, and only that.
class UnifiedMemory {
 public:
  UnifiedMemory() { ::setenv("FAKE_CUDA_UNIFIED", "1", 1); }
  ~UnifiedMemory() { ::unsetenv("FAKE_CUDA_UNIFIED"); }
  UnifiedMemory(const UnifiedMemory&) = delete;
  UnifiedMemory& operator=(const UnifiedMemory&) = delete;
};

}  // namespace pdjob::engine
