#include "tests/simulation/invariants.h"

namespace pdjob::simulation {

using worker::KvMode;

void CoreWatch::before(const worker::Event& event) {
  std::visit([this](const auto& what) { on(what); }, event);
}

void CoreWatch::after(const worker::Effect& effect) {
  std::visit([this](const auto& what) { on(what); }, effect);
}

void CoreWatch::check(const worker::CoreLoad& load) {
  expect(load.requests_queued <= bounds_.requests_queued, "the queue keeps its bound, but has",
         load.requests_queued);
  expect(load.requests_running + load.background_running <= bounds_.engine.sequences,
         "no more requests run than there are sequences:", load.requests_running);
}

bool CoreWatch::may_be_written(SequenceId sequence, RequestId request) const {
  const auto found = exposed_.find(sequence);
  return found != exposed_.end() && found->second == request;
}

// --- events

void CoreWatch::on(const worker::RequestArrived& event) {
  requests_[event.request] = {.asked = event};
}

void CoreWatch::on(const worker::RequestCancelled& event) {
  if (Request* request = find(event.request)) {
    request->cancelled = true;
  }
}

void CoreWatch::on(const worker::RowsFetched& event) {
  if (Request* request = find(event.request)) {
    request->fetched = true;
  }
  hide(event.request);
}

void CoreWatch::on(const worker::FetchFailed& event) {
  if (event.region_safe) {
    hide(event.request);
  }
}

// --- effects

void CoreWatch::on(const worker::RunStep& effect) {
  uint64_t tokens = 0;
  const worker::BatchItem* last = nullptr;
  for (const worker::BatchItem& item : effect.items) {
    const Request* request = find(item.request);
    expect(request != nullptr, "only what is alive runs, but also request", item.request);
    if (request == nullptr) {
      return;
    }
    expect(last == nullptr || last->sequence < item.sequence,
           "a batch is ordered by sequence:", item.sequence);
    // One in the background may have given its rows back.
    expect(request->asked.kv != KvMode::kFetch ||
               (request->fetched && (!item.prompt || request->asked.background)),
           "decoding starts only when the rows have come, but request", item.request, "runs");
    if (item.prompt && !owners_.contains(item.sequence)) {
      own(item.sequence, item.request);
      const worker::Prompt& own = request->asked.prompt;
      const worker::Prompt& there = written_by_[item.sequence];
      expect(item.first == 0 || (own && there && own->tenant == there->tenant),
             "nothing of one tenant reaches another, but request", item.request, "uses rows of",
             there ? there->tenant : "nobody");
    }
    if (item.prompt) {
      written_by_[item.sequence] = request->asked.prompt;
    } else if (request->asked.choices > 1 && !owners_.contains(item.sequence) &&
               written_by_[item.sequence] == request->asked.prompt) {
      own(item.sequence, item.request);  // A choice has ended, and the next one took its rows.
    }
    const auto owner = owners_.find(item.sequence);
    expect(owner != owners_.end() && owner->second == item.request,
           "a request runs in its own sequence:", item.request, item.sequence);
    tokens += item.count;
    last = &item;
  }
  expect(!effect.items.empty() && tokens <= bounds_.engine.batch_tokens,
         "a batch keeps its bound:", tokens);
}

void CoreWatch::on(const worker::CommitOffer& effect) {
  expect(may_be_written(effect.sequence, effect.request),
         "what is committed is offered:", effect.request);
}

void CoreWatch::on(const worker::SampleTail& effect) {
  const Request* request = find(effect.request);
  expect(request != nullptr && request->fetched,
         "decoding starts only when the rows have come, but request", effect.request, "samples");
}

void CoreWatch::on(const worker::ForkSequence& effect) {
  written_by_[effect.to] = written_by_[effect.from];
  expect(!owners_.contains(effect.to), "no rows are forked over held ones:", effect.to);
  // A free sequence may be forked into another free one.
  if (const auto from = owners_.find(effect.from); from != owners_.end()) {
    own(effect.to, from->second);
  }
}

void CoreWatch::on(const worker::Deliver& effect) {
  Request* request = find(effect.request);
  const bool expected = request != nullptr && !request->failed &&
                        effect.choice < request->asked.choices &&
                        !request->finished.contains(effect.choice);
  expect(expected, "tokens come between arrival and end, but not those of", effect.request,
         effect.choice);
  if (expected && effect.finish != FinishReason::kNone) {
    request->finished.insert(effect.choice);
  }
}

void CoreWatch::on(const worker::FailRequest& effect) {
  Request* request = find(effect.request);
  expect(request != nullptr && !request->failed, "a request fails at most once:", effect.request);
  if (request != nullptr) {
    request->failed = true;
  }
}

void CoreWatch::on(const worker::EndRequest& effect) {
  const Request* request = find(effect.request);
  expect(request != nullptr, "each accepted request ends exactly once, but again", effect.request);
  if (request == nullptr) {
    return;
  }
  expect(
      request->cancelled || request->failed || request->finished.size() == request->asked.choices,
      "a request ends when all is delivered:", effect.request);
  for (const auto& [sequence, owner] : owners_) {
    expect(owner != effect.request || exposed_.contains(sequence),
           "what has ended holds no sequence, but request", owner, "holds", sequence);
  }
  requests_.erase(effect.request);
}

// --- bookkeeping

CoreWatch::Request* CoreWatch::find(RequestId request) {
  const auto found = requests_.find(request);
  return found == requests_.end() ? nullptr : &found->second;
}

void CoreWatch::own(SequenceId sequence, RequestId request) {
  const auto [place, is_free] = owners_.emplace(sequence, request);
  expect(is_free, "a sequence is held by one request, but", sequence, "by", place->second, "and",
         request);
}

void CoreWatch::expose(SequenceId sequence, RequestId request) {
  own(sequence, request);
  exposed_[sequence] = request;
}

// Called also for free sequences: the rows that they keep are trimmed and cleared.
void CoreWatch::release(SequenceId sequence) {
  expect(!exposed_.contains(sequence),
         "rows that a transfer may touch are not given on, but sequence", sequence);
  owners_.erase(sequence);
}

void CoreWatch::hide(RequestId request) {
  std::erase_if(exposed_, [&](const auto& entry) { return entry.second == request; });
}

}  // namespace pdjob::simulation
