// shard_plan: which bytes of a row go from which prefill rank to which decode rank. The two ends
// may split a model's heads over different numbers of ranks (tensor parallelism).
//
// A token's row of a window is its KV heads in order. A rank's row holds only that rank's heads, so
// a pair of ranks shares one run of heads, or none. The embedded engine runs one rank, so its
// transfers need no plan. The connector of an engine with several ranks uses the plan to find its
// links, and the piece of each row for each link. Sockets and memory are unknown to it. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "common/result.h"

namespace pdjob::kvtransfer {

// The KV of a whole model, before the split. Equal on both ends, which the fingerprint enforces.
struct ShardedKv {
  uint32_t layers = 1;
  uint32_t kv_heads = 1;    // 1 with one latent for all heads (MLA), which every rank holds.
  uint32_t head_bytes = 1;  // Bytes of one head of one token in one window.
  // K and V, or one latent.
  uint32_t windows_per_layer = 2;
};

// A run of bytes within a row of one window. It moves for every row of a transfer.
struct ShardSpan {
  uint32_t window = 0;         // Index of the window on both ranks: layer by layer, K before V.
  uint64_t source_offset = 0;  // Within the prefill rank's row.
  uint64_t target_offset = 0;  // Within the decode rank's row.
  uint64_t bytes = 0;
  friend bool operator==(const ShardSpan&, const ShardSpan&) = default;
};

struct ShardPair {
  uint32_t prefill_rank = 0;
  uint32_t decode_rank = 0;
  std::vector<ShardSpan> spans;  // In window order; never empty.
  friend bool operator==(const ShardPair&, const ShardPair&) = default;
};

// Returns the bytes of a rank's row of one window. kUnsupported: heads and ranks do not divide
// evenly.
Result<uint64_t> shard_row_bytes(const ShardedKv& kv, uint32_t ranks);

// Returns the pairs that exchange bytes, ordered by decode rank, then prefill rank. Every byte of
// every decode rank is named exactly once. Several prefill ranks hold the same heads if there are
// more ranks than heads. They then serve in turn, so that the load is even. kUnsupported: as above;
// the text says what to change.
Result<std::vector<ShardPair>> plan_shards(const ShardedKv& kv, uint32_t prefill_ranks,
                                           uint32_t decode_ranks);

}  // namespace pdjob::kvtransfer
