#include "worker/foreign/engine_log.h"

#include <algorithm>
#include <utility>

#include "common/limits.h"

namespace pdjob::worker {
namespace {

constexpr size_t kLinesKept = 60;

bool is_plain(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x20 && byte != 0x7f;
}

}  // namespace

std::vector<std::string> EngineLog::take(std::string_view bytes, Instant now) {
  std::vector<std::string> lines;
  for (const char c : bytes) {
    if (c == '\r') {
      returned_ = true;
      continue;
    }
    if (std::exchange(returned_, false) && c != '\n') {
      line_.clear();  // A progress bar overwrites itself.
      cut_ = false;
    }
    if (c == '\n') {
      end_line(now, lines);
    } else if (line_.size() < limits::kEngineLogLineBytesMax) {
      line_ += is_plain(c) ? c : ' ';
    } else {
      cut_ = true;
    }
  }
  return lines;
}

std::vector<std::string> EngineLog::finish(Instant now) {
  std::vector<std::string> lines;
  if (!line_.empty()) {
    end_line(now, lines);
  }
  return lines;
}

void EngineLog::end_line(Instant now, std::vector<std::string>& lines) {
  std::string line = std::exchange(line_, {}) + (std::exchange(cut_, false) ? "..." : "");
  if (std::ranges::any_of(
          dull_, [&](const std::string& text) { return line.find(text) != std::string::npos; })) {
    return;
  }
  last_.push_back(line);
  if (last_.size() > kLinesKept) {
    last_.pop_front();
  }
  const double gained = started_ ? seconds(now - refilled_) * limits::kEngineLogBytesPerSecond
                                 : static_cast<double>(limits::kEngineLogBurstBytes);
  started_ = true;
  refilled_ = now;
  allowance_ = std::min(allowance_ + gained, static_cast<double>(limits::kEngineLogBurstBytes));
  const auto cost = static_cast<double>(line.size() + 1);
  if (allowance_ < cost) {
    dropped_ += 1;
    return;
  }
  allowance_ -= cost;
  if (const uint64_t dropped = std::exchange(dropped_, 0); dropped > 0) {
    lines.push_back("(" + std::to_string(dropped) + " lines came too fast and were dropped)");
  }
  lines.push_back(std::move(line));
}

}  // namespace pdjob::worker
