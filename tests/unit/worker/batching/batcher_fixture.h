// A batcher for tests, with effects in words.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/worker_words.h"
#include "worker/batching/batcher.h"

namespace pdjob::worker {

inline constexpr uint32_t kRows = 16;

inline std::vector<SequenceId> sequences(std::initializer_list<uint32_t> values) {
  std::vector<SequenceId> result;
  for (const uint32_t value : values) {
    result.push_back(SequenceId{value});
  }
  return result;
}

inline const RequestArrived kFetched{
    .request = RequestId{1}, .prompt_tokens = 5, .choices = 2, .max_tokens = 4};

struct BatcherTest : testing::Test {
  // Takes sequences for a request of this many choices. Its prompt is unknown.
  std::optional<Held> take(uint32_t choices) {
    std::vector<Effect> effects;
    const auto held = batcher.take({.choices = choices}, effects);
    EXPECT_EQ(words(effects), Words{});
    return held;
  }
  static std::vector<SequenceId> sequences_of(const std::optional<Held>& held) {
    return held.value_or(Held{}).sequences;
  }
  Words give_back(uint32_t sequence) {
    std::vector<Effect> effects;
    batcher.give_back(SequenceId{sequence}, {}, effects);
    return words(effects);
  }
  void start(uint64_t request, uint32_t prompt_tokens, uint32_t choices = 1,
             uint32_t max_tokens = 4) {
    std::vector<Effect> effects;
    batcher.start_prompt({.request = RequestId{request},
                          .prompt_tokens = prompt_tokens,
                          .choices = choices,
                          .max_tokens = max_tokens},
                         take(choices).value(), effects);
    EXPECT_EQ(words(effects), Words{});
  }
  void start_input(uint64_t request, uint64_t group, uint32_t prompt_tokens) {
    Held held = take(1).value();
    held.group = RequestId{group};
    std::vector<Effect> effects;
    batcher.start_prompt(
        {.request = RequestId{request}, .prompt_tokens = prompt_tokens, .max_tokens = 1}, held,
        effects);
    EXPECT_EQ(words(effects), Words{});
  }
  Words drop(uint64_t request, Batcher::Rows rows = Batcher::Rows::kClear) {
    std::vector<Effect> effects;
    batcher.drop(RequestId{request}, rows, effects);
    return words(effects);
  }
  // Returns the next batch in words. Its prompts count as computed.
  std::string run() {
    const RunStep step{batcher.next_batch({})};
    batcher.batch_finished({});
    return word(step);
  }
  Words sampled(uint64_t request, uint32_t choice = 0, bool stopped = false, uint32_t count = 1) {
    std::vector<Effect> effects;
    ended = batcher.token_sampled(
        {.request = RequestId{request}, .choice = choice, .stopped = stopped, .count = count},
        effects);
    return words(effects);
  }

  Batcher batcher{{.engine = {.sequences = 4, .rows_per_sequence = kRows, .batch_tokens = 10},
                   .prompt_tokens_per_step = 8}};
  bool ended = false;  // The result of the last sampled().
};

}  // namespace pdjob::worker
