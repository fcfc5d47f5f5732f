#include "router/relay/request_watch.h"

#include <algorithm>
#include <utility>

#include "common/log.h"
#include "common/parse_number.h"

namespace pdjob::router {
namespace {

constexpr double kVisibleSecondsMax = 86400;  // A worker says it.

}  // namespace

std::string RequestWatch::metrics_text() {
  if (tracer_) {
    metrics_.spans_dropped(tracer_->spans_dropped());
  }
  if (tls_ != nullptr) {
    metrics_.tls(tls_->counts(), tls_->certificate().not_after);
  }
  return metrics_.text(core_, loop_.now());
}

RequestTrail RequestWatch::begin(const net::HttpRequest& request) {
  return {.moments = {.arrived = loop_.now()}, .span = tracer_ ? tracer_->begin(request) : nullptr};
}

std::unique_ptr<Span> RequestWatch::begin_leg(RequestTrail& trail, const StartLeg& leg) {
  if (trail.moments.legs_began == Instant{}) {
    trail.moments.legs_began = loop_.now();
    if (!trail.background) {
      metrics_.queued(loop_.now() - trail.moments.arrived, loop_.now());
    }
  }
  const std::string& worker = core_.workers().find(leg.worker)->entry.name;
  metrics_.picked(worker, leg.leg.stage);
  if (!trail.span) {
    return nullptr;
  }
  auto span =
      tracer_->begin_child(*trail.span, leg.leg.stage == Stage::kPrefill ? "prefill" : "decode");
  span->attributes.emplace_back("pdjob.worker", worker);
  span->attributes.emplace_back("pdjob.attempt", std::to_string(leg.leg.attempt));
  return span;
}

void RequestWatch::end_leg(std::unique_ptr<Span> span, std::string_view error) {
  if (span) {
    span->error = error;
    tracer_->end(std::move(span));
  }
}

void RequestWatch::prefilled(RequestTrail& trail) {
  trail.moments.prefilled = loop_.now();
  note_kv(trail);
}

// The prefill leg's answer may come later than the first token.
void RequestWatch::note_kv(RequestTrail& trail) {
  const RequestMoments& moments = trail.moments;
  if (!trail.kv_known && moments.stream && moments.prefilled != Instant{} &&
      moments.first_bytes != Instant{}) {
    trail.kv_known = true;
    metrics_.kv_moved(seconds(std::max(moments.first_bytes - moments.prefilled, Duration::zero())),
                      loop_.now());
  }
}

void RequestWatch::answered(RequestTrail& trail, int status, std::string_view kv_visible_seconds) {
  trail.timing.status = status;
  if (const auto visible = parse_number<double>(kv_visible_seconds)) {
    if (!trail.background) {
      metrics_.kv_moved(*visible, loop_.now());
    }
    trail.kv_known = true;
    trail.moments.kv_visible = std::chrono::duration_cast<Duration>(
        std::chrono::duration<double>(*visible > 0 ? std::min(*visible, kVisibleSecondsMax) : 0.0));
  }
}

void RequestWatch::passed(RequestTrail& trail, bool of_stream) {
  const Instant now = loop_.now();
  if (trail.moments.first_bytes == Instant{}) {
    trail.moments.first_bytes = now;
    if (trail.span) {
      trail.span->first_byte = now;
    }
    if (!trail.background) {
      metrics_.first_byte(now - trail.moments.arrived);
      note_kv(trail);
    }
  } else if (of_stream && !trail.background) {
    metrics_.next_bytes(now - trail.last_bytes);
  }
  trail.last_bytes = now;
}

Outcome RequestWatch::completed(const RequestTrail& trail) {
  const int status = trail.timing.status;
  if (status >= 500 || status == 429) {
    return Outcome::kWorkerError;
  }
  if (status >= 300) {
    return Outcome::kClientError;
  }
  if (trail.moments.first_bytes != Instant{} && !trail.background) {
    metrics_.decoded(loop_.now() - trail.moments.first_bytes);
  }
  return Outcome::kOk;
}

void RequestWatch::ended(RequestId id, RequestTrail trail, Outcome outcome, std::string request_id,
                         const std::string& tenant) {
  RequestTiming& timing = trail.timing;
  trail.moments.ended = loop_.now();
  metrics_.ended(outcome, loop_.now() - trail.moments.arrived);
  if (trail.span) {
    trail.span->attributes.emplace_back("pdjob.outcome", to_string(outcome));
    if (timing.status > 0) {
      trail.span->attributes.emplace_back("http.response.status_code",
                                          std::to_string(timing.status));
    }
    if (outcome != Outcome::kOk && outcome != Outcome::kClientError) {
      trail.span->error = to_string(outcome);
    }
    tracer_->end(std::move(trail.span));
  }
  if (trail.timed) {
    timing.number = id.value;
    timing.request_id = std::move(request_id);
    timing.tenant = tenant;
    timing.outcome = to_string(outcome);
    timing.stream = trail.moments.stream;
    timing.ended = trail.moments.ended;
    timing.phases = phases_of(trail.moments);
    timings_.add(std::move(timing));
  }
}

std::string_view RequestWatch::name_of(WorkerId worker, std::string_view gone) const {
  const Worker* row = core_.workers().find(worker);
  return row == nullptr ? gone : row->entry.name;
}

void RequestWatch::note(const PairSuspected& effect) {
  metrics_.pair_suspected();
  log::warn("requests avoid " + std::string(name_of(effect.decode, "a worker")) + " with " +
            std::string(name_of(effect.prefill, "a worker")) +
            " for a while: " + why_avoided(effect.fault));
}

void RequestWatch::note(const WorkerAvoided& effect) {
  if (avoided_warning_.opens(loop_.now())) {
    log::warn("requests avoid " + std::string(name_of(effect.worker, "a worker")) + ": " +
              answer_text(effect.status));
  }
}

void RequestWatch::note(const Degraded& /*effect*/) {
  metrics_.degraded();
  if (degraded_warning_.opens(loop_.now())) {
    log::warn("no prefill worker is usable: decode workers prefill by themselves");
  }
}

void RequestWatch::note(const Retried& effect, const std::string& request) {
  metrics_.retried(effect.reason);
  log::warn(request + " is retried: " + std::string(name_of(effect.worker, "a worker")) + ' ' +
            to_string(effect.reason));
}

void RequestWatch::note(const OutOfRetries& /*effect*/, const std::string& request) {
  metrics_.out_of_retries();
  log::info(request + " is not tried again: too many of late were (retry_budget)");
}

void RequestWatch::note(const Hedged& effect, const std::string& request) {
  metrics_.hedged();
  log::info(request + " is tried at another pair, too: " + std::string(name_of(effect.worker)) +
            " is slow with its prompt");
}

void RequestWatch::note(const Continued& effect, const std::string& request) {
  metrics_.continued();
  log::warn(request + " goes on elsewhere: " + std::string(name_of(effect.worker, "its worker")) +
            " broke off");
}

void RequestWatch::note(const Blamed& effect, const std::string& request, const std::string& tenant,
                        const std::string& digest) {
  metrics_.blamed(tenant);
  log::error(request + (tenant.empty() ? "" : " of tenant " + tenant) +
             " is not given on: " + std::to_string(effect.losses) +
             " workers crashed or hung while they ran it; SHA-256 " + digest);
}

}  // namespace pdjob::router
