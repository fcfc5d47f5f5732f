#include "kvtransfer/rows/row_stripes.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace pdjob::kvtransfer {
namespace {

constexpr size_t kStripesPerBlock = 16;
constexpr uint64_t kPrime32 = 0x9E3779B1;
constexpr uint64_t kPrime64 = 0x9E3779B185EBCA87;

// The default secret of xxh3, as little-endian words. Stripe i of a block uses 64 bytes from word i
// on.
alignas(64) constexpr std::array<uint64_t, 24> kSecret = {
    0xBE4BA423396CFEB8, 0x1CAD21F72C81017C, 0xDB979083E96DD4DE, 0x1F67B3B7A4A44072,
    0x78E5C0CC4EE679CB, 0x2172FFCC7DD05A82, 0x8E2443F7744608B8, 0x4C263A81E69035E0,
    0xCB00C391BB52283C, 0xA32E531B8B65D088, 0x4EF90DA297486471, 0xD8ACDEA946EF1938,
    0x3F349CE33F76FAA8, 0x1D4F0BC7C7BBDCF9, 0x3159B4CD4BE0518A, 0x647378D9C97E9FC8,
    0xC3EBD33483ACC5EA, 0xEB6313FAFFA081C5, 0x49DAF0B751DD0D17, 0x9E68D429265516D3,
    0xFCA1477D58BE162B, 0xCE31D07AD1B8F88F, 0x280416958F3ACB45, 0x7E404BBBCAFBD7AF};
constexpr size_t kScrambleWord = 16;
constexpr size_t kMergeByte = 11;
constexpr size_t kLastStripeByte = 192 - kStripeBytes - 7;

const std::byte* secret_at(size_t byte) {
  return reinterpret_cast<const std::byte*>(kSecret.data()) + byte;
}

uint64_t read_word(const std::byte* from) {
  uint64_t word = 0;
  std::memcpy(&word, from, sizeof word);
  return word;
}

void add_stripe(StripeHash& hash, const std::byte* from, const std::byte* secret) {
  for (size_t i = 0; i < 8; ++i) {
    const uint64_t word = read_word(from + 8 * i);
    const uint64_t keyed = word ^ read_word(secret + 8 * i);
    hash.lanes[i ^ 1] += word;
    hash.lanes[i] += (keyed & 0xFFFFFFFF) * (keyed >> 32);
  }
}

void scramble(StripeHash& hash) {
  for (size_t i = 0; i < 8; ++i) {
    uint64_t& lane = hash.lanes[i];
    lane = (lane ^ (lane >> 47) ^ kSecret[kScrambleWord + i]) * kPrime32;
  }
}

enum class Copy { kNo, kYes };

// Runs on any machine.
template <Copy copy>
void run(StripeHash& hash, const std::byte* from, size_t stripes, std::byte* to,
         const std::byte* lines) {
  for (size_t i = 0; i < stripes; ++i) {
    add_stripe(hash, from + kStripeBytes * i, secret_at(8 * hash.in_block));
    if constexpr (copy == Copy::kYes) {
      std::memcpy(to + kStripeBytes * i, lines + kStripeBytes * i, kStripeBytes);
    }
    if (++hash.in_block == kStripesPerBlock) {
      scramble(hash);
      hash.in_block = 0;
    }
  }
}

#ifdef __x86_64__

PDJOB_AVX2_INLINE __m256i load(const std::byte* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

PDJOB_AVX2_INLINE __m256i add_half(__m256i lanes, __m256i words, __m256i secret) {
  const __m256i keyed = _mm256_xor_si256(words, secret);
  const __m256i product = _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32));
  const __m256i swapped = _mm256_shuffle_epi32(words, _MM_SHUFFLE(1, 0, 3, 2));
  return _mm256_add_epi64(lanes, _mm256_add_epi64(product, swapped));
}

PDJOB_AVX2_INLINE __m256i scramble_half(__m256i lanes, __m256i secret) {
  const __m256i mixed =
      _mm256_xor_si256(_mm256_xor_si256(lanes, _mm256_srli_epi64(lanes, 47)), secret);
  const __m256i prime = _mm256_set1_epi64x(kPrime32);
  const __m256i low = _mm256_mul_epu32(mixed, prime);
  const __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(mixed, 32), prime);
  return _mm256_add_epi64(low, _mm256_slli_epi64(high, 32));
}

template <Copy copy>
PDJOB_AVX2 void run_avx2(StripeHash& hash, const std::byte* from, size_t stripes, std::byte* to,
                         const std::byte* lines) {
  auto* const lanes = reinterpret_cast<__m256i*>(hash.lanes.data());
  __m256i first = _mm256_load_si256(lanes), second = _mm256_load_si256(lanes + 1);
  while (stripes > 0) {
    const size_t count = std::min(stripes, kStripesPerBlock - hash.in_block);
    const std::byte* secret = secret_at(8 * hash.in_block);
    for (size_t i = 0; i < count; ++i, from += kStripeBytes, secret += 8) {
      _mm_prefetch(reinterpret_cast<const char*>(from + kPrefetchBytes), _MM_HINT_T0);
      first = add_half(first, load(from), load(secret));
      second = add_half(second, load(from + 32), load(secret + 32));
      if constexpr (copy == Copy::kYes) {
        _mm256_stream_si256(reinterpret_cast<__m256i*>(to), load(lines));
        _mm256_stream_si256(reinterpret_cast<__m256i*>(to + 32), load(lines + 32));
        to += kStripeBytes;
        lines += kStripeBytes;
      }
    }
    stripes -= count;
    hash.in_block += count;
    if (hash.in_block == kStripesPerBlock) {
      first = scramble_half(first, load(secret_at(8 * kScrambleWord)));
      second = scramble_half(second, load(secret_at(8 * kScrambleWord + 32)));
      hash.in_block = 0;
    }
  }
  _mm256_store_si256(lanes, first);
  _mm256_store_si256(lanes + 1, second);
}

#endif

template <Copy copy>
void dispatch(StripeHash& hash, const std::byte* from, size_t stripes, std::byte* to,
              const std::byte* lines) {
#ifdef __x86_64__
  if (hash.code == VectorCode::kAvx2) {
    return run_avx2<copy>(hash, from, stripes, to, lines);
  }
#endif
  run<copy>(hash, from, stripes, to, lines);
}

}  // namespace

void hash_stripes(StripeHash& hash, const std::byte* from, size_t stripes) {
  dispatch<Copy::kNo>(hash, from, stripes, nullptr, nullptr);
}

void hash_stripes_and_copy(StripeHash& hash, const std::byte* from, size_t stripes, std::byte* to,
                           const std::byte* lines) {
  dispatch<Copy::kYes>(hash, from, stripes, to, lines);
}

uint64_t finish_hash(const StripeHash& all_but_last, const std::byte* last_stripe, uint64_t bytes) {
  StripeHash hash = all_but_last;
  add_stripe(hash, last_stripe, secret_at(kLastStripeByte));
  uint64_t value = bytes * kPrime64;
  for (size_t i = 0; i < 8; i += 2) {
    const std::byte* const secret = secret_at(kMergeByte + 8 * i);
    const unsigned __int128 product =
        static_cast<unsigned __int128>(hash.lanes[i] ^ read_word(secret)) *
        (hash.lanes[i + 1] ^ read_word(secret + 8));
    value += static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
  value = (value ^ (value >> 37)) * 0x165667919E3779F9;
  return value ^ (value >> 32);
}

void finish_copies() {
#ifdef __x86_64__
  _mm_sfence();
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace pdjob::kvtransfer
