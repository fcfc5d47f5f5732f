#include "decode/decode_worker.h"

#include <algorithm>
#include <utility>

namespace pdjob::decode {

using worker::KvMode;
using Rows = worker::Batcher::Rows;

namespace {

// Without streams, nobody waits for a long step, and long ones cost less. It is bounded because a
// stream may come while it runs.
constexpr uint32_t kAlone = 4;

uint32_t chunk_of(const DecodeConfig& config) {
  return config.local_chunk_tokens == 0 ? kLongChunk : config.local_chunk_tokens;
}

}  // namespace

DecodeWorker::DecodeWorker(const DecodeConfig& config, const worker::EngineSize& engine)
    : engine_(engine),
      queue_("decode worker", config.requests_queued),
      batcher_({.engine = engine,
                .prompt_tokens_per_step = chunk_of(config),
                .prompt_tokens_alone = kAlone * chunk_of(config),
                .prefix_cache = config.prefix_cache,
                .order = worker::PromptCache::Order::kLowestFirst,
                .background_slowdown = config.background_slowdown}) {}

void DecodeWorker::step(const worker::Event& event, Instant now, Effects& effects) {
  std::visit([&](const auto& e) { on(e, now, effects); }, event);
}

template <class Other>
void DecodeWorker::on(const Other& /*event*/, Instant /*now*/, Effects& /*effects*/) {
  PDJOB_CHECK(false, "a decode worker never offers, so nothing can come of an offer");
}

void DecodeWorker::on(const worker::RequestArrived& event, Instant now, Effects& effects) {
  PDJOB_CHECK(event.kv != KvMode::kOffer);
  batcher_.note_arrival(event, now);
  queue_.push(event, effects);
  admit(now, effects);
  if (event.kv == KvMode::kFetch && queue_.holds(event.request)) {
    effects.push_back(worker::AwaitFetch{event.request});
  }
}

std::map<RequestId, uint32_t> DecodeWorker::prompts_by_group() const {
  std::map<RequestId, uint32_t> prompts = batcher_.prompts_by_group();
  for (const auto& [id, fetch] : fetches_) {
    ++prompts[group_of(fetch.request)];
  }
  return prompts;
}

// A fetch cannot give way, and where others keep the prefill worker busy, it may wait for long.
bool DecodeWorker::too_many_fetches(Instant now) const {
  const uint32_t most = batcher_.reserve(now);
  const auto fetching = std::ranges::count_if(
      fetches_, [](const auto& each) { return each.second.request.background; });
  return most > 0 && std::cmp_greater_equal(fetching, most);
}

void DecodeWorker::admit(Instant now, Effects& effects) {
  while (!queue_.empty() && (batcher_.sequences_free() > 0 || batcher_.requests(true) > 0)) {
    const worker::RequestArrived next = *queue_.in_turn(prompts_by_group()).front();
    const uint32_t needed = batcher_.needed_for(next, now);
    if (next.background && too_many_fetches(now)) {
      return;
    }
    if (!next.background) {
      for (worker::RequestArrived& gone : batcher_.make_way(needed, effects)) {
        queue_.put_back(std::move(gone));
      }
    }
    if (batcher_.sequences_free() < needed) {
      return;
    }
    auto held = batcher_.take(next, effects);
    PDJOB_CHECK(held.has_value(), next.request);
    queue_.take(next.request);
    if (next.kv == KvMode::kFetch) {
      effects.push_back(worker::StartFetch{.request = next.request,
                                           .sequence = held->sequences.front(),
                                           .rows = next.prompt_tokens});
      fetches_[next.request] = {.request = next, .held = std::move(*held)};
    } else {
      batcher_.start_prompt(next, *held, effects);
    }
  }
}

void DecodeWorker::on(const worker::RequestCancelled& event, Instant now, Effects& effects) {
  if (queue_.cancel(event.request, effects)) {
    // It held no sequences yet.
  } else if (const auto fetch = fetches_.find(event.request); fetch != fetches_.end()) {
    if (!fetch->second.cancelled) {
      fetch->second.cancelled = true;
      effects.push_back(worker::CancelFetch{event.request});
    }
  } else if (batcher_.holds(event.request)) {
    batcher_.drop(event.request, Rows::kKeep, effects);
    effects.push_back(worker::EndRequest{event.request});
  }
  admit(now, effects);
  report_if_drained(effects);
}

void DecodeWorker::on(const worker::EngineFree& /*event*/, Instant now, Effects& effects) {
  auto items = batcher_.next_batch(now);
  if (!items.empty()) {
    effects.push_back(worker::RunStep{std::move(items)});
  }
}

void DecodeWorker::on(const worker::StepFinished& event, Instant now, Effects& effects) {
  batcher_.batch_finished(now);
  take_tokens(event.sampled, event.failed, now, effects);
}

void DecodeWorker::on(const worker::TailSampled& event, Instant now, Effects& effects) {
  take_tokens(event.sampled, event.failed, now, effects);
}

void DecodeWorker::take_tokens(const std::vector<worker::SampledToken>& sampled,
                               const std::vector<worker::SampleFailure>& failed, Instant now,
                               Effects& effects) {
  for (const auto& failure : failed) {
    fail(failure.request, failure.error, effects);
  }
  for (const auto& token : sampled) {
    // When one choice fails, the whole request fails.
    if (batcher_.holds(token.request) && batcher_.token_sampled(token, effects)) {
      effects.push_back(worker::EndRequest{token.request});
    }
  }
  admit(now, effects);
  report_if_drained(effects);
}

void DecodeWorker::on(const worker::StepFailed& event, Instant now, Effects& effects) {
  for (const RequestId request : batcher_.requests_in_batch()) {
    fail(request, event.error, effects);
  }
  admit(now, effects);
  report_if_drained(effects);
}

void DecodeWorker::on(const worker::RowsFetched& event, Instant now, Effects& effects) {
  const auto found = fetches_.find(event.request);
  PDJOB_CHECK(found != fetches_.end(), event.request);
  Fetch fetch = std::move(found->second);
  fetches_.erase(found);
  if (fetch.cancelled) {
    clear(fetch.held, effects);
    effects.push_back(worker::EndRequest{event.request});
    admit(now, effects);
    return report_if_drained(effects);
  }
  batcher_.start_decoding(fetch.request, fetch.held);
  effects.push_back(worker::SampleTail{.request = event.request, .choices = fetch.request.choices});
}

void DecodeWorker::on(const worker::FetchFailed& event, Instant now, Effects& effects) {
  const auto found = fetches_.find(event.request);
  PDJOB_CHECK(found != fetches_.end(), event.request);
  Fetch fetch = std::move(found->second);
  fetches_.erase(found);
  if (!event.region_safe) {
    std::vector<SequenceId>& sequences = fetch.held.sequences;
    retired_[event.request] = sequences.front();
    sequences.erase(sequences.begin());
  }
  clear(fetch.held, effects);
  if (!fetch.cancelled) {
    effects.push_back(worker::FailRequest{event.request, event.error});
  }
  effects.push_back(worker::EndRequest{event.request});
  admit(now, effects);
  report_if_drained(effects);
}

void DecodeWorker::on(const worker::FetchReleased& event, Instant now, Effects& effects) {
  const auto found = retired_.find(event.request);
  PDJOB_CHECK(found != retired_.end(), event.request);
  batcher_.give_back(found->second, {}, effects);
  retired_.erase(found);
  admit(now, effects);
}

void DecodeWorker::on(const worker::LoadEnded& event, Instant now, Effects& effects) {
  const auto load = batcher_.load_ended(event, effects);
  if (load && load->failed) {
    fail(load->request, worker::store_failed(), effects);
  }
  admit(now, effects);
  report_if_drained(effects);
}

void DecodeWorker::on(const worker::LoadReleased& event, Instant now, Effects& effects) {
  batcher_.load_released(event.sequence, effects);
  admit(now, effects);
}

void DecodeWorker::on(const TimePassed& /*event*/, Instant now, Effects& effects) {
  queue_.expire(now, effects);
  admit(now, effects);
  report_if_drained(effects);
}

void DecodeWorker::on(const worker::DrainAsked& /*event*/, Instant /*now*/, Effects& effects) {
  queue_.close();
  report_if_drained(effects);
}

void DecodeWorker::fail(RequestId request, const Error& error, Effects& effects) {
  if (!batcher_.holds(request)) {
    return;  // Another choice has already failed it.
  }
  effects.push_back(worker::FailRequest{request, error});
  batcher_.drop(request, Rows::kClear, effects);
  effects.push_back(worker::EndRequest{request});
}

void DecodeWorker::clear(const worker::Held& held, Effects& effects) {
  for (const SequenceId sequence : held.sequences) {
    batcher_.give_back(sequence, {}, effects);
  }
}

void DecodeWorker::report_if_drained(Effects& effects) {
  // The request of a retired sequence has ended, so the sequence does not delay the drain.
  if (!drained_reported_ && queue_.closed() && queue_.empty() && fetches_.empty() &&
      batcher_.empty()) {
    drained_reported_ = true;
    effects.push_back(worker::ReportDrained{});
  }
}

Instant DecodeWorker::next_wakeup() const { return queue_.next_wakeup(); }

worker::CoreLoad DecodeWorker::load() const {
  worker::CoreLoad load = batcher_.load(queue_);
  for (const auto& [id, fetch] : fetches_) {
    const bool background = fetch.request.background;
    (background ? load.background_running : load.requests_running) += 1;
    (background ? load.background_rows : load.rows_used) += fetch.request.prompt_tokens;
  }
  load.rows_used += retired_.size() * engine_.rows_per_sequence;
  return load;
}

worker::CoreFactory core_factory(const DecodeConfig& config) {
  return [config](const worker::EngineSize& engine) {
    return std::make_unique<DecodeWorker>(config, engine);
  };
}

}  // namespace pdjob::decode
