// An engine's reports on its prefix cache, in vLLM's format (vllm/distributed/kv_events.py of
// vllm-project/vllm; SGLang uses the same): one batch per scheduler step, in msgpack. Older
// versions send an event as a list of fields, newer ones as a map. Unknown fields are skipped.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/result.h"

namespace pdjob::openai {

// A chain of blocks is now in the cache. Each block has the engine's own hash of itself and all
// blocks before it.
struct KvBlocksStored {
  std::vector<uint64_t> hashes;
  std::optional<uint64_t> parent;  // The block before the first one; empty: start of the prompt.
  std::vector<uint32_t> tokens;    // For all blocks, `block_size` each.
  uint32_t block_size = 0;
  uint32_t group = 0;   // Each kind of layer has its own blocks.
  std::string adapter;  // LoRA, or tenant_adapter(); empty: none.
};
// Distinguishes blocks of equal tokens that a worker keeps for different tenants. Empty without a
// tenant.
std::string tenant_adapter(std::string_view tenant);

struct KvBlocksRemoved {
  std::vector<uint64_t> hashes;
  uint32_t group = 0;
};
struct KvBlocksCleared {};
using KvEvent = std::variant<KvBlocksStored, KvBlocksRemoved, KvBlocksCleared>;

// The events about text KV in the GPU. Skips other media, layers that see only a part of a prompt,
// and partial blocks. Also skips blocks that differ by more than tokens and adapter (images,
// salts). kCorrupt: not a batch.
Result<std::vector<KvEvent>> decode_kv_events(std::string_view payload);

// A batch in vLLM's format, with events as lists. `unix_seconds` is its time. Requires: an event
// has the tokens of all its blocks.
std::string encode_kv_events(std::span<const KvEvent> events, double unix_seconds);

}  // namespace pdjob::openai
