// How much memory the KV of a model's tokens takes, by its file's description. A plan uses it
// before any engine has opened the model. Pure, except for reading the file.
#pragma once

#include <cstdint>
#include <string>

#include "common/result.h"
#include "engine/engine_config.h"

namespace pdjob::engine {

// kCorrupt: the file is not GGUF, or does not tell. Models whose layers keep something else than
// KV rows may take more or less.
Result<uint64_t> kv_bytes_per_token(const std::string& path, KvType type);

}  // namespace pdjob::engine
