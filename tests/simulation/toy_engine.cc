#include "tests/simulation/toy_engine.h"

#include "common/check.h"
#include "common/random.h"

namespace pdjob::simulation {
namespace {

// Low enough that some texts end by themselves, high enough that most go on for a while.
constexpr uint64_t kStopsOneIn = 24;

}  // namespace

void ToyEngine::append(SequenceId sequence, Token token) {
  std::vector<Row>& content = rows(sequence);
  PDJOB_CHECK(content.size() < size_.rows_per_sequence, sequence);
  content.push_back(mix(mix(static_cast<uint64_t>(token)) ^ content.size()));
}

void ToyEngine::reserve(SequenceId sequence, uint32_t count) {
  PDJOB_CHECK(rows(sequence).empty() && count <= size_.rows_per_sequence, sequence, count);
  rows(sequence).resize(count);
}

void ToyEngine::trim(SequenceId sequence, uint32_t count) {
  PDJOB_CHECK(count <= rows(sequence).size(), sequence, count);
  rows(sequence).resize(count);
}

void ToyEngine::fork(SequenceId from, SequenceId to) {
  PDJOB_CHECK(rows(to).empty(), to);
  rows(to) = rows(from);
}

uint64_t ToyEngine::digest(SequenceId sequence, uint32_t count) {
  uint64_t hash = 1;
  for (uint32_t row = 0; row < count; ++row) {
    hash = mix(hash ^ rows(sequence).at(row));
  }
  return hash;
}

ToyToken toy_sample(uint64_t logits, uint64_t seed, uint32_t choice, uint32_t generated) {
  const uint64_t drawn = mix(logits ^ mix(seed + choice)) + generated;
  const auto token = static_cast<Token>(mix(drawn) % 1000);
  return {.token = token, .stopped = toy_stops(token)};
}

bool toy_stops(Token token) { return token % kStopsOneIn == 0; }

Token toy_prompt_token(const ToyPrompt& prompt, uint32_t position) {
  const uint64_t seed = position < prompt.shared ? prompt.family : prompt.seed;
  return static_cast<Token>(mix(seed ^ mix(position)) % 1000);
}

std::vector<ToyText> reference(const ToyPrompt& prompt, uint32_t rows_per_sequence) {
  std::vector<ToyText> texts;
  for (uint32_t choice = 0; choice < prompt.choices; ++choice) {
    ToyEngine engine({.sequences = 1, .rows_per_sequence = rows_per_sequence});
    const SequenceId sequence{0};
    for (uint32_t position = 0; position < prompt.tokens; ++position) {
      engine.append(sequence, toy_prompt_token(prompt, position));
    }
    ToyText text;
    while (text.finish == FinishReason::kNone) {
      const auto generated = static_cast<uint32_t>(text.tokens.size());
      const ToyToken next = toy_sample(engine.logits(sequence), prompt.seed, choice, generated);
      text.tokens.push_back(next.token);
      const bool full = engine.rows(sequence).size() == rows_per_sequence;
      if (next.stopped) {
        text.finish = FinishReason::kStop;
      } else if (text.tokens.size() == prompt.max_tokens || full) {
        text.finish = FinishReason::kLength;
      } else {
        engine.append(sequence, next.token);
      }
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

}  // namespace pdjob::simulation
