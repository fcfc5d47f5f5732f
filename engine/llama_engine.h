// Engine over libllama, on the CPU or one GPU: one context with one stream per sequence. The door
// to llama.h, with the files named llama_*, kv_spans, shared_kv, gpu_kv and model_facts.
#pragma once

#include <memory>

#include "common/result.h"
#include "engine/engine.h"

namespace pdjob::engine {

// kUnsupported: the model's KV cannot be handed over row by row. kNotFound, kCorrupt: the file.
Result<std::unique_ptr<Engine>> open_llama_engine(const EngineConfig& config);

}  // namespace pdjob::engine
