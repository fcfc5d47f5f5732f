#include "prefill/prefill_worker.h"

#include <algorithm>
#include <span>

namespace pdjob::prefill {

using worker::KvMode;
using Rows = worker::Batcher::Rows;

PrefillWorker::PrefillWorker(const PrefillConfig& config, const worker::EngineSize& engine)
    : engine_(engine),
      queue_("prefill worker", config.requests_queued),
      batcher_({.engine = engine,
                .prompt_tokens_per_step = config.chunk_tokens,
                .prefix_cache = config.prefix_cache,
                .order = worker::PromptCache::Order::kOldestFirst}) {}

void PrefillWorker::step(const worker::Event& event, Instant now, Effects& effects) {
  std::visit([&](const auto& e) { on(e, now, effects); }, event);
}

template <class Other>
void PrefillWorker::on(const Other& /*event*/, Instant /*now*/, Effects& /*effects*/) {
  PDJOB_CHECK(false, "a prefill worker never fetches, so nothing can come of a fetch");
}

void PrefillWorker::on(const worker::RequestArrived& event, Instant now, Effects& effects) {
  PDJOB_CHECK(event.kv != KvMode::kFetch);
  batcher_.note_arrival(event, now);
  queue_.push(event, effects);
  admit(now, effects);
}

// The request that gets sequences next. Prompts that a decode worker waits for go first, and all
// before those in the background. Empty if no request can start.
std::optional<RequestId> PrefillWorker::next_of_queue(Instant now) const {
  if (batcher_.sequences_free() == 0 || queue_.empty()) {
    return std::nullopt;
  }
  const auto held = batcher_.prompts_by_group();
  const auto waiting = queue_.in_turn(held);
  const auto background = std::ranges::find_if(waiting, &worker::RequestArrived::background);
  const std::span others(waiting.begin(), background);
  if (const auto next = next_of(others, held, now)) {
    return next;
  }
  const std::span behind(background, waiting.end());
  return others.empty() ? next_of(behind, held, now) : next_awaited(behind, now);
}

std::optional<RequestId> PrefillWorker::next_awaited(Waiting waiting, Instant now) const {
  const uint32_t free = batcher_.sequences_free();
  // One prompt of the background may take what is kept for others. Otherwise the two queues could
  // wait for each other.
  const bool takes_last = batcher_.prompt_tokens_left(true) == 0;
  const auto found = std::ranges::find_if(waiting, [&](const worker::RequestArrived* request) {
    const uint32_t holds = worker::sequences_for(request->choices, engine_);
    return request->awaited && (takes_last ? holds : batcher_.needed_for(*request, now)) <= free;
  });
  return found == waiting.end() ? std::nullopt : std::optional((*found)->request);
}

std::optional<RequestId> PrefillWorker::next_of(Waiting waiting,
                                                const std::map<RequestId, uint32_t>& held,
                                                Instant now) const {
  if (const auto awaited = next_awaited(waiting, now)) {
    return awaited;
  }
  for (const worker::RequestArrived* request : waiting) {
    const bool offers = request->kv == KvMode::kOffer;
    // No decode worker can wait for a two-hop prompt, so it may take a worker's only sequence.
    const bool leaves_one =
        offers ? !request->two_hop || engine_.sequences > 1 : held.contains(group_of(*request));
    const uint32_t needed = batcher_.needed_for(*request, now) + (leaves_one ? 1 : 0);
    const uint32_t most = request->background ? engine_.sequences : UINT32_MAX;
    if (std::min(needed, most) <= batcher_.sequences_free()) {
      return request->request;
    }
    if (!offers) {
      return std::nullopt;  // Otherwise others would overtake a request of many choices forever.
    }
  }
  return std::nullopt;
}

void PrefillWorker::admit(Instant now, Effects& effects) {
  while (const auto request = next_of_queue(now)) {
    const worker::RequestArrived next = queue_.take(*request);
    const auto held = batcher_.take(next, effects);
    PDJOB_CHECK(held.has_value(), next.request);
    batcher_.start_prompt(next, *held, effects);
    if (next.kv == KvMode::kOffer) {
      const SequenceId sequence = held->sequences.front();
      batcher_.keep_first(next.request);
      // A load may write the rows that are there once more.
      const uint32_t ready = batcher_.loads(next.request) ? 0 : held->there.rows;
      offers_[next.request] = {.sequence = sequence,
                               .rows = ready,
                               .prompt = held->there.prompt,
                               .background = next.background};
      effects.push_back(worker::StartOffer{.request = next.request, .sequence = sequence});
      if (ready > 0) {
        effects.push_back(worker::OfferRows{.request = next.request, .ready = ready});
      }
    }
  }
}

void PrefillWorker::on(const worker::RequestCancelled& event, Instant now, Effects& effects) {
  if (queue_.cancel(event.request, effects)) {
    // It held no sequences yet.
  } else if (batcher_.holds(event.request)) {
    drop(event.request, Rows::kKeep, effects);
    effects.push_back(worker::EndRequest{event.request});
  }
  admit(now, effects);
  report_if_drained(effects);
}

void PrefillWorker::on(const worker::EngineFree& /*event*/, Instant now, Effects& effects) {
  auto items = batcher_.next_batch(now);
  if (!items.empty()) {
    effects.push_back(worker::RunStep{std::move(items)});
  }
}

void PrefillWorker::on(const worker::StepFinished& event, Instant now, Effects& effects) {
  for (const auto& progress : batcher_.batch_finished(now)) {
    const auto found = offers_.find(progress.request);
    if (found == offers_.end() || found->second.state != OfferState::kComputing) {
      continue;
    }
    Offer& offer = found->second;
    offer.rows = progress.rows;
    if (progress.complete) {
      offer.state = OfferState::kCommitted;
      effects.push_back(worker::CommitOffer{
          .request = progress.request, .sequence = offer.sequence, .rows = offer.rows});
    } else {
      effects.push_back(worker::OfferRows{.request = progress.request, .ready = offer.rows});
    }
  }
  for (const auto& failure : event.failed) {
    fail(failure.request, failure.error, effects);
  }
  for (const auto& token : event.sampled) {
    // When one choice fails, the whole request fails.
    if (batcher_.holds(token.request) && batcher_.token_sampled(token, effects)) {
      effects.push_back(worker::EndRequest{token.request});
    }
  }
  admit(now, effects);
  report_if_drained(effects);
}

void PrefillWorker::on(const worker::StepFailed& event, Instant now, Effects& effects) {
  for (const RequestId request : batcher_.requests_in_batch()) {
    fail(request, event.error, effects);
  }
  admit(now, effects);
  report_if_drained(effects);
}

void PrefillWorker::on(const worker::OfferAwaited& event, Instant now, Effects& effects) {
  queue_.set_awaited(event.request, event.awaited);
  admit(now, effects);
}

void PrefillWorker::on(const worker::OfferEnded& event, Instant now, Effects& effects) {
  const auto found = offers_.find(event.request);
  PDJOB_CHECK(found != offers_.end(), event.request);
  const Offer offer = found->second;
  offers_.erase(found);
  const bool early = batcher_.holds(event.request);
  if (early) {
    // The offer ended before its prompt did: the decode worker gave up, or the lease expired. The
    // rest of the prompt is not needed.
    batcher_.drop(event.request, Rows::kKeep, effects);
  }
  batcher_.give_back(offer.sequence, {.prompt = offer.prompt, .rows = offer.rows}, effects);
  if (early) {
    // The client did not cause this. The decode worker or the link may have died, and another pair
    // can serve the request.
    effects.push_back(worker::FailRequest{
        event.request, {ErrorCode::kUnavailable, "the decode worker gave up this prompt"}});
    effects.push_back(worker::EndRequest{event.request});
  }
  admit(now, effects);
  report_if_drained(effects);
}

void PrefillWorker::on(const worker::LoadEnded& event, Instant now, Effects& effects) {
  if (const auto load = batcher_.load_ended(event, effects)) {
    const auto offer = offers_.find(load->request);
    if (load->failed) {
      fail(load->request, worker::store_failed(), effects);
    } else if (offer != offers_.end() && event.rows > 0) {
      offer->second.rows = event.rows;
      effects.push_back(worker::OfferRows{.request = load->request, .ready = event.rows});
    }
  }
  admit(now, effects);
  report_if_drained(effects);
}

void PrefillWorker::on(const worker::LoadReleased& event, Instant now, Effects& effects) {
  batcher_.load_released(event.sequence, effects);
  admit(now, effects);
}

void PrefillWorker::on(const TimePassed& /*event*/, Instant now, Effects& effects) {
  queue_.expire(now, effects);
  admit(now, effects);
  report_if_drained(effects);
}

void PrefillWorker::on(const worker::DrainAsked& /*event*/, Instant /*now*/, Effects& effects) {
  queue_.close();
  report_if_drained(effects);
}

void PrefillWorker::fail(RequestId request, const Error& error, Effects& effects) {
  if (!batcher_.holds(request)) {
    return;  // Another choice has already failed it.
  }
  effects.push_back(worker::FailRequest{request, error});
  drop(request, Rows::kClear, effects);
  effects.push_back(worker::EndRequest{request});
}

void PrefillWorker::drop(RequestId request, Rows rows, Effects& effects) {
  if (const auto found = offers_.find(request); found != offers_.end()) {
    Offer& offer = found->second;
    if (rows == Rows::kClear) {
      offer.prompt = nullptr;
    }
    if (offer.state != OfferState::kWithdrawn) {
      // The transfer owns the rows until OfferEnded.
      offer.state = OfferState::kWithdrawn;
      effects.push_back(worker::WithdrawOffer{request});
    }
  }
  batcher_.drop(request, rows, effects);
}

void PrefillWorker::report_if_drained(Effects& effects) {
  if (!drained_reported_ && queue_.closed() && queue_.empty() && offers_.empty() &&
      batcher_.empty()) {
    drained_reported_ = true;
    effects.push_back(worker::ReportDrained{});
  }
}

Instant PrefillWorker::next_wakeup() const { return queue_.next_wakeup(); }

worker::CoreLoad PrefillWorker::load() const {
  worker::CoreLoad load = batcher_.load(queue_);
  for (const auto& [request, offer] : offers_) {
    (offer.background ? load.background_rows : load.rows_used) +=
        batcher_.holds(request) ? 0 : offer.rows;
  }
  return load;
}

worker::CoreFactory core_factory(const PrefillConfig& config) {
  return [config](const worker::EngineSize& engine) {
    return std::make_unique<PrefillWorker>(config, engine);
  };
}

}  // namespace pdjob::prefill
