// ToyEngine: an engine in a few lines. The row of a token is a number made of (token, position).
// Logits are a hash of all rows. A sampled token is drawn from (logits, seed, choice, position). So
// a row that a transfer lost, damaged or misplaced changes every later token. `reference` returns
// the output of one process alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/generation.h"
#include "common/id.h"
#include "worker/core/worker_core.h"

namespace pdjob::simulation {

using Row = uint64_t;

class ToyEngine {
 public:
  explicit ToyEngine(const worker::EngineSize& size) : size_(size), sequences_(size.sequences) {}

  void append(SequenceId sequence, Token token);
  void reserve(SequenceId sequence, uint32_t rows);
  void fork(SequenceId from, SequenceId to);
  void clear(SequenceId sequence) { rows(sequence).clear(); }
  void trim(SequenceId sequence, uint32_t count);
  uint64_t logits(SequenceId sequence) {
    return digest(sequence, static_cast<uint32_t>(rows(sequence).size()));
  }
  // Returns the hash of the first `count` rows.
  uint64_t digest(SequenceId sequence, uint32_t count);
  std::vector<Row>& rows(SequenceId sequence) { return sequences_.at(sequence.value); }

 private:
  const worker::EngineSize size_;
  std::vector<std::vector<Row>> sequences_;
};

struct ToyToken {
  Token token = 0;
  bool stopped = false;
};
bool toy_stops(Token token);
ToyToken toy_sample(uint64_t logits, uint64_t seed, uint32_t choice, uint32_t generated);
struct ToyText {
  std::vector<Token> tokens;
  FinishReason finish = FinishReason::kNone;
  friend bool operator==(const ToyText&, const ToyText&) = default;
};
struct ToyPrompt {
  uint64_t seed = 0;
  uint32_t shared = 0;  // This many first tokens are the same in all prompts of the family.
  uint64_t family = 0;
  uint32_t tokens = 1;
  uint32_t max_tokens = 1;
  uint32_t choices = 1;
};
Token toy_prompt_token(const ToyPrompt& prompt, uint32_t position);
// Returns the text of each choice.
std::vector<ToyText> reference(const ToyPrompt& prompt, uint32_t rows_per_sequence);

}  // namespace pdjob::simulation
