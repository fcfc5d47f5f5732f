// Batcher: tracks which request holds which sequence of one engine, and chooses what the next step
// runs. Prefill and decode workers share it.
//
// A request holds one sequence per choice. Its prompt is computed once, in the first of them, and
// forked into the others. Then every choice adds a token per step. A request with more choices than
// the engine has sequences holds all but one. All its choices get their first token at once. Those
// without a sequence wait: each takes that of a choice that has ended, which has the prompt's rows.
// Decoding goes first in every batch, with one token per choice. Prompts fill the rest in order of
// arrival. So a batch never waits for a prompt, and a prompt is slowed by at most the sequences
// that decode beside it. Once a prompt is computed, the other prompts of its client's request go
// behind those of other requests: each request gets its turn. A continued choice starts with many
// tokens and computes them like a prompt. A step with a prompt whose every token is read is small,
// because each token's output may take as much memory as a row of logits. A sequence that becomes
// free keeps the rows of its prompt for a later prompt with the same beginning (prompt_cache.h).
//
// Where there is a store of KV, a prompt that misses many rows asks it first, and so does a
// continued choice: the request has its sequences, and no step computes its prompt, or its earlier
// tokens, until LoadEnded. A sequence that the store may write is given to nobody.
//
// Requests in the background take what the others leave (spare_room.h): room in a step, and all but
// a few sequences. If another request finds no sequence, one of the background's gives way: it
// queues again, and later computes its prompt and the tokens that it had. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "worker/batching/prompt_cache.h"
#include "worker/batching/request_queue.h"
#include "worker/batching/spare_room.h"
#include "worker/core/worker_core.h"

namespace pdjob::worker {

struct BatcherOptions {
  EngineSize engine;
  uint32_t prompt_tokens_per_step = 1;  // Total of all prompts in a step.
  // The same in a step in which nobody decodes. The larger of the two counts then.
  uint32_t prompt_tokens_alone = 0;
  bool prefix_cache = true;  // Free sequences keep rows.
  PromptCache::Order order = PromptCache::Order::kLowestFirst;
  // By so large a part may a step get longer for requests in the background.
  double background_slowdown = 0.08;
};

// The sequences that a request holds.
struct Held {
  std::vector<SequenceId> sequences;  // Of its first choices: sequences_for().
  PromptRows there;                   // The rows already in the first one.
  bool reads_prompt = false;          // RequestArrived::reads_prompt.
  RequestId group;                    // group_of().
};

// Of a request whose rows a store has spoiled, or may still write: another pair serves it.
inline Error store_failed() {
  return {ErrorCode::kUnavailable, "the store of KV failed while it wrote this prompt's rows"};
}

// How many sequences a request with so many choices holds at the same time.
uint32_t sequences_for(uint32_t choices, const EngineSize& engine);

class Batcher {
 public:
  explicit Batcher(BatcherOptions options);

  // A request has arrived.
  void note_arrival(const RequestArrived& request, Instant now);
  // How many sequences the background leaves free; 0 if no others are expected.
  uint32_t reserve(Instant now) const { return spare_.reserve(now); }
  // How many sequences must be free for the request to start. More than it holds if it is in the
  // background.
  uint32_t needed_for(const RequestArrived& request, Instant now) const;
  // Returns the request's sequences, or nothing if too few are free. They are empty, except that
  // the first may hold rows of a prompt that is computed here.
  std::optional<Held> take(const RequestArrived& request, std::vector<Effect>& effects);
  // Frees a sequence that no request of this batcher holds any more. Requires: the kept rows are
  // complete, and no transfer writes them.
  void give_back(SequenceId sequence, const PromptRows& kept, std::vector<Effect>& effects);

  // The request loads or computes the missing rows of its prompt, then decodes.
  void start_prompt(const RequestArrived& request, const Held& held, std::vector<Effect>& effects);
  // The request's prompt is in its first sequence and its first tokens are being sampled: only
  // decoding is left.
  void start_decoding(const RequestArrived& request, const Held& held);
  // Drops the request and gives back its sequences, except a kept first one.
  enum class Rows {
    kKeep,   // The prompt's rows that finished steps have written are right.
    kClear,  // They may be wrong.
  };
  void drop(RequestId request, Rows rows, std::vector<Effect>& effects);
  bool holds(RequestId request) const { return requests_.contains(request); }
  // Its first sequence is being loaded.
  bool loads(RequestId request) const { return requests_.at(request).loads; }
  // The load of a sequence has ended: its request goes on from there, unless it is gone. One that
  // failed has to be dropped.
  struct LoadOutcome {
    RequestId request;
    bool failed = false;
  };
  std::optional<LoadOutcome> load_ended(const LoadEnded& event, std::vector<Effect>& effects);
  void load_released(SequenceId sequence, std::vector<Effect>& effects);

