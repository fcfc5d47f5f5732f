#include "router/relay/request_timings.h"

#include <algorithm>
#include <utility>

#include "common/json/json_writer.h"

namespace pdjob::router {
namespace {

int64_t microseconds(Duration duration) { return duration / std::chrono::microseconds(1); }

void append(JsonWriter& json, const RequestTiming& timing, Instant now, int64_t unix_now) {
  json.begin_object();
  json.key("number").integer(timing.number);
  json.key("request_id").string(timing.request_id);
  json.key("tenant").string(timing.tenant);
  json.key("prefill").string(timing.prefill);
  json.key("decode").string(timing.decode);
  json.key("attempts").integer(timing.attempts);
  json.key("status").integer(timing.status);
  json.key("outcome").string(timing.outcome);
  json.key("stream").boolean(timing.stream);
  json.key("ended_at").integer(unix_now - (now - timing.ended) / std::chrono::seconds(1));
  json.key("queue_us").integer(microseconds(timing.phases.queue));
  json.key("prefill_us").integer(microseconds(timing.phases.prefill));
  json.key("kv_us").integer(microseconds(timing.phases.kv));
  json.key("decode_us").integer(microseconds(timing.phases.decode));
  json.end_object();
}

}  // namespace

RequestPhases phases_of(const RequestMoments& moments) {
  if (moments.legs_began == Instant{}) {
    return {.queue = moments.ended - moments.arrived};
  }
  const bool has_prefill = moments.prefilled != Instant{};
  // The prefill leg's answer may come later than the first token, and the commit before either.
  Instant prefill_end = has_prefill ? moments.prefilled : moments.legs_began;
  Instant kv_end = prefill_end + moments.kv_visible;
  if (moments.stream && moments.first_bytes != Instant{}) {
    kv_end = moments.first_bytes;
    const Instant committed = kv_end - moments.kv_visible;
    prefill_end = has_prefill ? std::min(moments.prefilled, committed) : committed;
  }
  prefill_end = std::clamp(prefill_end, moments.legs_began, moments.ended);
  kv_end = std::clamp(kv_end, prefill_end, moments.ended);
  return {.queue = moments.legs_began - moments.arrived,
          .prefill = prefill_end - moments.legs_began,
          .kv = kv_end - prefill_end,
          .decode = moments.ended - kv_end};
}

void RequestTimings::add(RequestTiming timing) {
  std::erase_if(slowest_,
                [&](const RequestTiming& old) { return timing.ended - old.ended > kSlowFor; });
  const auto place = std::ranges::find_if(slowest_, [&](const RequestTiming& slow) {
    return slow.phases.wait() < timing.phases.wait();
  });
  if (place != slowest_.end() || slowest_.size() < kSlowestMax) {
    slowest_.insert(place, timing);
    slowest_.resize(std::min(slowest_.size(), kSlowestMax));
  }
  newest_.push_back(std::move(timing));
  if (newest_.size() > kNewestMax) {
    newest_.pop_front();
  }
}

std::string RequestTimings::json(Instant now, int64_t unix_now) const {
  std::string text;
  JsonWriter json(text);
  json.begin_object().key("requests").begin_array();
  for (auto timing = newest_.rbegin(); timing != newest_.rend(); ++timing) {
    append(json, *timing, now, unix_now);
  }
  // Numbers grow with arrivals, not with ends.
  for (const RequestTiming& slow : slowest_) {
    const bool shown = std::ranges::any_of(
        newest_, [&](const RequestTiming& timing) { return timing.number == slow.number; });
    if (!shown && now - slow.ended <= kSlowFor) {
      append(json, slow, now, unix_now);
    }
  }
  json.end_array().end_object();
  return text;
}

}  // namespace pdjob::router
