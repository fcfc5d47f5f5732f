// patiently(): opens what a process that has just died may still hold. Blocks.
#pragma once

#include <chrono>
#include <optional>

#include <time.h>

#include "common/result.h"
#include "common/time.h"

namespace pdjob::launcher {

// Calls `open`, which returns a Result or a Status, until it succeeds, fails otherwise than by
// `only`, or the time is over.
template <class Open>
auto patiently(Duration at_most, const Open& open, std::optional<ErrorCode> only = std::nullopt) {
  constexpr Duration kPause = std::chrono::milliseconds(20);
  const timespec pause{.tv_sec = 0, .tv_nsec = kPause / std::chrono::nanoseconds(1)};
  auto opened = open();
  const auto again = [&] { return !opened && (!only || opened.error().code == *only); };
  for (Duration waited{}; again() && waited < at_most; waited += kPause) {
    nanosleep(&pause, nullptr);
    opened = open();
  }
  return opened;
}

}  // namespace pdjob::launcher
