// shard_plan: which bytes of a row go from which prefill rank to which decode rank, when the two
// ends split a model's heads over different numbers of ranks (tensor parallelism).
//
// A token's row of a window is its KV heads one after the other; a rank's row holds the heads of
// that rank only, so each pair of ranks shares one run of heads, or none. The embedded engine runs
// one rank, and its transfers need no plan; this is what the connector of an engine with several
// ranks asks to know its links and the piece of each row that goes over each. Knows no sockets, no
// memory. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "common/result.h"

namespace pdjob::kvtransfer {

// Of a whole model, before it is split. Equal on both ends, as the fingerprint holds them to be.
struct ShardedKv {
  uint32_t layers = 1;
  uint32_t kv_heads = 1;    // With one latent for all heads (MLA): 1, on every rank.
  uint32_t head_bytes = 1;  // Of one head of one token in one window.
  // Per layer: K and V, or one latent.
  uint32_t windows_per_layer = 2;
};

// A run of bytes of each row of one window: it moves for every row of a transfer.
struct ShardSpan {
  uint32_t window = 0;         // Of both ranks: layer by layer, K before V.
  uint64_t source_offset = 0;  // Within the prefill rank's row.
  uint64_t target_offset = 0;  // Within the decode rank's row.
  uint64_t bytes = 0;
  friend bool operator==(const ShardSpan&, const ShardSpan&) = default;
};

struct ShardPair {
  uint32_t prefill_rank = 0;
  uint32_t decode_rank = 0;
  std::vector<ShardSpan> spans;  // In order of their windows; never empty.
  friend bool operator==(const ShardPair&, const ShardPair&) = default;
};

// Bytes of a rank's row of one window. kUnsupported: heads and ranks do not divide evenly.
Result<uint64_t> shard_row_bytes(const ShardedKv& kv, uint32_t ranks);

// The pairs between which something moves, by decode rank, then prefill rank. Every byte of every
// decode rank is named exactly once. What several prefill ranks hold alike (heads, where there are
// more ranks than heads) is taken from each of them in turn, so that no rank sends for two while
// another one rests. kUnsupported as above, and what to do about it.
Result<std::vector<ShardPair>> plan_shards(const ShardedKv& kv, uint32_t prefill_ranks,
                                           uint32_t decode_ranks);

}  // namespace pdjob::kvtransfer
