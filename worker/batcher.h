// Batcher: the sequences of one engine: who holds which, and what the next step runs. What prefill
// and decode workers have in common.
//
// A request holds one sequence per choice. Its prompt is computed once, in the first of them, and
// forked into the others; then every choice adds a token per step. Decoding goes first in every
// batch (it is one token each), prompts fill the rest in order of arrival: so a batch never waits
// for a prompt, and a prompt is slowed by at most the sequences decoding beside it. A choice that
// is continued has many tokens at once at first, and computes them as a prompt is computed.
// Sequences are given lowest first: libllama batches streams with dense ids fastest. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "worker/worker_core.h"

namespace pdjob::worker {

struct BatcherOptions {
  EngineSize engine;
  uint32_t prompt_tokens_per_step = 1;  // Over all prompts of a step.
};

class Batcher {
 public:
  explicit Batcher(BatcherOptions options);

  // A request's sequences, one per choice; nothing if too few are free. `rows` is what one of them
  // may come to hold.
  std::optional<std::vector<SequenceId>> take(uint32_t choices);
  // Gives back sequences that no request of this batcher holds any more.
  void give_back(SequenceId sequence);

  // The request computes its prompt, then decodes `max_tokens` per choice.
  void start_prompt(RequestId request, const std::vector<SequenceId>& sequences,
                    uint32_t prompt_tokens, uint32_t max_tokens);
  // The request's prompt is in its first sequence and its first tokens are being sampled: only
  // decoding is left.
  void start_decoding(RequestId request, const std::vector<SequenceId>& sequences,
                      uint32_t prompt_tokens, uint32_t max_tokens);
  // Forgets the request; what it held must be given back by the caller, in this order.
  std::vector<SequenceId> remove(RequestId request);
  bool holds(RequestId request) const { return requests_.contains(request); }

  // The next batch; empty: nothing to run.
  std::vector<BatchItem> next_batch();

  // What the batch that just ran did to prompts: rows computed so far, and whether that was all.
  struct PromptProgress {
    RequestId request;
    SequenceId sequence;
    uint32_t rows = 0;
    bool complete = false;
  };
  std::vector<PromptProgress> batch_finished();

  // A token of a choice was sampled: delivers it, forks or clears sequences as needed. True: the
  // request's last choice has ended; it is forgotten, and its sequences, but for the first one if
  // `keep_first`, are cleared and given back.
  bool token_sampled(const SampledToken& token, std::vector<Effect>& effects);
  // Keeps the first sequence of this request when it ends (its rows are offered).
  void keep_first(RequestId request);

  // The requests whose tokens the last batch ran: those that an engine failure concerns.
  std::vector<RequestId> requests_in_batch() const;

  uint32_t sequences_free() const { return static_cast<uint32_t>(free_.size()); }
  uint64_t prompt_tokens_left() const;
  // That hold KV now.
  uint64_t rows_used() const;
  uint32_t requests() const { return static_cast<uint32_t>(requests_.size()); }

 private:
  struct Choice {
    SequenceId sequence;
    uint32_t generated = 0;
    uint32_t computed = 0;  // Of the generated ones: those that have rows.
    bool ended = false;
    uint32_t behind() const { return generated - computed; }
  };
  struct Request {
    std::vector<Choice> choices;
    uint32_t prompt_tokens = 0;
    uint32_t prompt_computed = 0;
    uint32_t max_tokens = 0;
    bool forked = false;  // Every choice has the prompt's rows.
    bool keep_first = false;
  };

  void add_decoding_items(std::vector<BatchItem>& items) const;
  void add_prompt_items(std::vector<BatchItem>& items) const;
  void add_continued_items(RequestId id, const Request& request, uint32_t& room,
                           std::vector<BatchItem>& items) const;
  void end_choice(Request& request, Choice& choice, std::vector<Effect>& effects);

  const BatcherOptions options_;
  std::set<SequenceId> free_;
  std::map<RequestId, Request> requests_;  // In order of arrival: ids ascend.
  std::vector<BatchItem> running_;         // The batch that was handed out.
};

}  // namespace pdjob::worker
