// `engine: fake`: a deterministic test double of the engine, for simulations and integration tests.
// Its default served name is "fake".
//
// Its tokens are bytes and a few control tokens. Each step writes KV rows made of (token, position)
// into the sequence's windows. It computes logits from all rows that it reads back, from row 0 on.
// So a row that a transfer lost, damaged or misplaced changes the output.
#pragma once

#include <memory>

#include "common/result.h"
#include "engine/engine.h"

namespace pdjob::engine {

inline constexpr Token kFakeStart = 256;  // "<|im_start|>"
inline constexpr Token kFakeEnd = 257;    // "<|im_end|>": ends a generation.
inline constexpr uint32_t kFakeVocabulary = 258;
inline constexpr uint32_t kFakeEmbeddingDim = 16;

Result<std::unique_ptr<Engine>> open_fake_engine(const EngineConfig& config);

}  // namespace pdjob::engine
