// xxh3-64 over the bytes of rows, fed piece by piece. It finds wrong, stale or missing rows; it
// does not stop a forger. No other file of this folder uses xxhash. Value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kvtransfer/rows/row_cursor.h"
#include "kvtransfer/rows/row_stripes.h"

namespace pdjob::kvtransfer {

class RowDigest {
 public:
  explicit RowDigest(VectorCode code = fastest_code()) { hash_.code = code; }

  void update(std::span<const std::byte> bytes);
  // Like update(), and copies the bytes to memory that another core will read next. Faster than
  // memcpy alone. finish_copies() makes them visible.
  void update_and_copy(std::span<const std::byte> bytes, std::byte* to);
  // Digest of all bytes so far; more may follow.
  uint64_t value() const;

 private:
  // Bytes: xxh3 hashes inputs up to this length in another way.
  static constexpr size_t kShortMax = 240;

  bool needs_more(std::span<const std::byte>& bytes);
  void keep(std::span<const std::byte> rest, const std::byte* stripe_before);

  StripeHash hash_;
  uint64_t bytes_ = 0;
  std::array<std::byte, kShortMax> head_{};  // The first bytes.
  // The last 64 hashed bytes, and up to 64 bytes after them. A stripe is hashed only when more
  // bytes follow.
  std::array<std::byte, 2 * kStripeBytes> last_{};
  size_t waiting_ = 0;
};

// Hashes the next `bytes` of the cursor and moves it past them. Requires: bytes <=
// cursor.bytes_left().
void hash_and_advance(RowDigest& digest, RowCursor& cursor, size_t bytes);

}  // namespace pdjob::kvtransfer
