// VectorCode: the version of a loop that runs. AVX2 versions are compiled beside the portable ones
// and chosen when the process starts. Pure.
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

// Marks an AVX2 version of a loop, and functions that are inlined into one.
#define PDJOB_AVX2 __attribute__((target("avx2")))
#define PDJOB_AVX2_INLINE __attribute__((target("avx2"), always_inline)) inline

// Prefetch distance: the hardware's own prefetch stops at the end of a page.
inline constexpr size_t kPrefetchBytes = 2048;

}  // namespace pdjob::kvtransfer
