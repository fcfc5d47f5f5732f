#include "worker/batching/prompt_cache.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include <gtest/gtest.h>

#include "common/random.h"
#include "tests/support/worker_words.h"

namespace pdjob::worker {
namespace {

// The prompt of a conversation: tokens that count up from its number, after `shared` tokens common
// to all.
std::vector<Token> prompt(Token conversation, uint32_t tokens, uint32_t shared = 0) {
  std::vector<Token> made(tokens);
  std::iota(made.begin(), made.end(), 1000 * conversation);
  for (uint32_t at = 0; at < std::min(shared, tokens); ++at) {
    made[at] = -static_cast<Token>(at);
  }
  return made;
}

using Order = PromptCache::Order;

struct PromptCacheTest : testing::Test {
  explicit PromptCacheTest(Order order = Order::kOldestFirst) : cache(3, order) {}

  // Returns the effects, then the sequence where the prompt starts, and the number of reused rows.
  std::string take(const std::vector<Token>& prompt, const std::string& tenant = "") {
    std::vector<Effect> effects;
    const PromptCache::Start start = cache.take({.tokens = prompt, .tenant = tenant}, effects);
    std::string story;
    for (const std::string& word : words(effects)) {
      story += word + ", ";
    }
    return story + "s" + std::to_string(start.sequence.value) + " " + std::to_string(start.rows);
  }
  Words put(uint32_t sequence, std::vector<Token> prompt, uint32_t rows,
            const std::string& tenant = "") {
    std::vector<Effect> effects;
    cache.put(SequenceId{sequence}, {make_prompt(std::move(prompt), tenant), rows}, effects);
    return words(effects);
  }
  // Runs a whole prompt at once.
  std::string run(const std::vector<Token>& prompt, const std::string& tenant = "") {
    std::vector<Effect> effects;
    const PromptCache::Start start = cache.take({.tokens = prompt, .tenant = tenant}, effects);
    put(start.sequence.value, prompt, static_cast<uint32_t>(prompt.size()), tenant);
    return "s" + std::to_string(start.sequence.value) + " " + std::to_string(start.rows);
  }

