#include "worker/core/kept_blocks.h"

#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "common/random.h"
#include "worker/batching/prompt_cache.h"

namespace pdjob::worker {
namespace {

constexpr uint32_t kBlock = KeptBlocks::kBlockTokens;

Prompt prompt(Token first, uint32_t tokens, uint32_t shared = 0) {
  std::vector<Token> made(tokens);
  std::iota(made.begin(), made.end(), first);
  for (uint32_t at = 0; at < std::min(shared, tokens); ++at) {
    made[at] = static_cast<Token>(at);
  }
  return make_prompt(std::move(made));
}

// A router's knowledge of the worker: for each hash, the tokens from the prompt's beginning to the
// end of the block.
class Listener {
 public:
  void take(const std::vector<openai::KvEvent>& events) {
    for (const openai::KvEvent& event : events) {
      if (const auto* stored = std::get_if<openai::KvBlocksStored>(&event)) {
        take(*stored);
      } else if (const auto* removed = std::get_if<openai::KvBlocksRemoved>(&event)) {
        for (const uint64_t hash : removed->hashes) {
          EXPECT_EQ(blocks_.erase(hash), 1U) << "what was not there is removed";
        }
      } else {
        blocks_.clear();
      }
    }
  }
  std::set<std::vector<uint32_t>> blocks() const {
    std::set<std::vector<uint32_t>> all;
    for (const auto& [hash, tokens] : blocks_) {
      all.insert(tokens);
    }
    return all;
  }