  // Makes as many sequences free: requests in the background drop theirs, those with the fewest
  // rows first. Returns these requests, to be queued again; none if not enough can.
  std::vector<RequestArrived> make_way(uint32_t sequences, std::vector<Effect>& effects);
  // The next batch; empty if there is nothing to run.
  std::vector<BatchItem> next_batch(Instant now);

  // Progress of the prompts in the batch that just ran: rows computed so far, and whether the
  // prompt is complete.
  struct PromptProgress {
    RequestId request;
    SequenceId sequence;
    uint32_t rows = 0;
    bool complete = false;
  };
  std::vector<PromptProgress> batch_finished(Instant now);

  // Delivers a sampled token, and forks or gives back sequences as needed. Returns true if the
  // request's last choice has ended. The request is then dropped, and its sequences are given back,
  // except a kept first one.
  bool token_sampled(const SampledToken& token, std::vector<Effect>& effects);
  // Keeps the request's first sequence when the request ends, because its rows are offered.
  void keep_first(RequestId request);

  // The requests in the last batch: an engine failure fails all of them.
  std::vector<RequestId> requests_in_batch() const;

  uint32_t sequences_free() const { return free_.size(); }
  // The next three are of requests in the background, or of the others.
  uint64_t prompt_tokens_left(bool background) const;
  // Rows that hold KV of requests now.
  uint64_t rows_used(bool background) const;
  uint32_t requests(bool background) const;
  bool empty() const { return requests_.empty(); }
  // How many prompts of each client's request run here.
  std::map<RequestId, uint32_t> prompts_by_group() const;
  // The load of the requests here and in this queue.
  CoreLoad load(const RequestQueue& queue) const;

 private:
  struct Choice {
    std::optional<SequenceId> sequence;  // Empty: it waits for one, or has given it to another one.
    uint32_t generated = 0;
    uint32_t computed = 0;  // Generated tokens that have rows.
    bool ended = false;
    uint32_t behind() const { return generated - computed; }
  };
  struct Request {
    std::vector<Choice> choices;
    SequenceId first;                    // Has the prompt.
    std::vector<SequenceId> spare = {};  // Until `forked`: held, and empty.
    Prompt prompt;
    uint32_t prompt_computed = 0;
    bool loads = false;   // The first sequence is being loaded.
    bool forked = false;  // Every choice has the prompt's rows.
    bool keep_first = false;
    bool reads_prompt = false;
    RequestId group;
    RequestId turn;  // Its prompt goes behind those with a lower one. At first its own id.
    RequestArrived arrived;
    bool background() const { return arrived.background; }
    uint64_t rows() const;  // In its sequences.
  };
  // The prompt tokens of a step that is being chosen.
  struct PromptRoom {
    uint32_t whole = 0;
    uint32_t used = 0;
    bool reads = false;  // One of its prompts is read.
  };

  Request& hold(const RequestArrived& request, const Held& held);
  void load(RequestId id, Request& request, const Prompt& prompt, uint32_t rows,
            std::vector<Effect>& effects);
  static void report_reuse(RequestId id, const Request& request, std::vector<Effect>& effects);
  void add_decoding_items(bool background, std::vector<BatchItem>& items) const;
  void add_prompt_items(bool background, PromptRoom& room, std::vector<BatchItem>& items) const;
  void add_background(PromptRoom prompts, Instant now, std::vector<BatchItem>& items);
  void take_turns(size_t kept, uint32_t room, std::vector<BatchItem>& items);
  void end_turn(RequestId group);
  bool may_give_way(const Request& request) const;
  void add_continued_items(RequestId id, const Request& request, uint32_t& room,
                           std::vector<BatchItem>& items) const;
  // The choice has its first token, and goes on.
  void fork_into(Request& request, Choice& choice, std::vector<Effect>& effects);
  // All choices have their first token.
  void end_forking(Request& request, std::vector<Effect>& effects);
  void end_choice(Request& request, Choice& choice, std::vector<Effect>& effects);
  // The first choice that waits for a sequence.
  static std::vector<Choice>::iterator next_of(Request& request);
  // A sequence that a choice of the request does not need any more. The next one takes it.
  void pass_on(Request& request, SequenceId sequence, std::vector<Effect>& effects);
  void give_back(const Request& request, SequenceId sequence, Rows rows,
                 std::vector<Effect>& effects);

  const BatcherOptions options_;
  PromptCache free_;
  std::map<RequestId, Request> requests_;  // In order of arrival: ids ascend.
  RequestId newest_;
  // Used during a call: whose prompts the next batch takes, in turn.
  std::vector<std::pair<RequestId, const Request*>> turns_;
  std::vector<BatchItem> running_;  // The batch that the engine runs.
  bool runs_ = false;               // It still runs.
  SpareRoom spare_;
  uint64_t ways_given_ = 0;
  SequenceId last_in_background_;  // The background's last sequence that generated a token.
  // The sequences that are being loaded; true: nobody holds it any more.
  std::map<SequenceId, bool> loading_;
};

}  // namespace pdjob::worker
