#include "worker/batching/batcher.h"

#include <algorithm>
#include <utility>

#include "common/limits.h"

namespace pdjob::worker {
namespace {

// A prompt that misses fewer tokens is computed at once: asking would take about as long.
constexpr uint32_t kLoadMin = 96;
// While others are expected, the background's prompts are computed in so small a part of a chunk.
constexpr uint32_t kPartOfChunk = 4;

uint32_t tokens_of(const std::vector<BatchItem>& items) {
  uint32_t tokens = 0;
  for (const BatchItem& item : items) {
    tokens += item.count;
  }
  return tokens;
}

}  // namespace

// One is left to others, because the request has its sequences for several times as long as usual.
uint32_t sequences_for(uint32_t choices, const EngineSize& engine) {
  return choices <= engine.sequences ? choices : std::max(1U, engine.sequences - 1);
}

Batcher::Batcher(BatcherOptions options)
    : options_(options),
      free_(options.engine.sequences, options.order),
      spare_(options.background_slowdown, options.engine.sequences) {
  PDJOB_CHECK(options_.engine.sequences > 0);
  PDJOB_CHECK(options_.engine.batch_tokens >= options_.engine.sequences,
              options_.engine.batch_tokens);
}

void Batcher::note_arrival(const RequestArrived& request, Instant now) {
  if (!request.background) {
    spare_.note_other(now);
  }
}

uint32_t Batcher::needed_for(const RequestArrived& request, Instant now) const {
  const uint32_t holds = sequences_for(request.choices, options_.engine);
  return request.background ? std::min(holds + spare_.reserve(now), options_.engine.sequences)
                            : holds;
}

std::optional<Held> Batcher::take(const RequestArrived& request, std::vector<Effect>& effects) {
  const uint32_t sequences = sequences_for(request.choices, options_.engine);
  if (free_.size() < sequences) {
    return std::nullopt;
  }
  Held held{.reads_prompt = request.reads_prompt, .group = group_of(request)};
  // Fetched rows are not kept: the worker that computed them keeps them. Moving them out of the
  // next request's way would cost a decode worker a copy per request.
  // A kept row has no output.
  if (options_.prefix_cache && request.prompt != nullptr && request.kv != KvMode::kFetch &&
      !request.reads_prompt) {
    PDJOB_CHECK(request.prompt->tokens.size() == request.prompt_tokens, request.request);
    const PromptCache::Start start = free_.take(*request.prompt, effects);
    held.sequences.push_back(start.sequence);
    held.there = {.prompt = request.prompt, .rows = start.rows};
  }
  while (held.sequences.size() < sequences) {
    held.sequences.push_back(free_.take(effects));
  }
  return held;
}

void Batcher::give_back(SequenceId sequence, const PromptRows& kept, std::vector<Effect>& effects) {
  if (const auto loading = loading_.find(sequence); loading != loading_.end()) {
    loading->second = true;
    effects.push_back(CancelLoad{sequence});
    return;
  }
  free_.put(sequence, kept, effects);
}

std::optional<Batcher::LoadOutcome> Batcher::load_ended(const LoadEnded& event,
                                                        std::vector<Effect>& effects) {
  const auto found = std::ranges::find_if(requests_, [&](const auto& each) {
    return each.second.loads && each.second.first == event.sequence;
  });
  if (event.region_safe) {
    load_released(event.sequence, effects);
  }
  if (found == requests_.end()) {
    return std::nullopt;
  }
  Request& request = found->second;
  // Rows of a prompt that is complete cannot be computed again here.
  const bool lost = request.forked && event.rows < request.arrived.prompt_tokens;
  if (!event.region_safe || lost) {
    return LoadOutcome{.request = found->first, .failed = true};
  }
  request.loads = false;
  if (request.forked) {
    request.choices.front().computed = event.rows - request.arrived.prompt_tokens;
  } else {
    request.prompt_computed = event.rows;
    report_reuse(found->first, request, effects);
  }
  return LoadOutcome{.request = found->first};
}

void Batcher::load_released(SequenceId sequence, std::vector<Effect>& effects) {
  const auto loading = loading_.extract(sequence);
  PDJOB_CHECK(!loading.empty(), sequence);
  if (loading.mapped()) {
    free_.put(sequence, {}, effects);
  }
}

void Batcher::report_reuse(RequestId id, const Request& request, std::vector<Effect>& effects) {
  if (request.prompt != nullptr && request.arrived.generated == 0) {
    effects.push_back(ReportReuse{.request = id,
                                  .prompt_tokens = request.arrived.prompt_tokens,
                                  .rows = request.prompt_computed});
  }
}

void Batcher::start_prompt(const RequestArrived& request, const Held& held,
                           std::vector<Effect>& effects) {
  Request& entry = hold(request, held);
  const uint32_t missing = request.prompt_tokens - held.there.rows;
  if (!request.has_store || held.there.prompt == nullptr || missing < kLoadMin) {
    return report_reuse(request.request, entry, effects);
  }
  load(request.request, entry, held.there.prompt, held.there.rows, effects);
}

void Batcher::load(RequestId id, Request& request, const Prompt& prompt, uint32_t rows,
                   std::vector<Effect>& effects) {
  request.loads = true;
  loading_.emplace(request.first, false);
  effects.push_back(
      LoadRows{.request = id, .sequence = request.first, .prompt = prompt, .rows = rows});
}

Batcher::Request& Batcher::hold(const RequestArrived& request, const Held& held) {
  PDJOB_CHECK(
      request.prompt_tokens > 0 && request.prompt_tokens <= options_.engine.rows_per_sequence,
      request.prompt_tokens);
  PDJOB_CHECK(held.there.rows < request.prompt_tokens, request.request, held.there.rows);
  PDJOB_CHECK(request.max_tokens > 0);
  Request entry{.choices = std::vector<Choice>(request.choices),
                .first = held.sequences.front(),
                .prompt = held.there.prompt,
                .prompt_computed = held.there.rows,
                .reads_prompt = held.reads_prompt,
                .group = held.group == RequestId{} ? request.request : held.group,
                .turn = request.request,
                .arrived = request};
  entry.choices.front().generated = request.generated;
  for (size_t index = 0; index < held.sequences.size(); ++index) {
    entry.choices[index].sequence = held.sequences[index];
  }
  const auto [made, is_new] = requests_.emplace(request.request, std::move(entry));
  PDJOB_CHECK(is_new, request.request);
  newest_ = std::max(newest_, request.request);
  return made->second;
}

void Batcher::start_decoding(const RequestArrived& request, const Held& held) {
  hold(request, held).prompt_computed = request.prompt_tokens;
}

void Batcher::drop(RequestId request, Rows rows, std::vector<Effect>& effects) {
  const auto found = requests_.find(request);
  PDJOB_CHECK(found != requests_.end(), request);
  const Request entry = std::move(found->second);
  requests_.erase(found);
  for (const Choice& choice : entry.choices) {
    if (choice.sequence) {
      give_back(entry, *choice.sequence, rows, effects);
    }
  }
  for (const SequenceId sequence : entry.spare) {
    give_back(sequence, {}, effects);
  }
}

// The first sequence holds the computed rows of the prompt, then rows of generated tokens.
void Batcher::give_back(const Request& request, SequenceId sequence, Rows rows,
                        std::vector<Effect>& effects) {
  const bool first = sequence == request.first;
  if (first && request.keep_first) {
    return;
  }
  const PromptRows prompt{.prompt = request.prompt, .rows = request.prompt_computed};
  give_back(sequence, first && rows == Rows::kKeep ? prompt : PromptRows{}, effects);
}

bool Batcher::may_give_way(const Request& request) const {
  // One that is being sampled for the first time, or by several choices, cannot say what it had.
  const bool begins = request.prompt_computed == request.arrived.prompt_tokens && !request.forked;
  return request.background() && request.choices.size() == 1 && !begins && !request.loads &&
         !request.keep_first && !request.reads_prompt && !runs_;
}

uint64_t Batcher::Request::rows() const {
  uint64_t rows = 0;
  for (const Choice& choice : choices) {
    // Until its first token, a choice after the first has an empty sequence.
    const bool holds_rows = choice.sequence && (*choice.sequence == first || choice.generated > 0);
    rows += holds_rows ? prompt_computed + choice.computed : 0;
  }
  return rows;
}

std::vector<RequestArrived> Batcher::make_way(uint32_t sequences, std::vector<Effect>& effects) {
  std::vector<std::pair<uint64_t, RequestId>> able;  // By what it costs.
  for (const auto& [id, request] : requests_) {
    if (may_give_way(request)) {
      able.emplace_back(request.rows(), id);
    }
  }
  if (sequences <= free_.size() || free_.size() + able.size() < sequences) {
    return {};
  }
  std::ranges::sort(able);
  able.resize(sequences - free_.size());
  std::vector<RequestArrived> gone;
  for (const auto& [rows, id] : able) {
    const Request& request = requests_.at(id);
    gone.push_back(request.arrived);
    gone.back().kv = KvMode::kLocal;
    gone.back().generated = request.choices.front().generated;
    drop(id, Rows::kKeep, effects);
  }
  ways_given_ += gone.size();
  return gone;
}

std::vector<BatchItem> Batcher::next_batch(Instant now) {
  running_.clear();
  turns_.clear();
  for (const auto& [id, request] : requests_) {
    turns_.emplace_back(id, &request);
  }
  const auto turn = [](const auto& each) { return each.second->turn; };
  if (!std::ranges::is_sorted(turns_, {}, turn)) {
    std::ranges::stable_sort(turns_, {}, turn);
  }
  add_decoding_items(false, running_);
  const auto decoding = static_cast<uint32_t>(running_.size());
  const uint32_t chunk =
      decoding == 0 ? std::max(options_.prompt_tokens_per_step, options_.prompt_tokens_alone)
                    : options_.prompt_tokens_per_step;
  PromptRoom prompts{.whole = std::min(chunk, options_.engine.batch_tokens - decoding)};
  add_prompt_items(false, prompts, running_);
  add_background(prompts, now, running_);
  std::sort(running_.begin(), running_.end(),
            [](const BatchItem& a, const BatchItem& b) { return a.sequence < b.sequence; });
  runs_ = !running_.empty();
  spare_.step_begins(tokens_of(running_), now);
  return running_;
}

void Batcher::add_background(PromptRoom prompts, Instant now, std::vector<BatchItem>& items) {
  if (requests(true) == 0) {
    return;
  }
  const uint32_t others = tokens_of(items);
  if (others > 0) {
    spare_.note_other(now);
  }
  const bool expects = spare_.expects_others(now);
  const uint32_t left = options_.engine.batch_tokens - others;
  const uint32_t room = others > 0 ? std::min(left, spare_.beside(others)) : left;
  const size_t kept = items.size();
  add_decoding_items(true, items);
  take_turns(kept, others == 0 && expects ? std::min(room, spare_.alone()) : room, items);
  const uint32_t generated = tokens_of(items) - others;
  uint32_t chunk = std::max(options_.prompt_tokens_per_step,
                            generated == 0 && !expects ? options_.prompt_tokens_alone : 0);
  if (expects) {
    chunk = std::max(1U, chunk / kPartOfChunk);
  }
  prompts.whole = prompts.used + std::min(room - generated, chunk);
  if (prompts.reads) {
    const uint32_t most = std::max<uint32_t>(prompts.used, limits::kReadTokensPerStep);
    prompts.whole = std::min(prompts.whole, most);
  }
  add_prompt_items(true, prompts, items);
}

// Keeps so many of the items from `kept` on, each sequence in its turn.
void Batcher::take_turns(size_t kept, uint32_t room, std::vector<BatchItem>& items) {
  if (items.size() - kept <= room) {
    return;
  }
  const auto first = items.begin() + static_cast<std::ptrdiff_t>(kept);
  std::sort(first, items.end(),
            [](const BatchItem& a, const BatchItem& b) { return a.sequence < b.sequence; });
  const auto next = std::find_if(first, items.end(), [&](const BatchItem& item) {
    return last_in_background_ < item.sequence;
  });
  std::rotate(first, next, items.end());
  items.resize(kept + room);
  if (room > 0) {
    last_in_background_ = items.back().sequence;
  }
}

void Batcher::add_decoding_items(bool background, std::vector<BatchItem>& items) const {
  for (const auto& [id, request] : requests_) {
    if (!request.forked || request.background() != background) {
      continue;
    }
    for (uint32_t index = 0; index < request.choices.size(); ++index) {
      const Choice& choice = request.choices[index];
      if (!choice.ended && choice.sequence && choice.behind() == 1) {
        items.push_back({.sequence = *choice.sequence,
                         .request = id,
                         .choice = index,
                         .first = choice.computed,
                         .samples = 1});
      }
    }
  }
}

void Batcher::add_prompt_items(bool background, PromptRoom& prompts,
                               std::vector<BatchItem>& items) const {
  uint32_t room = prompts.whole - prompts.used;
  for (const auto& [id, entry] : turns_) {
    const Request& request = *entry;
    if (request.background() != background) {
      continue;
    }
    add_continued_items(id, request, room, items);
    const uint32_t left =
        request.loads ? 0 : request.arrived.prompt_tokens - request.prompt_computed;
    if (left > 0 && request.reads_prompt && prompts.whole > limits::kReadTokensPerStep) {
      const uint32_t used = prompts.whole - room;  // By earlier requests; they count, too.
      if (used >= limits::kReadTokensPerStep) {
        continue;  // It comes first once they are done.
      }
      prompts.whole = limits::kReadTokensPerStep;
      room = prompts.whole - used;
    }
    const uint32_t count = std::min(left, room);
    if (count == 0) {
      continue;
    }
    room -= count;
    prompts.reads = prompts.reads || request.reads_prompt;
    const bool samples = count == left && request.arrived.generated == 0;
    items.push_back({.sequence = request.first,
                     .request = id,
                     .prompt = true,
                     .first = request.prompt_computed,
                     .count = count,
                     .samples = samples ? static_cast<uint32_t>(request.choices.size()) : 0});
  }
  prompts.used = prompts.whole - room;
}

void Batcher::add_continued_items(RequestId id, const Request& request, uint32_t& room,
                                  std::vector<BatchItem>& items) const {
  for (uint32_t index = 0; index < request.choices.size() && request.forked; ++index) {
    const Choice& choice = request.choices[index];
    const uint32_t count = std::min(choice.behind(), room);
    if (!choice.sequence || choice.behind() <= 1 || count == 0 || request.loads) {
      continue;
    }
    room -= count;
    items.push_back({.sequence = *choice.sequence,
                     .request = id,
                     .choice = index,
                     .first = choice.computed,
                     .count = count,
                     .samples = count == choice.behind() ? 1U : 0U});
  }
}

std::vector<Batcher::PromptProgress> Batcher::batch_finished(Instant now) {
  runs_ = false;
  spare_.step_ends(now);
  std::vector<PromptProgress> progress;
  for (const BatchItem& item : running_) {
    const auto found = requests_.find(item.request);
    if (found == requests_.end()) {
      continue;
    }
    Request& request = found->second;
    if (!item.prompt) {
      request.choices[item.choice].computed += item.count;
      continue;
    }
    request.prompt_computed += item.count;
    if (request.prompt_computed == request.arrived.prompt_tokens) {
      end_turn(request.group);
      request.forked = request.arrived.generated > 0;  // It goes on with its tokens.
    }
    progress.push_back({.request = item.request,
                        .sequence = item.sequence,
                        .rows = request.prompt_computed,
                        .complete = request.prompt_computed == request.arrived.prompt_tokens});
  }
  return progress;
}

void Batcher::end_turn(RequestId group) {
  for (auto& [id, request] : requests_) {
    if (request.group == group && request.prompt_computed < request.arrived.prompt_tokens) {
      request.turn = RequestId{newest_.value + 1};
    }
  }
}

bool Batcher::token_sampled(const SampledToken& token, std::vector<Effect>& effects) {
  Request& request = requests_.at(token.request);
  PDJOB_CHECK(token.choice < request.choices.size(), token.choice);
  Choice& choice = request.choices[token.choice];
  PDJOB_CHECK(!choice.ended, token.request, token.choice);
  PDJOB_CHECK(token.count > 0, token.request);
  choice.generated += token.count;
  // The next step would write row prompt + generated - 1. The last row ends the generation too.
  const bool full =
      request.arrived.prompt_tokens + choice.generated > options_.engine.rows_per_sequence;
  const bool long_enough = choice.generated >= request.arrived.max_tokens || full;
  const FinishReason finish = token.stopped ? FinishReason::kStop
                              : long_enough ? FinishReason::kLength
                                            : FinishReason::kNone;
  effects.push_back(Deliver{.request = token.request, .choice = token.choice, .finish = finish});
  if (finish != FinishReason::kNone) {
    end_choice(request, choice, effects);
  } else if (!request.forked && token.choice > 0) {
    fork_into(request, choice, effects);
  }
  if (!request.forked && token.choice + 1 == request.choices.size()) {
    end_forking(request, effects);
  }
  // Its tokens up to here were computed elsewhere.
  if (request.arrived.has_store && request.choices.size() == 1 && !choice.ended &&
      choice.behind() > kLoadMin) {
    load(token.request, request, nullptr, request.arrived.prompt_tokens, effects);
  }
  const bool all_ended = std::all_of(request.choices.begin(), request.choices.end(),
                                     [](const Choice& c) { return c.ended; });
  if (all_ended) {
    requests_.erase(token.request);
  }
  return all_ended;
}

void Batcher::fork_into(Request& request, Choice& choice, std::vector<Effect>& effects) {
  if (!choice.sequence && !request.spare.empty()) {
    choice.sequence = request.spare.back();
    request.spare.pop_back();
  }
  if (choice.sequence) {
    effects.push_back(ForkSequence{.from = request.first, .to = *choice.sequence});
  }
}

// The first sequence outlives its own choice until the others have its rows.
void Batcher::end_forking(Request& request, std::vector<Effect>& effects) {
  request.forked = true;
  for (const SequenceId sequence : std::exchange(request.spare, {})) {
    give_back(sequence, {}, effects);
  }
  Choice& first = request.choices.front();
  if (first.ended) {
    end_choice(request, first, effects);
  }
}

void Batcher::end_choice(Request& request, Choice& choice, std::vector<Effect>& effects) {
  choice.ended = true;
  const bool kept = choice.sequence == request.first && (request.keep_first || !request.forked);
  if (!choice.sequence || kept) {
    return;
  }
  const SequenceId sequence = *std::exchange(choice.sequence, std::nullopt);
  if (!request.forked && next_of(request) != request.choices.end()) {
    request.spare.push_back(sequence);
  } else {
    pass_on(request, sequence, effects);
  }
}

std::vector<Batcher::Choice>::iterator Batcher::next_of(Request& request) {
  return std::ranges::find_if(
      request.choices, [](const Choice& choice) { return !choice.ended && !choice.sequence; });
}

void Batcher::pass_on(Request& request, SequenceId sequence, std::vector<Effect>& effects) {
  const auto next = next_of(request);
  if (next == request.choices.end()) {
    return give_back(request, sequence, Rows::kKeep, effects);
  }
  next->sequence = sequence;
  effects.push_back(TrimSequence{.sequence = sequence, .rows = request.arrived.prompt_tokens});
}

void Batcher::keep_first(RequestId request) { requests_.at(request).keep_first = true; }

std::vector<RequestId> Batcher::requests_in_batch() const {
  std::vector<RequestId> in_batch;
  for (const BatchItem& item : running_) {
    if (requests_.contains(item.request) &&
        (in_batch.empty() ||
         std::find(in_batch.begin(), in_batch.end(), item.request) == in_batch.end())) {
      in_batch.push_back(item.request);
    }
  }
  return in_batch;
}

std::map<RequestId, uint32_t> Batcher::prompts_by_group() const {
  std::map<RequestId, uint32_t> prompts;
  for (const auto& [id, request] : requests_) {
    ++prompts[request.group];
  }
  return prompts;
}

CoreLoad Batcher::load(const RequestQueue& queue) const {
  return {.requests_running = requests(false),
          .requests_queued = queue.size() - queue.in_background(),
          .tokens_queued = prompt_tokens_left(false) + queue.prompt_tokens(),
          .rows_used = rows_used(false),
          .rows_max = uint64_t{options_.engine.sequences} * options_.engine.rows_per_sequence,
          .background_running = requests(true),
          .background_queued = queue.in_background(),
          .background_rows = rows_used(true),
          .ways_given = ways_given_};
}

uint32_t Batcher::requests(bool background) const {
  return static_cast<uint32_t>(std::ranges::count_if(
      requests_, [&](const auto& each) { return each.second.background() == background; }));
}

uint64_t Batcher::prompt_tokens_left(bool background) const {
  uint64_t left = 0;
  for (const auto& [id, request] : requests_) {
    left += request.background() == background
                ? request.arrived.prompt_tokens - request.prompt_computed
                : 0;
  }
  return left;
}

uint64_t Batcher::rows_used(bool background) const {
  uint64_t rows = 0;
  for (const auto& [id, request] : requests_) {
    rows += request.background() == background ? request.rows() : 0;
  }
  for (const auto& [sequence, abandoned] : loading_) {
    rows += abandoned && !background ? options_.engine.rows_per_sequence : 0;
  }
  return rows;
}

}  // namespace pdjob::worker