  PromptCache cache;
};
struct OldestFirst : PromptCacheTest {};
struct LowestFirst : PromptCacheTest {
  LowestFirst() : PromptCacheTest(Order::kLowestFirst) {}
};

// --- what is found

TEST_F(OldestFirst, FindsThePromptThatBeginsAlike) {
  EXPECT_EQ(run(prompt(1, 40)), "s0 0");
  EXPECT_EQ(run(prompt(2, 40)), "s1 0");
  EXPECT_EQ(take(prompt(1, 70)), "s0 40");
  EXPECT_EQ(take(prompt(2, 70)), "s1 40");
}

TEST_F(OldestFirst, FindsTheLongestBeginning) {
  run(prompt(1, 60, 20));
  EXPECT_EQ(run(prompt(2, 60, 20)), "s1 20");
  std::vector<Token> both = prompt(2, 50, 20);
  both.push_back(7);
  EXPECT_EQ(take(both), "trim s1 50, s1 50");
}

TEST_F(OldestFirst, NeverFindsTheWholePrompt) {
  run(prompt(1, 40));
  EXPECT_EQ(take(prompt(1, 40)), "trim s0 39, s0 39");
}

TEST_F(OldestFirst, FindsABeginningOfWhatItKeeps) {
  run(prompt(1, 40));
  EXPECT_EQ(take(prompt(1, 30)), "trim s0 29, s0 29");
}

TEST_F(OldestFirst, LeavesAloneWhatIsTooShortToBeWorthIt) {
  run(prompt(1, 40, 15));
  EXPECT_EQ(run(prompt(2, 40, 15)), "s1 0");
  EXPECT_EQ(run(prompt(3, 17, 16)), "s2 0");
  EXPECT_EQ(run(prompt(4, 17, 16)), "s2 16");
}

TEST_F(OldestFirst, FindsOnlyRowsThatAreThere) {
  take(prompt(1, 40));
  EXPECT_EQ(put(0, prompt(1, 40), 24), Words{"trim s0 24"});
  EXPECT_EQ(take(prompt(1, 40)), "s0 24");
}

TEST_F(OldestFirst, KeepsNothingOfAnUnknownPromptOrAFewRows) {
  take(prompt(1, 40));
  std::vector<Effect> effects;
  cache.put(SequenceId{0}, {.rows = 40}, effects);
  EXPECT_EQ(words(effects), Words{"clear s0"});
  take(prompt(1, 15));
  EXPECT_EQ(put(0, prompt(1, 15), 15), Words{"clear s0"});
}

// --- what is given up for it

TEST_F(OldestFirst, GivesEmptySequencesThenTheOneUsedLongestAgo) {
  EXPECT_EQ(run(prompt(1, 40)), "s0 0");
  EXPECT_EQ(run(prompt(2, 40)), "s1 0");
  EXPECT_EQ(run(prompt(3, 40)), "s2 0");
  run(prompt(1, 50));
  EXPECT_EQ(take(prompt(4, 40)), "clear s1, s1 0");
  EXPECT_EQ(take(prompt(5, 40)), "clear s2, s2 0");
  EXPECT_EQ(take(prompt(6, 40)), "clear s0, s0 0");
}

TEST_F(OldestFirst, GivesAnEmptySequenceToWhatNeedsOne) {
  run(prompt(1, 40));
  std::vector<Effect> effects;
  EXPECT_EQ(cache.take(effects), SequenceId{1});
  EXPECT_EQ(cache.take(effects), SequenceId{2});
  EXPECT_EQ(words(effects), Words{});
  EXPECT_EQ(cache.take(effects), SequenceId{0});
  EXPECT_EQ(words(effects), Words{"clear s0"});
}

// Regression: conversations with the same system prompt took each other's rows.
TEST_F(OldestFirst, CopiesABeginningThatIsTheSmallerPartOfAnotherPrompt) {
  run(prompt(1, 100, 40));
  EXPECT_EQ(take(prompt(2, 60, 40)), "fork s0 s1, trim s1 40, s1 40");
  EXPECT_EQ(take(prompt(1, 120, 40)), "s0 100");
}

TEST_F(OldestFirst, CopiesOverThePromptThatWasUsedLongestAgo) {
  run(prompt(1, 40));
  run(prompt(2, 100, 40));
  run(prompt(3, 40));
  EXPECT_EQ(take(prompt(4, 60, 40)), "clear s0, fork s1 s0, trim s0 40, s0 40");
}

TEST_F(OldestFirst, TakesTheRowsOfAnotherPromptWhereNoOtherPlaceIs) {
  run(prompt(1, 100, 40));
  std::vector<Effect> effects;
  cache.take(effects);
  cache.take(effects);
  EXPECT_EQ(take(prompt(2, 60, 40)), "trim s0 40, s0 40");
}

TEST_F(OldestFirst, TakesOfTwoEqualBeginningsTheOneThatLosesLess) {
  run(prompt(1, 100, 40));
  run(prompt(2, 60, 40));
  EXPECT_EQ(take(prompt(3, 60, 40)), "trim s1 40, s1 40");
}

// --- in the lowest sequence

TEST_F(OldestFirst, NothingOfOneTenantIsReusedByAnother) {
  run(prompt(1, 40), "a");
  EXPECT_EQ(run(prompt(1, 60), "b"), "s1 0");
  EXPECT_EQ(run(prompt(1, 60), ""), "s2 0");
  EXPECT_EQ(run(prompt(1, 50), "a"), "s0 40");
}

TEST_F(LowestFirst, RunsInTheLowestSequenceAndMovesOthersOutOfTheWay) {
  EXPECT_EQ(take(prompt(1, 40)), "s0 0");
  put(0, prompt(1, 40), 40);
  EXPECT_EQ(take(prompt(2, 40)), "fork s0 s1, clear s0, s0 0");
  put(0, prompt(2, 40), 40);
  EXPECT_EQ(take(prompt(3, 40)), "fork s0 s2, clear s0, s0 0");
  put(0, prompt(3, 40), 40);
  EXPECT_EQ(take(prompt(4, 40)), "clear s1, fork s0 s1, clear s0, s0 0");
}

TEST_F(LowestFirst, CopiesRowsToTheLowestSequence) {
  run(prompt(1, 40));
  run(prompt(2, 40));
  EXPECT_EQ(take(prompt(1, 60)), "fork s0 s2, clear s0, fork s1 s0, clear s1, s0 40");
  EXPECT_EQ(take(prompt(2, 60)), "fork s2 s1, clear s2, s1 40");
}

TEST_F(LowestFirst, GoesOnInTheLowestSequenceWhereItsRowsAreThere) {
  run(prompt(1, 40));
  EXPECT_EQ(take(prompt(1, 60)), "s0 40");
}

TEST_F(LowestFirst, KeepsAConversationWhoseSystemPromptAnotherOneTakes) {
  run(prompt(1, 100, 40));
  EXPECT_EQ(take(prompt(2, 60, 40)), "fork s0 s1, trim s0 40, s0 40");
  EXPECT_EQ(take(prompt(1, 120, 40)), "s1 100");
}

TEST_F(LowestFirst, DropsWhatIsInTheWayOfRowsFromElsewhere) {
  run(prompt(1, 40));
  run(prompt(2, 40));
  run(prompt(3, 40));  // Now s0 keeps 3, s1 keeps 1 and s2 keeps 2.
  EXPECT_EQ(take(prompt(1, 60)), "clear s2, fork s0 s2, clear s0, fork s1 s0, clear s1, s0 40");
}

TEST_F(LowestFirst, MovesRowsOutOfTheWayOfWhatNeedsAnEmptySequence) {
  run(prompt(1, 40));
  std::vector<Effect> effects;
  EXPECT_EQ(cache.take(effects), SequenceId{0});
  EXPECT_EQ(words(effects), (Words{"fork s0 s1", "clear s0"}));
  EXPECT_EQ(take(prompt(1, 60)), "s1 40");
}

// --- everything at once

struct AnyOrder : testing::TestWithParam<Order> {};

// Follows the effects, and checks that each sequence holds the rows that the cache reports.
TEST_P(AnyOrder, SaysWhatTheSequencesHold) {
  constexpr uint32_t kSequences = 5;
  PromptCache tried(kSequences, GetParam());
  std::vector<std::vector<Token>> rows(kSequences);
  std::vector<std::pair<uint32_t, std::vector<Token>>> running;
  Random random(1);
  uint64_t reused = 0;
  const auto follow = [&rows](const std::vector<Effect>& effects) {
    for (const Effect& effect : effects) {
      if (const auto* fork = std::get_if<ForkSequence>(&effect)) {
        ASSERT_TRUE(rows[fork->to.value].empty());
        rows[fork->to.value] = rows[fork->from.value];
      } else if (const auto* trim = std::get_if<TrimSequence>(&effect)) {
        ASSERT_LE(trim->rows, rows[trim->sequence.value].size());
        rows[trim->sequence.value].resize(trim->rows);
      } else if (const auto* report = std::get_if<ReportKept>(&effect)) {
        const PromptRows& kept = report->kept;
        const std::vector<Token>& there = rows[report->sequence.value];
        ASSERT_LE(kept.rows, there.size());
        ASSERT_TRUE(kept.rows == 0 || std::equal(there.begin(), there.begin() + kept.rows,
                                                 kept.prompt->tokens.begin()));
      } else {
        rows[std::get<ClearSequence>(effect).sequence.value].clear();
      }
    }
  };
  for (int turn = 0; turn < 20000 && !HasFailure(); ++turn) {
    std::vector<Effect> effects;
    if (tried.size() > 0 && random.chance(0.5)) {
      std::vector<Token> asked = prompt(static_cast<Token>(1 + random.below(6)),
                                        static_cast<uint32_t>(1 + random.below(90)),
                                        static_cast<uint32_t>(random.below(40)));
      if (random.chance(0.1)) {
        const SequenceId empty = tried.take(effects);
        follow(effects);
        ASSERT_TRUE(rows[empty.value].empty());
        rows[empty.value] = asked;
        running.emplace_back(empty.value, std::move(asked));
        continue;
      }
      const PromptCache::Start start = tried.take({.tokens = asked, .tenant = ""}, effects);
      follow(effects);
      std::vector<Token>& there = rows[start.sequence.value];
      ASSERT_EQ(there, std::vector<Token>(asked.begin(), asked.begin() + start.rows));
      ASSERT_LT(start.rows, asked.size());
      reused += start.rows;
      there = asked;
      there.push_back(5);  // A generated token.
      running.emplace_back(start.sequence.value, std::move(asked));
    } else if (!running.empty()) {
      auto [sequence, asked] = std::move(running[random.below(running.size())]);
      std::erase_if(running, [s = sequence](const auto& entry) { return entry.first == s; });
      const auto kept = static_cast<uint32_t>(random.below(asked.size() + 1));
      tried.put(SequenceId{sequence}, {make_prompt(std::move(asked)), kept}, effects);
      follow(effects);
    }
  }
  EXPECT_GT(reused, 10000U);
}

INSTANTIATE_TEST_SUITE_P(All, AnyOrder, testing::Values(Order::kOldestFirst, Order::kLowestFirst));

}  // namespace
}  // namespace pdjob::worker
