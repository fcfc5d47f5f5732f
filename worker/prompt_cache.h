// PromptCache: the free sequences of an engine, and the prompts whose rows they still hold.
//
// A sequence that comes free keeps the rows of its prompt until it is taken: a prompt with the same
// beginning starts with these rows, and only the rest is computed. Tokens are compared, no hashes
// of them, so nothing passes for what it is not. Rows of one tenant are never another's. Kept rows
// cost nothing: each sequence has memory of its own, whoever holds it.
//
// Where a prompt takes less than half of the rows that another one left, it gets a copy of them: a
// beginning that many share, a system prompt, would else cost each of them the rest. To copy rows
// costs about what one decode step over them does, and a small part of computing them. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "worker/worker_core.h"

namespace pdjob::worker {

class PromptCache {
 public:
  enum class Order {
    // A prompt stays where its rows are; others get an empty sequence, else the one that was used
    // longest ago.
    kOldestFirst,
    // Always the lowest sequence, to which rows are copied, and from which those of others are
    // moved out of the way: libllama runs a batch of choices whose sequences follow each other in
    // one pass, and makes another pass for each gap.
    kLowestFirst,
  };

  // Fewer are not worth their while.
  static constexpr uint32_t kRowsMin = 16;

  PromptCache(uint32_t sequences, Order order);

  uint32_t size() const { return static_cast<uint32_t>(free_.size()); }
  // A sequence comes free; all but these of its rows are dropped.
  void put(SequenceId sequence, const PromptRows& kept, std::vector<Effect>& effects);
  // An empty one. Requires: size() > 0.
  SequenceId take(std::vector<Effect>& effects);
  struct Start {
    SequenceId sequence;
    uint32_t rows = 0;  // That it holds already, of the beginning of the prompt; never all of it,
                        // since its last token is computed for its logits.
  };
  // The one to compute this prompt in. Requires: size() > 0.
  Start take(const OwnedPrompt& prompt, std::vector<Effect>& effects);

 private:
  struct Kept {
    PromptRows kept;
    uint64_t used = 0;  // Ascends with every use; 0: empty.
  };
  using Place = std::map<SequenceId, Kept>::iterator;

  Place oldest_but(Place one, Place other);
  Place longest_match(const OwnedPrompt& prompt);
  static uint32_t common_rows(const PromptRows& kept, const OwnedPrompt& prompt);
  void empty(Place place, std::vector<Effect>& effects);
  // What it keeps from now on is reported, if that is new.
  static void keep(Place place, const PromptRows& kept, std::vector<Effect>& effects);
  void copy(Place from, Place to, std::vector<Effect>& effects);
  void make_way(Place place, Place needed, std::vector<Effect>& effects);

  const Order order_;
  std::map<SequenceId, Kept> free_;
  uint64_t uses_ = 0;
};

}  // namespace pdjob::worker
