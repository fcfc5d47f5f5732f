// The real model for engine tests. Its path is PDJOB_TEST_MODEL from the environment, or the
// configured default. Tests skip without it.
#pragma once

#include <cstdlib>
#include <string>

#include "engine/engine.h"

namespace pdjob::engine {

inline std::string test_model() {
  const char* path = std::getenv("PDJOB_TEST_MODEL");
  return path != nullptr ? path : PDJOB_TEST_MODEL_DEFAULT;
}

inline constexpr const char* kNoTestModel =
    "no model: set PDJOB_TEST_MODEL to the path of a GGUF file (./dev test does)";

inline EngineConfig test_config() {
  return {.model_path = test_model(),
          .threads = 1,
          .sequences = 4,
          .tokens_per_sequence = 512,
          .batch_tokens = 256};
}

}  // namespace pdjob::engine
