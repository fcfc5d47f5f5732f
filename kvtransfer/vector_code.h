// Which of a loop's versions runs: those for AVX2 are compiled beside the portable ones, and chosen
// when the process starts. Pure.
#pragma once

#include <cstddef>

namespace pdjob::kvtransfer {

enum class VectorCode { kPortable, kAvx2 };

inline VectorCode fastest_code() {
#ifdef __x86_64__
  static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
  return has_avx2 ? VectorCode::kAvx2 : VectorCode::kPortable;
#else
  return VectorCode::kPortable;
#endif
}

// Of a version for AVX2, and of what is inlined into one.
#define PDJOB_AVX2 __attribute__((target("avx2")))
#define PDJOB_AVX2_INLINE __attribute__((target("avx2"), always_inline)) inline

inline constexpr size_t kPrefetchBytes = 2048;  // Ahead: the hardware stops at the end of a page.

}  // namespace pdjob::kvtransfer
