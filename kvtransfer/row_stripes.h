// The inner loop of xxh3-64 for long inputs, on stripes of 64 bytes, and the same loop with a copy
// in it: while one waits for memory the other computes, so that the digest of a copy costs next to
// nothing. RowDigest makes streams of bytes of it. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kvtransfer/vector_code.h"

namespace pdjob::kvtransfer {

inline constexpr size_t kStripeBytes = 64;  // And of a line of the cache.

struct StripeHash {
  // Primes of xxh3.
  alignas(kStripeBytes) std::array<uint64_t, 8> lanes = {
      0xC2B2AE3D,         0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9,
      0x85EBCA77C2B2AE63, 0x85EBCA77,         0x27D4EB2F165667C5, 0x9E3779B1};
  size_t in_block = 0;  // Stripes.
  VectorCode code = fastest_code();
};

void hash_stripes(StripeHash& hash, const std::byte* from, size_t stripes);

// Also copies as many lines from `lines` to `to`, by non-temporal stores where the machine has
// them: the target's lines are not read first and do not displace ours. Requires: `to` is aligned
// to lines.
void hash_stripes_and_copy(StripeHash& hash, const std::byte* from, size_t stripes, std::byte* to,
                           const std::byte* lines);

// The value of `bytes` > 240 bytes of which all whole stripes are hashed, but for the last: that is
// `last_stripe`, the last 64 bytes, where they overlap or not.
uint64_t finish_hash(const StripeHash& hash, const std::byte* last_stripe, uint64_t bytes);

// Makes all copies so far visible to others. Call before telling anybody of them.
void finish_copies();

}  // namespace pdjob::kvtransfer
