#include "kvtransfer/row_copy.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace pdjob::kvtransfer {

#ifdef __SSE2__

void copy_rows(std::byte* to, const std::byte* from, size_t bytes) {
  constexpr size_t kLine = 64;
  // Only whole, aligned lines are streamed: a partly written line would be flushed as several small
  // writes.
  const size_t to_line = (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine;
  const size_t head = std::min(bytes, to_line);
  std::memcpy(to, from, head);
  to += head;
  from += head;
  bytes -= head;
  for (; bytes >= kLine; bytes -= kLine, to += kLine, from += kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from);
    auto* target = reinterpret_cast<__m128i*>(to);
    const __m128i a = _mm_loadu_si128(source);
    const __m128i b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2);
    const __m128i d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  std::memcpy(to, from, bytes);
}

void finish_copies() { _mm_sfence(); }

#else

void copy_rows(std::byte* to, const std::byte* from, size_t bytes) { std::memcpy(to, from, bytes); }

void finish_copies() { std::atomic_thread_fence(std::memory_order_seq_cst); }

#endif

}  // namespace pdjob::kvtransfer
