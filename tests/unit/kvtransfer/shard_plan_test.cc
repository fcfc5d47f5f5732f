// Compares the plan with a slow oracle that moves labelled bytes, over all small layouts.
#include "kvtransfer/shard_plan.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

namespace pdjob::kvtransfer {
namespace {

// Names a byte of the whole model's row: its head, and the byte within that head.
using Label = std::pair<uint32_t, uint64_t>;

bool divides_evenly(uint32_t heads, uint32_t ranks) {
  return heads % ranks == 0 || ranks % heads == 0;
}

// By definition, head h of H belongs to the rank at the same fraction of the ranks.
std::vector<Label> oracle_row(const ShardedKv& kv, uint32_t ranks, uint32_t rank) {
  std::vector<Label> row;
  for (uint32_t head = 0; head < kv.kv_heads; ++head) {
    const bool held = ranks <= kv.kv_heads ? head * ranks / kv.kv_heads == rank
                                           : rank * kv.kv_heads / ranks == head;
    for (uint64_t byte = 0; held && byte < kv.head_bytes; ++byte) {
      row.emplace_back(head, byte);
    }
  }
  return row;
}

void check_rows(const ShardedKv& kv, uint32_t prefill_ranks, uint32_t decode_ranks,
                const std::vector<ShardPair>& pairs) {
  for (uint32_t rank = 0; rank < decode_ranks; ++rank) {
    const std::vector<Label> wanted = oracle_row(kv, decode_ranks, rank);
    for (uint32_t window = 0; window < kv.layers * kv.windows_per_layer; ++window) {
      std::vector<Label> got(wanted.size());
      std::vector<int> times(wanted.size());
      for (const ShardPair& pair : pairs) {
        if (pair.decode_rank != rank) {
          continue;
        }
        const std::vector<Label> source = oracle_row(kv, prefill_ranks, pair.prefill_rank);
        for (const ShardSpan& span : pair.spans) {
          for (uint64_t byte = 0; span.window == window && byte < span.bytes; ++byte) {
            got.at(span.target_offset + byte) = source.at(span.source_offset + byte);
            ++times.at(span.target_offset + byte);
          }
        }
      }
      ASSERT_EQ(got, wanted) << "decode rank " << rank << ", window " << window;
      ASSERT_EQ(times, std::vector<int>(wanted.size(), 1)) << "decode rank " << rank;
    }
  }
}

// Ranks that hold the same heads send to equally many ranks, plus or minus one.
void check_balance(const ShardedKv& kv, uint32_t prefill_ranks,
                   const std::vector<ShardPair>& pairs) {
  std::map<std::vector<Label>, std::vector<size_t>> sent;
  for (uint32_t rank = 0; rank < prefill_ranks; ++rank) {
    sent[oracle_row(kv, prefill_ranks, rank)].push_back(
        static_cast<size_t>(std::count_if(pairs.begin(), pairs.end(), [&](const ShardPair& pair) {
          return pair.prefill_rank == rank;
        })));
  }
  for (const auto& [row, counts] : sent) {
    const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
    ASSERT_LE(*most, *least + 1);
  }
}

TEST(ShardPlan, GivesEachDecodeRankEachByteOnceForAllSmallLayouts) {
  int planned = 0;
  for (uint32_t heads = 1; heads <= 8; ++heads) {
    for (uint32_t p = 1; p <= 8; ++p) {
      for (uint32_t d = 1; d <= 8; ++d) {
        for (const uint32_t windows_per_layer : {1U, 2U}) {
          SCOPED_TRACE(std::to_string(heads) + " heads, " + std::to_string(p) + " to " +
                       std::to_string(d));
          const ShardedKv kv{.layers = 2,
                             .kv_heads = heads,
                             .head_bytes = 3,
                             .windows_per_layer = windows_per_layer};
          const auto pairs = plan_shards(kv, p, d);
          ASSERT_EQ(pairs.has_value(), divides_evenly(heads, p) && divides_evenly(heads, d));
          if (!pairs) {
            ASSERT_EQ(pairs.error().code, ErrorCode::kUnsupported);
            continue;
          }
          ++planned;
          ASSERT_EQ(*shard_row_bytes(kv, d), oracle_row(kv, d, 0).size());
          check_rows(kv, p, d, *pairs);
          check_balance(kv, p, *pairs);
          const auto key = [](const ShardPair& pair) {
            return std::tuple(pair.decode_rank, pair.prefill_rank);
          };
          for (size_t i = 1; i < pairs->size(); ++i) {
            ASSERT_LT(key((*pairs)[i - 1]), key((*pairs)[i]));
          }
        }
      }
    }
  }
  EXPECT_EQ(planned, 308);
}

TEST(ShardPlan, TakesOneLatentOfAllHeadsFromOneRankEach) {
  const ShardedKv mla{.layers = 3, .kv_heads = 1, .head_bytes = 1152, .windows_per_layer = 1};
  const auto pairs = plan_shards(mla, 2, 4);
  ASSERT_TRUE(pairs);
  ASSERT_EQ(pairs->size(), 4U);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ((*pairs)[rank].prefill_rank, rank % 2);
    EXPECT_EQ((*pairs)[rank].spans.size(), 3U);
    EXPECT_EQ((*pairs)[rank].spans[2], (ShardSpan{.window = 2, .bytes = 1152}));
  }
}

TEST(ShardPlan, RefusesWhatDoesNotDivideEvenlyAndSaysWhy) {
  const auto uneven = plan_shards({.kv_heads = 6, .head_bytes = 128}, 2, 4);
  ASSERT_FALSE(uneven);
  EXPECT_EQ(uneven.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(uneven.error().message,
            "KV cannot be split: 6 KV heads over 4 ranks: one must divide the other");
  EXPECT_FALSE(plan_shards({.kv_heads = 8}, 0, 1));
  EXPECT_FALSE(plan_shards({.kv_heads = 0}, 1, 1));
}

}  // namespace
}  // namespace pdjob::kvtransfer
