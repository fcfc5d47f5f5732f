// Engine on libllama, on the CPU or one GPU: one context with one stream per sequence. In engine/,
// only the files llama_*, kv_spans, shared_kv, gpu_kv and model_facts use libllama.
#pragma once

#include <memory>

#include "common/result.h"
#include "engine/engine.h"

namespace pdjob::engine {

// Fails with kUnsupported if the model's KV cannot be transferred row by row, with kNotFound or
// kCorrupt if the file is missing or damaged.
Result<std::unique_ptr<Engine>> open_llama_engine(const EngineConfig& config);

}  // namespace pdjob::engine
