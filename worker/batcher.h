// Batcher: the sequences of one engine: who holds which, and what the next step runs. What prefill
// and decode workers have in common.
//
// A request holds one sequence per choice. Its prompt is computed once, in the first of them, and
// forked into the others; then every choice adds a token per step. Decoding goes first in every
// batch (it is one token each), prompts fill the rest in order of arrival: so a batch never waits
// for a prompt, and a prompt is slowed by at most the sequences decoding beside it. A choice that
// is continued has many tokens at once at first, and computes them as a prompt is computed.
// A sequence that comes free keeps the rows of its prompt, for the next one that begins like it
// (prompt_cache.h). Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "worker/prompt_cache.h"
#include "worker/worker_core.h"

namespace pdjob::worker {

struct BatcherOptions {
  EngineSize engine;
  uint32_t prompt_tokens_per_step = 1;  // Over all prompts of a step.
  bool prefix_cache = true;             // Free sequences keep rows.
  PromptCache::Order order = PromptCache::Order::kLowestFirst;
};

// What a request got.
struct Held {
  std::vector<SequenceId> sequences;  // One per choice.
  PromptRows there;                   // In the first of them.
};

class Batcher {
 public:
  explicit Batcher(BatcherOptions options);

  // A request's sequences; nothing if too few are free. All are empty, but for rows of a prompt
  // that is computed here.
  std::optional<Held> take(const RequestArrived& request, std::vector<Effect>& effects);
  // Gives back a sequence that no request of this batcher holds any more. Requires: the rows to be
  // kept are complete, and nobody writes them.
  void give_back(SequenceId sequence, const PromptRows& kept, std::vector<Effect>& effects);

  // The request computes what its prompt lacks, then decodes `max_tokens` per choice.
  void start_prompt(RequestId request, const Held& held, uint32_t prompt_tokens,
                    uint32_t max_tokens);
  // The request's prompt is in its first sequence and its first tokens are being sampled: only
  // decoding is left.
  void start_decoding(RequestId request, const Held& held, uint32_t prompt_tokens,
                      uint32_t max_tokens);
  // Forgets the request and gives back what it held, but for a kept first sequence.
  enum class Rows {
    kKeep,   // The prompt's rows that finished steps have written are right.
    kClear,  // Who knows.
  };
  void drop(RequestId request, Rows rows, std::vector<Effect>& effects);
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

  // A token of a choice was sampled: delivers it, forks or gives back sequences as needed. True:
  // the request's last choice has ended; it is forgotten, and its sequences, but for a kept first
  // one, are given back.
  bool token_sampled(const SampledToken& token, std::vector<Effect>& effects);
  // The first sequence of this request is not given back when it ends (its rows are offered).
  void keep_first(RequestId request);

  // The requests whose tokens the last batch ran: those that an engine failure concerns.
  std::vector<RequestId> requests_in_batch() const;

  uint32_t sequences_free() const { return free_.size(); }
  uint64_t prompt_tokens_left() const;
  // That hold KV of requests now.
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
    Prompt prompt;
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
  void give_back_first(const Request& request, std::vector<Effect>& effects);

  const BatcherOptions options_;
  PromptCache free_;
  std::map<RequestId, Request> requests_;  // In order of arrival: ids ascend.
  std::vector<BatchItem> running_;         // The batch that was handed out.
};

}  // namespace pdjob::worker
