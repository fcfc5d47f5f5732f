#include "worker/api/load_meter.h"

#include <utility>

namespace pdjob::worker {

void LoadMeter::take(const CoreLoad& load, const EngineWork& work) {
  metrics_.ways_given.add(static_cast<double>(load.ways_given - load_.ways_given));
  load_ = load;
  const EngineWork before = std::exchange(work_, work);
  const auto add = [](Counter& counter, uint64_t now, uint64_t then) {
    counter.add(static_cast<double>(now - then));
  };
  add(metrics_.store_queries, work_.blocks.tokens_asked, before.blocks.tokens_asked);
  add(metrics_.store_hits, work_.blocks.tokens_loaded, before.blocks.tokens_loaded);
  add(metrics_.store_given, work_.blocks.tokens_given, before.blocks.tokens_given);
  add(metrics_.store_failures, work_.blocks.failures, before.blocks.failures);
  metrics_.borrowed_steps.add(static_cast<double>(work_.lending.steps - before.lending.steps));
  metrics_.lending_rests.add(
      static_cast<double>(work_.lending.rests_begun - before.lending.rests_begun));
  metrics_.lending_rests_now.set(work_.lending.rests ? 1 : 0);
  metrics_.requests_running.set(load_.requests_running + load_.background_running);
  metrics_.requests_waiting.set(load_.requests_queued + load_.background_queued);
  metrics_.background_running.set(load_.background_running);
  metrics_.background_waiting.set(load_.background_queued);
  metrics_.kv_rows_used.set(static_cast<double>(load_.rows_used + load_.background_rows));
  metrics_.kv_rows_max.set(static_cast<double>(load_.rows_max));
}

void LoadMeter::count(LatencySum& total, Histogram& histogram, Duration latency) {
  total.sum += latency;
  ++total.count;
  histogram.observe(seconds(latency));
}

Standstill LoadMeter::counted(const Standstill& still, StarvedTime& starved) const {
  const Waits waits = starved.of(still.lasted, run_delays_);
  return with_waits(still, waits.longest, waits.sum);
}

net::WorkerLoad LoadMeter::load(size_t prompts_held, const Standstill& engine, Duration helper) {
  using std::chrono::milliseconds;
  const auto whole = [](auto unit, Duration duration) {
    return static_cast<uint64_t>(std::chrono::duration_cast<decltype(unit)>(duration).count());
  };
  const auto us = [&](Duration duration) { return whole(std::chrono::microseconds(), duration); };
  const Standstill still =
      worst(counted(engine, engine_starved_), counted({.lasted = helper}, helper_starved_));
  return {.requests_running = load_.requests_running,
          .requests_queued = load_.requests_queued + static_cast<uint32_t>(prompts_held),
          .tokens_queued = load_.tokens_queued,
          .kv_rows_used = load_.rows_used,
          .kv_rows_max = load_.rows_max,
          .standstill_ms = whole(milliseconds(), still.lasted),
          .patience_ms = whole(milliseconds(), still.patience),
          .starved_ms = whole(milliseconds(), still.starved),
          .tokens_computed = work_.tokens,
          .busy_us = us(work_.busy),
          .ttft_sum_us = us(ttft_.sum),
          .ttft_count = ttft_.count,
          .itl_sum_us = us(itl_.sum),
          .itl_count = itl_.count,
          .steps = work_.steps,
          .borrowed_steps = work_.lending.steps,
          .lending_rests = work_.lending.rests_begun,
          .lending_rests_now = work_.lending.rests,
          .background_requests = load_.background_running + load_.background_queued,
          .background_tokens = work_.background_tokens,
          .background_busy_us = us(work_.background_busy)};
}

}  // namespace pdjob::worker
