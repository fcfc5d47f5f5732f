// Reads the facts of an open model that both ends of a KV transfer compare. Pure, except for
// reading the file.
#pragma once

#include <string>

#include "common/result.h"
#include "engine/engine.h"
#include "engine/kv_spans.h"

struct llama_model;

namespace pdjob::engine {

// xxh3-128 (hex) of the file's size, its GGUF header and tensor directory, and the first 4 KiB of
// each tensor. So two checkpoints of one architecture differ, and the file need not be read in
// full.
Result<std::string> model_digest(const std::string& path);

// xxh3-128 (hex) of all bytes of a file.
Result<std::string> file_digest(const std::string& path);

// True if the model says how the hidden states of its tokens become an embedding.
bool names_pooling(const llama_model& model);

Result<ModelFacts> read_facts(const llama_model& model, const KvLayout& layout,
                              const EngineConfig& config);

}  // namespace pdjob::engine
