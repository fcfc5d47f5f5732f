// ModelFolder: a model in Hugging Face's format, as its folder describes it by config.json and the
// sizes of its files. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

namespace pdjob::engine {

// 0: the folder does not say it, or cannot be read. Value.
struct ModelFolder {
  uint32_t heads = 0;         // Of attention.
  uint32_t kv_heads = 0;      // Each tensor-parallel rank has at least one, if need be a copy.
  bool latent = false;        // Multi-head latent attention (MLA): all ranks hold the same KV.
  uint64_t weight_bytes = 0;  // Of its safetensors.
  friend bool operator==(const ModelFolder&, const ModelFolder&) = default;
};

ModelFolder read_model_folder(const std::string& path);

}  // namespace pdjob::engine
