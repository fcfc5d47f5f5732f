#include "kvtransfer/rows/row_digest.h"

#include <algorithm>
#include <cstring>

#include <xxhash.h>

namespace pdjob::kvtransfer {

// Takes from `bytes` what completes a stripe. True: there were too few bytes to hash.
bool RowDigest::needs_more(std::span<const std::byte>& bytes) {
  if (bytes_ < kShortMax) {
    const size_t count = std::min<size_t>(kShortMax - bytes_, bytes.size());
    std::copy_n(bytes.begin(), count, head_.begin() + static_cast<ptrdiff_t>(bytes_));
  }
  bytes_ += bytes.size();
  std::byte* const stripe = last_.data() + kStripeBytes;
  const size_t count = std::min(kStripeBytes - waiting_, bytes.size());
  std::copy_n(bytes.begin(), count, stripe + waiting_);
  waiting_ += count;
  bytes = bytes.subspan(count);
  if (bytes.empty()) {
    return true;
  }
  hash_stripes(hash_, stripe, 1);
  return false;
}

void RowDigest::keep(std::span<const std::byte> rest, const std::byte* stripe_before) {
  std::memmove(last_.data(), stripe_before, kStripeBytes);
  std::copy(rest.begin(), rest.end(), last_.begin() + kStripeBytes);
  waiting_ = rest.size();
}

void RowDigest::update(std::span<const std::byte> bytes) {
  if (needs_more(bytes)) {
    return;
  }
  const size_t stripes = (bytes.size() - 1) / kStripeBytes;
  hash_stripes(hash_, bytes.data(), stripes);
  const std::span<const std::byte> rest = bytes.subspan(stripes * kStripeBytes);
  keep(rest, stripes > 0 ? rest.data() - kStripeBytes : last_.data() + kStripeBytes);
}

void RowDigest::update_and_copy(std::span<const std::byte> bytes, std::byte* to) {
  // Only whole, aligned lines are streamed: a partly written line would be flushed as several small
  // writes.
  const size_t past_line = reinterpret_cast<uintptr_t>(to) % kStripeBytes;
  const size_t head = std::min(bytes.size(), (kStripeBytes - past_line) % kStripeBytes);
  std::memcpy(to, bytes.data(), head);
  const std::byte* lines = bytes.data() + head;
  to += head;
  size_t left = bytes.size() - head;
  if (!needs_more(bytes)) {
    const size_t stripes = (bytes.size() - 1) / kStripeBytes;
    const size_t together = std::min(stripes, left / kStripeBytes);
    hash_stripes_and_copy(hash_, bytes.data(), together, to, lines);
    hash_stripes(hash_, bytes.data() + together * kStripeBytes, stripes - together);
    const std::span<const std::byte> rest = bytes.subspan(stripes * kStripeBytes);
    keep(rest, stripes > 0 ? rest.data() - kStripeBytes : last_.data() + kStripeBytes);
    lines += together * kStripeBytes;
    to += together * kStripeBytes;
    left -= together * kStripeBytes;
  }
  std::memcpy(to, lines, left);
}

uint64_t RowDigest::value() const {
  if (bytes_ <= kShortMax) {
    return XXH3_64bits(head_.data(), bytes_);
  }
  return finish_hash(hash_, last_.data() + waiting_, bytes_);
}

void hash_and_advance(RowDigest& digest, RowCursor& cursor, size_t bytes) {
  while (bytes > 0) {
    const std::span<std::byte> piece = cursor.next(bytes);
    digest.update(piece);
    cursor.advance(piece.size());
    bytes -= piece.size();
  }
}

}  // namespace pdjob::kvtransfer
