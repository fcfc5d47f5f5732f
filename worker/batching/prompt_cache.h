// PromptCache: the free sequences of an engine, and the prompts whose rows they still hold.
//
// A sequence that becomes free keeps the rows of its prompt until it is taken. A prompt with the
// same beginning starts with these rows, and only the rest is computed. The cache compares tokens
// instead of hashes, so a match is always right. Tenants never share rows. Kept rows cost no
// memory, because each sequence has its own.
//
// A prompt that reuses less than half of a sequence's kept rows gets a copy of them. Otherwise
// prompts that share a system prompt would each destroy the rest of the kept rows. A copy costs
// about as much as one decode step over the rows, and much less than computing them. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "worker/core/worker_core.h"

namespace pdjob::worker {

class PromptCache {
 public:
  enum class Order {
    // A prompt runs where its rows are. Other prompts get an empty sequence, or else the least
    // recently used one.
    kOldestFirst,
    // Always the lowest free sequence. Needed rows are copied into it; other rows are moved out of
    // it. Reason: libllama runs choices in consecutive sequences in one pass, and needs another
    // pass for each gap.
    kLowestFirst,
  };

  // Fewer matching rows are not reused.
  static constexpr uint32_t kRowsMin = 16;

  PromptCache(uint32_t sequences, Order order);

  uint32_t size() const { return static_cast<uint32_t>(free_.size()); }
  // Adds a free sequence and drops its rows except `kept`.
  void put(SequenceId sequence, const PromptRows& kept, std::vector<Effect>& effects);
  // Takes an empty sequence. Requires: size() > 0.
  SequenceId take(std::vector<Effect>& effects);
  struct Start {
    SequenceId sequence;
    // Rows of the prompt's beginning that the sequence holds. Never the whole prompt: its last
    // token is computed for its logits.
    uint32_t rows = 0;
  };
  // Takes the sequence to compute this prompt in. Requires: size() > 0.
  Start take(const OwnedPrompt& prompt, std::vector<Effect>& effects);

 private:
  struct Kept {
    PromptRows kept;
    uint64_t used = 0;  // Ascends with every use; 0 if empty.
  };
  using Place = std::map<SequenceId, Kept>::iterator;

  Place oldest_but(Place one, Place other);
  Place longest_match(const OwnedPrompt& prompt);
  static uint32_t common_rows(const PromptRows& kept, const OwnedPrompt& prompt);
  void empty(Place place, std::vector<Effect>& effects);
  // Sets the rows that a sequence keeps, and reports them if they changed.
  static void keep(Place place, const PromptRows& kept, std::vector<Effect>& effects);
  void copy(Place from, Place to, std::vector<Effect>& effects);
  void make_way(Place place, Place needed, std::vector<Effect>& effects);

  const Order order_;
  std::map<SequenceId, Kept> free_;
  uint64_t uses_ = 0;
};

}  // namespace pdjob::worker
