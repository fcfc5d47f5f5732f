// What an engine says of its prefix cache, as vLLM publishes it (vllm/distributed/kv_events.py of
// vllm-project/vllm, and SGLang in the same form): one batch for each step of its scheduler, in
// msgpack. Events are lists of fields in older versions, and maps of named ones in newer; fields
// that nobody here knows are passed over. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/result.h"

namespace pdjob::net {

// A chain of blocks is in the cache from now on, each under the engine's own hash of itself and all
// before it.
struct KvBlocksStored {
  std::vector<uint64_t> hashes;
  std::optional<uint64_t> parent;  // The block before the first one; none: that begins the prompt.
  std::vector<uint32_t> tokens;    // Of all blocks: `block_size` for each.
  uint32_t block_size = 0;
  uint32_t group = 0;   // Layers of one kind have blocks of their own.
  std::string adapter;  // LoRA, or tenant_adapter(); empty: none.
};
// What tells apart the blocks of equal tokens that a worker keeps for different tenants. Empty:
// there are none.
std::string tenant_adapter(std::string_view tenant);

struct KvBlocksRemoved {
  std::vector<uint64_t> hashes;
  uint32_t group = 0;
};
struct KvBlocksCleared {};
using KvEvent = std::variant<KvBlocksStored, KvBlocksRemoved, KvBlocksCleared>;

// The events of a batch that tell which text's KV is in the GPU. Left out are other media, layers
// that do not look at all of a prompt, partial blocks, and blocks that more than their tokens and
// an adapter tells apart (images, salts). kCorrupt: it is no batch.
Result<std::vector<KvEvent>> decode_kv_events(std::string_view payload);

// A batch as vLLM would publish it, with events as lists. `unix_seconds`: its time. Requires: of
// all blocks of an event, the tokens.
std::string encode_kv_events(std::span<const KvEvent> events, double unix_seconds);

}  // namespace pdjob::net
