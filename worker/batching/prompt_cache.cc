#include "worker/batching/prompt_cache.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace pdjob::worker {

PromptCache::PromptCache(uint32_t sequences, Order order) : order_(order) {
  for (uint32_t sequence = 0; sequence < sequences; ++sequence) {
    free_[SequenceId{sequence}] = {};
  }
}

void PromptCache::put(SequenceId sequence, const PromptRows& kept, std::vector<Effect>& effects) {
  const auto [place, was_taken] = free_.emplace(sequence, Kept{});
  PDJOB_CHECK(was_taken, sequence);
  if (kept.prompt == nullptr || kept.rows < kRowsMin) {
    effects.push_back(ClearSequence{sequence});
    return;
  }
  PDJOB_CHECK(kept.rows <= kept.prompt->tokens.size(), kept.rows);
  effects.push_back(TrimSequence{.sequence = sequence, .rows = kept.rows});
  keep(place, kept, effects);
  place->second.used = ++uses_;
}

SequenceId PromptCache::take(std::vector<Effect>& effects) {
  PDJOB_CHECK(!free_.empty());
  const Place none = free_.end();
  const bool lowest_first = order_ == Order::kLowestFirst;
  const Place place = lowest_first ? free_.begin() : oldest_but(none, none);
  if (lowest_first) {
    make_way(place, none, effects);
  }
  const SequenceId sequence = place->first;
  empty(place, effects);
  free_.erase(place);
  return sequence;
}

PromptCache::Start PromptCache::take(const OwnedPrompt& prompt, std::vector<Effect>& effects) {
  PDJOB_CHECK(!free_.empty() && !prompt.tokens.empty());
  const Place none = free_.end();
  const Place source = longest_match(prompt);
  const uint32_t rows = source == none ? 0 : common_rows(source->second.kept, prompt);
  const uint32_t rows_there = source == none ? 0 : source->second.kept.rows;
  // At least half of the source's rows are used: its sequence need not survive.
  const bool uses_up = source != none && 2 * uint64_t{rows} >= rows_there;
  const bool lowest_first = order_ == Order::kLowestFirst;
  const Place place = lowest_first ? free_.begin() : uses_up ? source : oldest_but(none, none);
  if (lowest_first && !(uses_up && place == source)) {
    make_way(place, source, effects);
  }
  if (place != source) {
    empty(place, effects);
    if (source != none) {
      copy(source, place, effects);
      source->second.used = ++uses_;
    }
    if (uses_up) {
      empty(source, effects);
    }
  }
  const SequenceId sequence = place->first;
  if (rows < rows_there) {
    effects.push_back(TrimSequence{.sequence = sequence, .rows = rows});
  }
  keep(place, {}, effects);
  free_.erase(place);
  return {.sequence = sequence, .rows = rows};
}

PromptCache::Place PromptCache::oldest_but(Place one, Place other) {
  Place oldest = free_.end();
  for (auto place = free_.begin(); place != free_.end(); ++place) {
    if (place != one && place != other &&
        (oldest == free_.end() || place->second.used < oldest->second.used)) {
      oldest = place;
    }
  }
  return oldest;
}

// The sequence with the most matching rows; among equals, the one with the fewest other rows.
PromptCache::Place PromptCache::longest_match(const OwnedPrompt& prompt) {
  Place best = free_.end();
  uint32_t best_rows = kRowsMin - 1;
  for (auto place = free_.begin(); place != free_.end(); ++place) {
    const PromptRows& kept = place->second.kept;
    const uint32_t rows = common_rows(kept, prompt);
    if (rows > best_rows ||
        (rows == best_rows && best != free_.end() && kept.rows < best->second.kept.rows)) {
      best = place;
      best_rows = rows;
    }
  }
  return best;
}

uint32_t PromptCache::common_rows(const PromptRows& kept, const OwnedPrompt& prompt) {
  if (kept.rows == 0 || kept.prompt->tenant != prompt.tenant) {
    return 0;
  }
  const auto begin = kept.prompt->tokens.begin();
  const auto end = begin + kept.rows;
  const auto differs =
      std::mismatch(begin, end, prompt.tokens.begin(), prompt.tokens.end() - 1).first;
  return static_cast<uint32_t>(differs - begin);
}

void PromptCache::empty(Place place, std::vector<Effect>& effects) {
  if (place->second.kept.rows > 0) {
    effects.push_back(ClearSequence{place->first});
  }
  keep(place, {}, effects);
  place->second.used = 0;
}

void PromptCache::keep(Place place, const PromptRows& kept, std::vector<Effect>& effects) {
  const PromptRows before = std::exchange(place->second.kept, kept);
  if (before.prompt != kept.prompt || before.rows != kept.rows) {
    effects.push_back(ReportKept{.sequence = place->first, .kept = kept});
  }
}

void PromptCache::copy(Place from, Place to, std::vector<Effect>& effects) {
  effects.push_back(ForkSequence{.from = from->first, .to = to->first});
  keep(to, from->second.kept, effects);
  to->second.used = from->second.used;
}

// Moves the rows of `place` over older rows, but never over those of `needed`.
void PromptCache::make_way(Place place, Place needed, std::vector<Effect>& effects) {
  const Place room = oldest_but(place, needed);
  if (room != free_.end() && room->second.used < place->second.used) {
    empty(room, effects);
    copy(place, room, effects);
  }
}

}  // namespace pdjob::worker
