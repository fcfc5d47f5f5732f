// The inner loop of xxh3-64 for long inputs, on stripes of 64 bytes; and the same loop with a copy
// in it. There, hashing runs while the copy waits for memory, so the digest costs almost nothing.
// RowDigest builds a stream digest on it. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kvtransfer/rows/vector_code.h"

namespace pdjob::kvtransfer {

inline constexpr size_t kStripeBytes = 64;  // Also the size of a cache line.

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
// them. Such stores leave the cache alone: the target's lines are not read first, and ours stay.
// Requires: `to` is aligned to lines.
void hash_stripes_and_copy(StripeHash& hash, const std::byte* from, size_t stripes, std::byte* to,
                           const std::byte* lines);

// Returns the digest of `bytes` bytes, more than 240. Requires: the first (bytes - 1) / 64 stripes
// are hashed. `last_stripe` is the last 64 bytes; they may overlap hashed ones.
uint64_t finish_hash(const StripeHash& hash, const std::byte* last_stripe, uint64_t bytes);

// Makes all copies so far visible to other cores. Call it before announcing them.
void finish_copies();

}  // namespace pdjob::kvtransfer
