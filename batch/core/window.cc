#include "batch/core/window.h"

#include <algorithm>
#include <cmath>

namespace pdjob::batch {
namespace {

constexpr Duration kRoundMin = std::chrono::seconds(1);
// A window that did not help is tried again after this time.
constexpr Duration kProbeAgain = std::chrono::seconds(30);
constexpr double kGrowth = 1.5;
constexpr double kShrink = 0.67;
constexpr double kGainMin = 1.05;

}  // namespace

Window::Window(const WindowConfig& config)
    : config_(config),
      size_(std::clamp<size_t>(config.first, 1, std::max<size_t>(config.max, 1))) {}

void Window::resize(double size) {
  const double most = static_cast<double>(std::max<size_t>(config_.max, 1));
  size_ = static_cast<size_t>(std::clamp(std::round(size), 1.0, most));
}

void Window::answered(bool full, Instant now) {
  if (answers_ == 0 && round_began_ == Instant{}) {
    round_began_ = now;
  }
  ++answers_;
  was_full_ = was_full_ && full;
  if (answers_ >= size_ && now - round_began_ >= kRoundMin) {
    end_round(now);
  }
}

void Window::end_round(Instant now) {
  const double rate = static_cast<double>(answers_) / seconds(now - round_began_);
  if (!shrunk_ && was_full_) {
    const bool probed = size_before_ != 0;
    if (probed && rate < best_rate_ * kGainMin) {
      resize(static_cast<double>(size_before_));  // It only made queues longer.
      size_before_ = 0;
      probe_at_ = now + kProbeAgain;
    } else if (probed || now >= probe_at_) {
      size_before_ = size_;
      best_rate_ = rate;
      resize(static_cast<double>(size_) * kGrowth + 1);
    }
  } else {
    size_before_ = 0;
  }
  round_began_ = now;
  answers_ = 0;
  was_full_ = true;
  shrunk_ = false;
}

void Window::overloaded(Instant now) {
  if (!shrunk_) {
    shrunk_ = true;
    size_before_ = 0;
    probe_at_ = now + kProbeAgain;
    resize(static_cast<double>(size_) * kShrink);
  }
  if (now - round_began_ >= kRoundMin) {
    end_round(now);
  }
}

void Window::set(size_t size, Instant now) {
  resize(static_cast<double>(size));
  size_before_ = 0;
  round_began_ = now;
  answers_ = 0;
  was_full_ = true;
  shrunk_ = false;
  probe_at_ = now + kProbeAgain;
}

void Window::count_workers(size_t workers) {
  if (workers_ != 0 && workers != 0 && workers != workers_) {
    resize(static_cast<double>(size_) * static_cast<double>(workers) /
           static_cast<double>(workers_));
    size_before_ = 0;
  }
  workers_ = workers == 0 ? workers_ : workers;
}

}  // namespace pdjob::batch
