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
  explicit Series(std::string_view text)
      : name_(text.substr(0, text.find('{'))),
        label_(name_.size() == text.size()
                   ? std::string_view()
                   : text.substr(name_.size() + 1, text.size() - name_.size() - 2)) {}

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
  std::string_view name_;
  std::string_view label_;
  double sum_ = 0;
  uint64_t count_ = 0;
};

// name{labels} value [timestamp]
void read_line(std::string_view line, std::vector<Series>& wanted) {
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
  for (Series& series : wanted) {
    series.look_at(line.substr(0, name_end), labels, *value);
  }
}

}  // namespace

EngineSample read_sample(const engine::RecipeMetrics& metrics, std::string_view text) {
  std::vector<Series> wanted = {Series(metrics.running),  Series(metrics.queued),
                                Series(metrics.kv_used),  Series(metrics.kv_max),
                                Series(metrics.kv_usage), Series(metrics.kv_received)};
  const size_t fixed = wanted.size();
  for (const std::string& counter : metrics.progress) {
    wanted.emplace_back(counter);
  }
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    read_line(text.substr(0, end), wanted);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  EngineSample sample{.running = wanted[0].count(),
                      .queued = wanted[1].count(),
                      .kv_used = wanted[2].count(),
                      .kv_max = wanted[3].count(),
                      .kv_received = wanted[5].count()};
  if (wanted[4].wanted()) {
    sample.kv_used = static_cast<uint64_t>(std::min(wanted[4].mean(), 1.0) * kShares);
    sample.kv_max = static_cast<uint64_t>(kShares);
  }
  double progress = 0;
  for (size_t i = fixed; i < wanted.size(); ++i) {
    progress += wanted[i].sum();
  }
  sample.progress = static_cast<uint64_t>(std::min(progress, kCountMax));
  return sample;
}

}  // namespace pdjob::worker
