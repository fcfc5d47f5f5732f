#include "worker/foreign/engine_sample.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/parse_number.h"

namespace pdjob::worker {
namespace {

constexpr double kCountMax = 9'007'199'254'740'992;  // 2^53: larger ones lose digits.
constexpr double kShares = 10'000;

// A series by its name, and by a label if it has one: {source="x"}.
class Series {
 public:
  explicit Series(std::string_view text, std::string_view suffix = "")
      : name_(text.substr(0, text.find('{'))),
        label_(name_.size() == text.size()
                   ? std::string_view()
                   : text.substr(name_.size() + 1, text.size() - name_.size() - 2)) {
    if (!name_.empty()) {
      name_ += suffix;
    }
  }

  void look_at(std::string_view name, std::string_view labels, double value) {
    const bool fits = !name_.empty() && name == name_ &&
                      (label_.empty() || labels.find(label_) != std::string_view::npos);
    if (fits && std::isfinite(value) && value > 0) {
      sum_ += value;
      count_ += 1;
    }
  }

  double sum() const { return std::min(sum_, kCountMax); }
  double mean() const { return count_ > 0 ? sum_ / static_cast<double>(count_) : 0; }
  uint64_t count() const { return static_cast<uint64_t>(sum()); }
  bool wanted() const { return !name_.empty(); }

 private:
  std::string name_;
  std::string_view label_;
  double sum_ = 0;
  uint64_t count_ = 0;
};

class Histogram {
 public:
  explicit Histogram(std::string_view text) : sum_(text, "_sum"), count_(text, "_count") {}

  void look_at(std::string_view name, std::string_view labels, double value) {
    sum_.look_at(name, labels, value);
    count_.look_at(name, labels, value);
  }
  LatencyTotal total() const { return {sum_.sum(), count_.count()}; }

 private:
  Series sum_;
  Series count_;
};

// All that a recipe names.
class Wanted {
 public:
  explicit Wanted(const engine::RecipeMetrics& metrics)
      : running_(metrics.running),
        queued_(metrics.queued),
        kv_used_(metrics.kv_used),
        kv_max_(metrics.kv_max),
        kv_usage_(metrics.kv_usage),
        kv_received_(metrics.kv_received),
        ttft_(metrics.ttft),
        itl_(metrics.itl),
        queue_time_(metrics.queue_time),
        prefill_time_(metrics.prefill_time),
        kv_time_(metrics.kv_time) {
    for (const std::string& counter : metrics.progress) {
      progress_.emplace_back(counter);
    }
  }

  void look_at(std::string_view name, std::string_view labels, double value) {
    for (Series* series : {&running_, &queued_, &kv_used_, &kv_max_, &kv_usage_, &kv_received_}) {
      series->look_at(name, labels, value);
    }
    for (Series& counter : progress_) {
      counter.look_at(name, labels, value);
    }
    for (Histogram* histogram : {&ttft_, &itl_, &queue_time_, &prefill_time_, &kv_time_}) {
      histogram->look_at(name, labels, value);
    }
  }

  EngineSample sample() const {
    EngineSample sample{.running = running_.count(),
                        .queued = queued_.count(),
                        .kv_used = kv_used_.count(),
                        .kv_max = kv_max_.count(),
                        .kv_received = kv_received_.count(),
                        .ttft = ttft_.total(),
                        .itl = itl_.total(),
                        .queue_time = queue_time_.total(),
                        .prefill_time = prefill_time_.total(),
                        .kv_time = kv_time_.total()};
    if (kv_usage_.wanted()) {
      sample.kv_used = static_cast<uint64_t>(std::min(kv_usage_.mean(), 1.0) * kShares);
      sample.kv_max = static_cast<uint64_t>(kShares);
    }
    double progress = 0;
    for (const Series& counter : progress_) {
      progress += counter.sum();
    }
    sample.progress = static_cast<uint64_t>(std::min(progress, kCountMax));
    return sample;
  }

 private:
  Series running_;
  Series queued_;
  Series kv_used_;
  Series kv_max_;
  Series kv_usage_;
  Series kv_received_;
  std::vector<Series> progress_;
  Histogram ttft_;
  Histogram itl_;
  Histogram queue_time_;
  Histogram prefill_time_;
  Histogram kv_time_;
};

// name{labels} value [timestamp]
void read_line(std::string_view line, Wanted& wanted) {
  if (line.empty() || line.front() == '#') {
    return;
  }
  const size_t brace = line.find('{');
  const size_t space = line.find(' ');
  const size_t name_end = std::min(brace, space);
  if (name_end == std::string_view::npos) {
    return;
  }
  std::string_view labels;
  std::string_view rest = line.substr(name_end);
  if (brace < space) {
    const size_t close = line.rfind('}');
    if (close == std::string_view::npos || close < brace) {
      return;
    }
    labels = line.substr(brace + 1, close - brace - 1);
    rest = line.substr(close + 1);
  }
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  const auto value = parse_number<double>(rest.substr(0, rest.find(' ')));
  if (!value) {
    return;
  }
  wanted.look_at(line.substr(0, name_end), labels, *value);
}

}  // namespace

EngineSample read_sample(const engine::RecipeMetrics& metrics, std::string_view text) {
  Wanted wanted(metrics);
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    read_line(text.substr(0, end), wanted);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return wanted.sample();
}

}  // namespace pdjob::worker
