#include "common/random.h"

#include <array>
#include <cstddef>
#include <utility>

#include <sys/random.h>

#include "common/check.h"

namespace pdjob {

uint64_t entropy() {
  constexpr size_t kWords = 64;
  thread_local std::array<uint64_t, kWords> words;
  thread_local size_t left = 0;
  if (left == 0) {
    // Up to 256 bytes come whole, whatever signals arrive; more might come in parts.
    for (size_t half = 0; half < 2; ++half) {
      constexpr size_t kBytes = sizeof words / 2;
      PDJOB_CHECK(getrandom(words.data() + half * (kWords / 2), kBytes, 0) == kBytes);
    }
    left = kWords;
  }
  return std::exchange(words[--left], 0);  // Nobody who reads our memory later finds it.
}

}  // namespace pdjob
