#include "kvtransfer/shard_plan.h"

#include <algorithm>
#include <string>

namespace pdjob::kvtransfer {
namespace {

// How one end splits the heads. Each run of `heads_per_rank` heads is on `replicas` consecutive
// ranks, as vLLM, SGLang and Megatron place them.
struct Split {
  uint32_t heads_per_rank = 1;
  uint32_t replicas = 1;

  uint32_t first_head(uint32_t rank) const { return rank / replicas * heads_per_rank; }
};

Result<Split> split(const ShardedKv& kv, uint32_t ranks) {
  const auto refuse = [](const std::string& why) {
    return Error{ErrorCode::kUnsupported, "KV cannot be split: " + why};
  };
  if (ranks == 0 || kv.kv_heads == 0 || kv.head_bytes == 0 || kv.layers == 0 ||
      kv.windows_per_layer == 0) {
    return refuse("there must be ranks, layers, windows, heads and bytes of a head");
  }
  if (kv.kv_heads % ranks == 0) {
    return Split{.heads_per_rank = kv.kv_heads / ranks};
  }
  if (ranks % kv.kv_heads == 0) {
    return Split{.replicas = ranks / kv.kv_heads};
  }
  return refuse(std::to_string(kv.kv_heads) + " KV heads over " + std::to_string(ranks) +
                " ranks: one must divide the other");
}

// The replicas of a run take turns serving the decode ranks that want it.
uint32_t choose_replica(const Split& from, uint32_t run, uint32_t wanted_before) {
  return run * from.replicas + wanted_before % from.replicas;
}

}  // namespace

Result<uint64_t> shard_row_bytes(const ShardedKv& kv, uint32_t ranks) {
  PDJOB_TRY(const Split shape, split(kv, ranks));
  return uint64_t{shape.heads_per_rank} * kv.head_bytes;
}

Result<std::vector<ShardPair>> plan_shards(const ShardedKv& kv, uint32_t prefill_ranks,
                                           uint32_t decode_ranks) {
  PDJOB_TRY(const Split from, split(kv, prefill_ranks));
  PDJOB_TRY(const Split to, split(kv, decode_ranks));
  std::vector<ShardPair> pairs;
  // How often each run of the prefill end was wanted.
  std::vector<uint32_t> wanted(kv.kv_heads / from.heads_per_rank);
  for (uint32_t decode_rank = 0; decode_rank < decode_ranks; ++decode_rank) {
    const uint32_t first = to.first_head(decode_rank);
    const uint32_t end = first + to.heads_per_rank;
    for (uint32_t head = first; head < end;) {
      const uint32_t run = head / from.heads_per_rank;
      const uint32_t run_first = run * from.heads_per_rank;
      const uint32_t run_end = std::min(run_first + from.heads_per_rank, end);
      ShardPair& pair =
          pairs.emplace_back(ShardPair{.prefill_rank = choose_replica(from, run, wanted[run]++),
                                       .decode_rank = decode_rank,
                                       .spans = {}});
      for (uint32_t window = 0; window < kv.layers * kv.windows_per_layer; ++window) {
        pair.spans.push_back({.window = window,
                              .source_offset = uint64_t{head - run_first} * kv.head_bytes,
                              .target_offset = uint64_t{head - first} * kv.head_bytes,
                              .bytes = uint64_t{run_end - head} * kv.head_bytes});
      }
      head = run_end;
    }
  }
  return pairs;
}

}  // namespace pdjob::kvtransfer