 private:
  void take(const openai::KvBlocksStored& event) {
    EXPECT_EQ(event.block_size, kBlock);
    ASSERT_EQ(event.tokens.size(), event.hashes.size() * kBlock);
    ASSERT_LE(event.hashes.size(), KeptBlocks::kEventBlocksMax);
    std::vector<uint32_t> tokens;
    if (event.parent) {
      ASSERT_TRUE(blocks_.contains(*event.parent)) << "a block comes before its parent";
      tokens = blocks_.at(*event.parent);
    }
    for (size_t block = 0; block < event.hashes.size(); ++block) {
      const auto begin = event.tokens.begin() + static_cast<ptrdiff_t>(block * kBlock);
      tokens.insert(tokens.end(), begin, begin + kBlock);
      EXPECT_TRUE(blocks_.emplace(event.hashes[block], tokens).second) << "it is told twice";
    }
  }
  std::map<uint64_t, std::vector<uint32_t>> blocks_;
};

std::set<std::vector<uint32_t>> blocks_of(const std::map<SequenceId, PromptRows>& kept) {
  std::set<std::vector<uint32_t>> all;
  for (const auto& [sequence, rows] : kept) {
    for (uint32_t end = kBlock; end <= rows.rows; end += kBlock) {
      all.emplace(rows.prompt->tokens.begin(), rows.prompt->tokens.begin() + end);
    }
  }
  return all;
}

TEST(KeptBlocks, AreWholeBlocksOfWhatIsKept) {
  KeptBlocks blocks;
  Listener listener;
  const Prompt one = prompt(100, 50);
  blocks.set(SequenceId{0}, {one, 47});
  listener.take(blocks.take_changes());
  EXPECT_EQ(listener.blocks(), blocks_of({{SequenceId{0}, {one, 47}}}));
  EXPECT_EQ(listener.blocks().size(), 2U);
  EXPECT_TRUE(blocks.take_changes().empty());
}

TEST(KeptBlocks, AreToldWithTheFirstWhoKeepsThemAndRemovedWithTheLast) {
  KeptBlocks blocks;
  blocks.set(SequenceId{0}, {prompt(100, 64, 32), 64});
  EXPECT_EQ(blocks.take_changes().size(), 1U);
  blocks.set(SequenceId{1}, {prompt(200, 64, 32), 64});
  const auto second = blocks.take_changes();
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(std::get<openai::KvBlocksStored>(second[0]).hashes.size(), 2U);
  blocks.set(SequenceId{0}, {});
  const auto gone = blocks.take_changes();
  ASSERT_EQ(gone.size(), 1U);
  EXPECT_EQ(std::get<openai::KvBlocksRemoved>(gone[0]).hashes.size(), 2U);
}

TEST(KeptBlocks, SayNothingOfWhatOnlyMovesInATurn) {
  KeptBlocks blocks;
  const PromptRows rows{prompt(100, 64), 64};
  blocks.set(SequenceId{0}, rows);
  blocks.take_changes();
  blocks.set(SequenceId{0}, {});
  blocks.set(SequenceId{1}, rows);
  blocks.set(SequenceId{1}, {});
  blocks.set(SequenceId{2}, rows);
  EXPECT_TRUE(blocks.take_changes().empty());
}

TEST(KeptBlocks, ALongChainComesAndGoesInSeveralEvents) {
  KeptBlocks blocks;
  Listener listener;
  const uint32_t tokens = kBlock * (KeptBlocks::kEventBlocksMax + 3);
  blocks.set(SequenceId{0}, {prompt(0, tokens), tokens});
  const auto events = blocks.take_changes();
  EXPECT_EQ(events.size(), 2U);
  listener.take(events);
  blocks.set(SequenceId{0}, {});
  const auto gone = blocks.take_changes();
  EXPECT_EQ(gone.size(), 2U);
  listener.take(gone);
  EXPECT_TRUE(listener.blocks().empty());
}

TEST(KeptBlocks, OfTwoTenantsAreTwo) {
  KeptBlocks blocks;
  const auto of = [](const std::string& tenant) {
    return make_prompt(std::vector<Token>(32, 7), tenant);
  };
  blocks.set(SequenceId{0}, {of("a"), 32});
  blocks.set(SequenceId{1}, {of("b"), 32});
  const auto events = blocks.take_changes();
  ASSERT_EQ(events.size(), 2U);
  const auto& first = std::get<openai::KvBlocksStored>(events[0]);
  const auto& second = std::get<openai::KvBlocksStored>(events[1]);
  EXPECT_EQ(first.adapter, openai::tenant_adapter("a"));
  EXPECT_EQ(second.adapter, openai::tenant_adapter("b"));
  EXPECT_EQ(first.tokens, second.tokens);
  EXPECT_NE(first.hashes[0], second.hashes[0]);
  EXPECT_NE(first.hashes[1], second.hashes[1]);
}

// Random prompts through a real cache. Both a router that listens from the beginning and one that
// joins later know what the cache would find.
TEST(KeptBlocks, AreWhatThePromptCacheKeeps) {
  for (const auto order : {PromptCache::Order::kOldestFirst, PromptCache::Order::kLowestFirst}) {
    Random random(7);
    PromptCache cache(4, order);
    KeptBlocks blocks;
    Listener listener;
    std::map<SequenceId, PromptRows> kept;
    std::map<SequenceId, Prompt> running;
    std::vector<Effect> effects;
    for (int turn = 0; turn < 2000; ++turn) {
      effects.clear();
      if (cache.size() > 0 && random.below(2) == 0) {
        const Prompt next = prompt(static_cast<Token>(1000 * (1 + random.below(6))),
                                   static_cast<uint32_t>(1 + random.below(100)),
                                   static_cast<uint32_t>(random.below(60)));
        running[cache.take(*next, effects).sequence] = next;
      } else if (!running.empty()) {
        const auto [sequence, done] = *running.begin();
        running.erase(sequence);
        cache.put(sequence, {done, static_cast<uint32_t>(random.below(done->tokens.size() + 1))},
                  effects);
      }
      for (const Effect& effect : effects) {
        if (const auto* report = std::get_if<ReportKept>(&effect)) {
          kept[report->sequence] = report->kept;
          blocks.set(report->sequence, report->kept);
        }
      }
      listener.take(blocks.take_changes());
      ASSERT_EQ(listener.blocks(), blocks_of(kept)) << turn;
      Listener late;
      late.take(blocks.all());
      ASSERT_EQ(late.blocks(), listener.blocks()) << turn;
      for (const auto& [sequence, prompt] : running) {
        ASSERT_EQ(kept[sequence].rows, 0U) << "a sequence that is taken keeps nothing";
      }
    }
  }
}

// The next prompt starts with the longest prefix that was reported.
TEST(PromptCacheReports, TellWhatTheNextPromptFinds) {
  for (const auto order : {PromptCache::Order::kOldestFirst, PromptCache::Order::kLowestFirst}) {
    Random random(11);
    PromptCache cache(4, order);
    std::map<SequenceId, PromptRows> kept;
    std::vector<Effect> effects;
    const auto hear = [&] {
      for (const Effect& effect : std::exchange(effects, {})) {
        if (const auto* report = std::get_if<ReportKept>(&effect)) {
          kept[report->sequence] = report->kept;
        }
      }
    };
    for (int turn = 0; turn < 1000; ++turn) {
      const Prompt next = prompt(static_cast<Token>(1000 * (1 + random.below(8))),
                                 static_cast<uint32_t>(2 + random.below(100)),
                                 static_cast<uint32_t>(random.below(60)));
      uint32_t longest = 0;
      for (const auto& [sequence, rows] : kept) {
        uint32_t common = 0;
        while (common < rows.rows && common + 1 < next->tokens.size() &&
               rows.prompt->tokens[common] == next->tokens[common]) {
          ++common;
        }
        longest = std::max(longest, common);
      }
      const PromptCache::Start start = cache.take(*next, effects);
      hear();
      ASSERT_EQ(start.rows, longest < PromptCache::kRowsMin ? 0 : longest) << turn;
      cache.put(start.sequence, {next, static_cast<uint32_t>(next->tokens.size())}, effects);
      hear();
    }
  }
}

}  // namespace
}  // namespace pdjob::worker
