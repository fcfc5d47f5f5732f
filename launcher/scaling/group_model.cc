#include "launcher/scaling/group_model.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>

namespace pdjob::launcher {

namespace {

constexpr double kLevelSeconds = 6;  // How fast a level follows, and a slope.
constexpr double kSlopeSeconds = 20;
constexpr double kFollow = 0.1;  // Of speed and prompt length, with each sample.
constexpr Duration kWindow = std::chrono::seconds(5);
constexpr Duration kPresentWindow = std::chrono::seconds(20);
// In this time, the rate at which TTFT was missed counts as doubled.
constexpr double kForgetSeconds = 3600;
// A target that even a lone request misses is not chased without end.
constexpr double kLoadMax = 0.95;
constexpr double kLoadMin = 0.3;

double in_seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

void follow(double& value, double sample) {
  value = value == 0 ? sample : value + kFollow * (sample - value);
}

// Counters of an engine of another make may fall.
uint64_t growth(uint64_t from, uint64_t to) { return to > from ? to - from : 0; }

std::string text(const char* format, auto... values) {
  char line[160];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

// How many workers keep the mean time of a prompt, waiting included, within its target. `offered`:
// the work that comes, in workers that are always busy. `alone`: the time of a lone prompt, as a
// share of the target. Sakasegawa, 1977, for one queue at c workers:
//   time / alone = 1 + r^(sqrt(2 (c + 1)) - 1) / (c (1 - r)), with the load r = offered / c
double workers_for(double offered, double alone) {
  double most = offered / std::clamp(1 - alone, kLoadMin, kLoadMax);  // Each with its own queue.
  double least = std::max(1.0, offered / kLoadMax);
  if (most <= least) {
    return most;
  }
  constexpr int kHalvings = 20;
  for (int i = 0; i < kHalvings; ++i) {
    const double workers = (least + most) / 2;
    const double load = offered / workers;
    const double waits = std::pow(load, std::sqrt(2 * (workers + 1)) - 1) / (workers * (1 - load));
    (alone * (1 + waits) <= 1 ? most : least) = workers;
  }
  return most;
}

}  // namespace

void Trend::add(double value, Instant now) {
  if (!begun_) {
    begun_ = true;
    level_ = value;
    last_ = now;
    return;
  }
  const double passed = std::max(in_seconds(now - last_), 1e-3);
  last_ = now;
  const double before = level_;
  const double part = 1 - std::exp(-passed / kLevelSeconds);
  level_ += part * (value - level_);
  slope_ += (1 - std::exp(-passed / kSlopeSeconds)) * ((level_ - before) / passed - slope_);
}

double Trend::ahead(Duration duration) const {
  return std::max(0.0, level_ + std::max(0.0, slope_) * in_seconds(duration));
}

void GroupModel::take(const std::vector<WorkerSample>& workers, Instant now, uint64_t held) {
  const double passed = in_seconds(now - last_at_);
  std::map<std::string, net::WorkerLoad> seen;
  Sums sums{.at = now};
  uint64_t tokens = 0;
  uint64_t generated = 0;
  double requests = 0;
  double rows = 0;
  double rows_max = 0;
  double backlog = 0;
  idle_ = true;
  for (const WorkerSample& worker : workers) {
    const net::WorkerLoad& load = worker.load;
    seen.emplace(worker.engine_id, load);
    requests += load.requests_running + load.requests_queued;
    rows += static_cast<double>(load.kv_rows_used);
    rows_max += static_cast<double>(load.kv_rows_max);
    backlog += static_cast<double>(load.tokens_queued);
    if (load.requests_queued > 0) {
      running_max_ = std::max(1.0, static_cast<double>(load.requests_running));
    }
    const auto found = last_.find(worker.engine_id);
    const net::WorkerLoad& before = found == last_.end() ? load : found->second;
    // Work in the background lives off what is left: no worker comes for it.
    const uint64_t computed = growth(before.tokens_computed - before.background_tokens,
                                     load.tokens_computed - load.background_tokens);
    const uint64_t itl_count = growth(before.itl_count, load.itl_count);
    const uint64_t itl_us = growth(before.itl_sum_us, load.itl_sum_us);
    const uint64_t ttft_count = growth(before.ttft_count, load.ttft_count);
    const double busy = static_cast<double>(growth(before.busy_us - before.background_busy_us,
                                                   load.busy_us - load.background_busy_us)) /
                        1e6;
    const uint64_t decoded =
        role_ == net::Role::kPrefill ? std::min(computed, itl_count) : 0;  // For others.
    tokens += computed - decoded;
    generated += itl_count + ttft_count;
    sums.ttft_us += growth(before.ttft_sum_us, load.ttft_sum_us);
    sums.ttft_count += ttft_count;
    sums.itl_us += itl_us;
    sums.itl_count += itl_count;
    measure_computing(computed - decoded, decoded, ttft_count, busy);
    const double running = (before.requests_running + load.requests_running) / 2.0;
    if (itl_count > 0 && running >= 1) {
      itl_by_requests_.add(running,
                           static_cast<double>(itl_us) / 1e6 / static_cast<double>(itl_count));
    }
    idle_ = idle_ && requests == 0 && computed == 0;
  }
  if (last_at_ != Instant{} && passed > 0 && !workers.empty()) {
    // What waits has arrived, too.
    rate_.add(std::max(0.0, (static_cast<double>(tokens) + backlog - backlog_) / passed), now);
    generated_.add(static_cast<double>(generated) / passed, now);
    prompts_.add(static_cast<double>(sums.ttft_count) / passed, now);
    prompts_missed_ *= std::exp2(passed / kForgetSeconds);
  }
  requests_.add(requests, now);
  present_.emplace_back(now, requests + static_cast<double>(held));
  while (present_.front().first + kPresentWindow < now) {
    present_.pop_front();
  }
  tells_requests_ = tells_requests_ || requests > 0;
  rows_.add(rows, now);
  backlog_ = backlog;
  rows_per_worker_ =
      workers.empty() ? rows_per_worker_ : rows_max / static_cast<double>(workers.size());
  last_ = std::move(seen);
  last_at_ = now;
  window_.push_back(sums);
  while (window_.front().at + kWindow < now) {
    window_.pop_front();
  }
}

// `decoded`: tokens that it generated for others meanwhile. They took time, too, so the worker is
// at least as fast as it looks.
void GroupModel::measure_computing(uint64_t tokens, uint64_t decoded, uint64_t prompts,
                                   double busy) {
  if (tokens == 0) {
    return;
  }
  if (busy > 0) {
    const double speed = static_cast<double>(tokens) / busy;
    if (decoded == 0) {
      follow(speed_, speed);
    } else {
      speed_ = std::max(speed_, speed);
    }
  }
  if (prompts > 0) {
    follow(prompt_tokens_, static_cast<double>(tokens) / static_cast<double>(prompts));
  }
}

GroupModel::Mean GroupModel::mean(uint64_t Sums::* sum, uint64_t Sums::* count) const {
  uint64_t total = 0;
  uint64_t number = 0;
  for (const Sums& each : window_) {
    total += each.*sum;
    number += each.*count;
  }
  return number == 0 ? Mean{} : Mean{std::chrono::microseconds(total / number), number};
}

// One sample alone may be a probe of a new worker.
double GroupModel::useful() const {
  if (!tells_requests_) {
    return std::numeric_limits<double>::infinity();
  }
  double most = 0;
  double second = present_.size() == 1 ? present_.front().second : 0;
  for (const auto& [at, requests] : present_) {
    second = std::max(second, std::min(most, requests));
    most = std::max(most, requests);
  }
  return std::max(1.0, second);
}

void GroupModel::missed_ttft() {
  const double each = prompts_.level() / std::max(1.0, static_cast<double>(last_.size()));
  prompts_missed_ = prompts_missed_ > 0 ? std::min(prompts_missed_, each) : each;
}

GroupModel::Need GroupModel::for_ttft_by_misses(const Shape& shape) const {
  if (prompts_missed_ <= 0) {
    return {};
  }
  return {shape.prompts / (prompts_missed_ * shape.ease),
          text("%.2f prompts a second; a worker missed ttft with %.2f a second", shape.prompts,
               prompts_missed_)};
}

GroupModel::Need GroupModel::for_ttft(const Shape& shape) const {
  const double target = in_seconds(target_.ttft) * shape.ease;
  if (target <= 0) {
    return {};
  }
  if (speed_ <= 0) {
    return for_ttft_by_misses(shape);
  }
  const double offered = shape.rate / speed_;
  const double steady = workers_for(offered, prompt_tokens_ / speed_ / target);
  const double with_backlog = (shape.rate + shape.backlog / target) / speed_;
  if (with_backlog > steady) {
    return {with_backlog, text("%.0f prompt tokens wait, and %.0f a second come; a worker computes "
                               "%.0f a second",
                               shape.backlog, shape.rate, speed_)};
  }
  return {steady,
          text("%.0f prompt tokens a second come; a worker computes %.0f a second and holds "
               "ttft at a load of %.0f%%",
               shape.rate, speed_, 100 * offered / std::max(steady, offered))};
}

GroupModel::Need GroupModel::for_itl(const Shape& shape) const {
  const double goal = in_seconds(target_.itl) * shape.ease;
  if (goal <= 0 || !itl_by_requests_.known()) {
    return {};
  }
  const double a = itl_by_requests_.a();
  const double b = std::max(itl_by_requests_.b(), 1e-9);
  const double alone = a + b;
  const double target = std::max(goal, 1.25 * alone);
  double each = std::max(1.0, (target - a) / b);
  each = running_max_ > 0 ? std::min(each, running_max_) : each;
  const double by_requests = shape.requests / each;
  const double by_rate = b * shape.generated / std::clamp(1 - alone / target, kLoadMin, kLoadMax);
  if (by_requests >= by_rate) {
    return {by_requests,
            text("%.1f requests; a worker holds itl with %.1f of them", shape.requests, each)};
  }
  return {by_rate, text("%.0f tokens a second; a worker holds itl with %.0f a second",
                        shape.generated, shape.generated / by_rate)};
}

GroupModel::Need GroupModel::for_kv(const Shape& shape) const {
  const double each = rows_per_worker_ * target_.kv_use * shape.ease;
  return each <= 0 ? Need{}
                   : Need{shape.rows / each, text("%.0f KV rows in use; a worker has room for %.0f",
                                                  shape.rows, each)};
}

GroupModel::Need GroupModel::need_of(const Shape& shape) const {
  Need most = for_ttft(shape);
  for (const Need& each : {for_itl(shape), for_kv(shape)}) {
    most = each.workers > most.workers ? each : most;
  }
  return most;
}

GroupModel::Need GroupModel::need(Duration ahead, double ease) const {
  return need_of({.ease = ease,
                  .rate = rate_.ahead(ahead),
                  .prompts = prompts_.ahead(ahead),
                  .generated = generated_.ahead(ahead),
                  .requests = requests_.ahead(ahead),
                  .rows = rows_.ahead(ahead),
                  .backlog = backlog_});
}

}  // namespace pdjob::launcher
