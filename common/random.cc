#include "common/random.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <utility>

#include <pthread.h>
#include <sys/random.h>

#include "common/check.h"

namespace pdjob {

namespace {

std::atomic<uint32_t> forks = 0;

}  // namespace

uint64_t entropy() {
  constexpr size_t kWords = 64;
  static const int on_fork = pthread_atfork(nullptr, nullptr, [] { forks += 1; });
  PDJOB_CHECK(on_fork == 0);
  thread_local std::array<uint64_t, kWords> words;
  thread_local size_t left = 0;
  thread_local uint32_t filled_after = 0;
  const uint32_t now = forks.load(std::memory_order_relaxed);
  // A child process inherits these words and must not use them again.
  if (left == 0 || filled_after != now) {
    filled_after = now;
    // Up to 256 bytes arrive whole in spite of signals; more could arrive in parts.
    for (size_t half = 0; half < 2; ++half) {
      constexpr size_t kBytes = sizeof words / 2;
      PDJOB_CHECK(getrandom(words.data() + half * (kWords / 2), kBytes, 0) == kBytes);
    }
    left = kWords;
  }
  // Cleared, so that a later reader of our memory cannot find it.
  return std::exchange(words[--left], 0);
}

}  // namespace pdjob
