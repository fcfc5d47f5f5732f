#include "launcher/dashboard/load_history.h"

#include <algorithm>
#include <utility>

#include "common/json/json_writer.h"

namespace pdjob::launcher {
namespace {

uint64_t growth(uint64_t from, uint64_t to) { return to > from ? to - from : 0; }

struct Mean {
  uint64_t sum = 0;
  uint64_t count = 0;

  std::optional<uint64_t> value() const {
    return count == 0 ? std::nullopt : std::optional(sum / count);
  }
};

void append(JsonWriter& json, const std::optional<uint64_t>& value) {
  value ? json.integer(*value) : json.null();
}

}  // namespace

void LoadHistory::look(const std::vector<LoadOfWorker>& workers, Instant now) {
  Mean ttft;
  Mean itl;
  uint64_t queued = 0;
  uint64_t tokens = 0;
  std::map<std::string, net::WorkerLoad> seen;
  for (const LoadOfWorker& worker : workers) {
    const net::WorkerLoad& load = worker.load;
    queued += load.requests_queued;
    if (const auto old = before_.find(worker.engine_id); old != before_.end()) {
      const net::WorkerLoad& before = old->second;
      tokens += growth(before.tokens_computed, load.tokens_computed);
      if (worker.decodes) {
        ttft.sum += growth(before.ttft_sum_us, load.ttft_sum_us);
        ttft.count += growth(before.ttft_count, load.ttft_count);
        itl.sum += growth(before.itl_sum_us, load.itl_sum_us);
        itl.count += growth(before.itl_count, load.itl_count);
      }
    }
    seen.emplace(worker.engine_id, load);
  }
  before_ = std::move(seen);
  const Instant looked_at = std::exchange(looked_at_, now);
  if (looked_at == Instant{}) {
    return;
  }
  const double seconds_passed = std::max(seconds(now - looked_at), 1e-3);
  points_.push_back(
      {.ttft_us = ttft.value(),
       .itl_us = itl.value(),
       .queued = queued,
       .tokens_per_second = static_cast<uint64_t>(static_cast<double>(tokens) / seconds_passed)});
  if (points_.size() > kPointsMax) {
    points_.pop_front();
  }
}

std::string LoadHistory::json() const {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.key("interval_ms").integer(kInterval / std::chrono::milliseconds(1));
  json.key("points").begin_array();
  for (const Point& point : points_) {
    json.begin_array();
    append(json, point.ttft_us);
    append(json, point.itl_us);
    json.integer(point.queued).integer(point.tokens_per_second);
    json.end_array();
  }
  json.end_array().end_object();
  return text;
}

}  // namespace pdjob::launcher
