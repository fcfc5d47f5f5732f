#include "kvtransfer/rows/row_sum.h"

#include <algorithm>
#include <cstring>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace pdjob::kvtransfer {
namespace {

constexpr size_t kWordBytes = 8;
// As in row_sum_kernel.cu.
constexpr uint64_t kFirstFactor = 0xFF51AFD7ED558CCD;
constexpr uint64_t kSecondFactor = 0xC4CEB9FE1A85EC53;
constexpr uint64_t kWindowStep = 0x6A09E667F3BCC909;
constexpr uint64_t kRowStep = 0xBB67AE8584CAA73B;
constexpr uint64_t kWordStep = 0x3C6EF372FE94F82B;

uint64_t mixed(uint64_t word) {
  word = (word ^ (word >> 33)) * kFirstFactor;
  word = (word ^ (word >> 33)) * kSecondFactor;
  return word ^ (word >> 33);
}

// Sums consecutive words of a row; the first is at `place`.
uint64_t sum_words(const std::byte* from, size_t words, uint64_t place) {
  uint64_t sum = 0;
  for (size_t i = 0; i < words; ++i, place += kWordStep) {
    uint64_t word = 0;
    std::memcpy(&word, from + kWordBytes * i, kWordBytes);
    sum += mixed(word ^ place);
  }
  return sum;
}

#ifdef __x86_64__

PDJOB_AVX2_INLINE __m256i fold(__m256i words) {
  return _mm256_xor_si256(words, _mm256_srli_epi64(words, 33));
}

// The lower 64 bits of each product. AVX2 multiplies 32-bit halves only.
PDJOB_AVX2_INLINE __m256i multiply(__m256i words, __m256i factor) {
  const __m256i high_by_low = _mm256_mul_epu32(_mm256_srli_epi64(words, 32), factor);
  const __m256i low_by_high = _mm256_mul_epu32(words, _mm256_srli_epi64(factor, 32));
  return _mm256_add_epi64(_mm256_mul_epu32(words, factor),
                          _mm256_slli_epi64(_mm256_add_epi64(high_by_low, low_by_high), 32));
}

PDJOB_AVX2 uint64_t sum_words_avx2(const std::byte* from, size_t words, uint64_t place) {
  constexpr size_t kLanes = 4;
  const __m256i first = _mm256_set1_epi64x(static_cast<int64_t>(kFirstFactor));
  const __m256i second = _mm256_set1_epi64x(static_cast<int64_t>(kSecondFactor));
  const __m256i step = _mm256_set1_epi64x(static_cast<int64_t>(kLanes * kWordStep));
  __m256i places = _mm256_set_epi64x(
      static_cast<int64_t>(place + 3 * kWordStep), static_cast<int64_t>(place + 2 * kWordStep),
      static_cast<int64_t>(place + kWordStep), static_cast<int64_t>(place));
  __m256i sums = _mm256_setzero_si256();
  const size_t by_lanes = words - words % kLanes;
  for (size_t i = 0; i < by_lanes; i += kLanes) {
    _mm_prefetch(reinterpret_cast<const char*>(from + kWordBytes * i + kPrefetchBytes),
                 _MM_HINT_T0);
    const auto* const at = reinterpret_cast<const __m256i*>(from + kWordBytes * i);
    const __m256i keyed = _mm256_xor_si256(_mm256_loadu_si256(at), places);
    const __m256i mixed_words = fold(multiply(fold(multiply(fold(keyed), first)), second));
    sums = _mm256_add_epi64(sums, mixed_words);
    places = _mm256_add_epi64(places, step);
  }
  alignas(32) uint64_t lanes[kLanes];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sums);
  return lanes[0] + lanes[1] + lanes[2] + lanes[3] +
         sum_words(from + kWordBytes * by_lanes, words - by_lanes, place + by_lanes * kWordStep);
}

#endif

}  // namespace

void RowSum::begin(std::span<const Window> windows, RowRange range) {
  windows_ = windows;
  range_ = range;
  window_ = 0;
  row_ = range.first;
  in_row_ = 0;
  word_ = 0;
}

void RowSum::update(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const uint32_t row_bytes = windows_[window_].row_bytes;
    const size_t count = std::min<size_t>(bytes.size(), row_bytes - in_row_);
    add_in_row(bytes.first(count));
    bytes = bytes.subspan(count);
    if (in_row_ == row_bytes) {
      end_row();
    }
  }
}

void RowSum::add_in_row(std::span<const std::byte> bytes) {
  while (!bytes.empty() && in_row_ % kWordBytes != 0) {
    add_byte(bytes.front());
    bytes = bytes.subspan(1);
  }
  const size_t words = bytes.size() / kWordBytes;
#ifdef __x86_64__
  sum_ += code_ == VectorCode::kAvx2 ? sum_words_avx2(bytes.data(), words, place())
                                     : sum_words(bytes.data(), words, place());
#else
  sum_ += sum_words(bytes.data(), words, place());
#endif
  in_row_ += static_cast<uint32_t>(kWordBytes * words);
  for (const std::byte byte : bytes.subspan(kWordBytes * words)) {
    add_byte(byte);
  }
}

void RowSum::add_byte(std::byte byte) {
  word_ |= std::to_integer<uint64_t>(byte) << (8 * (in_row_ % kWordBytes));
  if (in_row_ % kWordBytes == kWordBytes - 1) {
    end_word();
  }
  ++in_row_;
}

// Adds a word that sum_words() cannot take because a row, or a piece of one, ends within it.
void RowSum::end_word() {
  sum_ += mixed(word_ ^ place());
  word_ = 0;
}

void RowSum::end_row() {
  if (in_row_ % kWordBytes != 0) {
    end_word();
  }
  in_row_ = 0;
  if (++row_ == range_.first + range_.count) {
    row_ = range_.first;
    ++window_;
  }
}

uint64_t RowSum::place() const {
  return window_ * kWindowStep + row_ * kRowStep + in_row_ / kWordBytes * kWordStep;
}

}  // namespace pdjob::kvtransfer
