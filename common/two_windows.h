// TwoWindows: what happened lately, in a window of time that fills and the one before it. Older
// windows are forgotten. Value.
#pragma once

#include <utility>

#include "common/time.h"

namespace pdjob {

template <class Window>
class TwoWindows {
 public:
  explicit TwoWindows(Duration length) : length_(length) {}

  // The window that `now` falls into, to be added to.
  Window& at(Instant now) {
    if (now - started_ >= length_) {
      const bool next = now - started_ < 2 * length_;
      older_ = next ? std::exchange(newer_, {}) : Window{};
      newer_ = {};
      started_ = now;
    }
    return newer_;
  }
  const Window& newer() const { return newer_; }
  const Window& older() const { return older_; }

 private:
  Duration length_;
  Instant started_{};  // Of `newer_`.
  Window newer_{};
  Window older_{};
};

}  // namespace pdjob
