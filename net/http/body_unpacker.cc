#include "net/http/body_unpacker.h"

#include <algorithm>
#include <utility>

#include "common/limits.h"

namespace pdjob::net {
namespace {

// Bytes in and out in one turn.
constexpr size_t kSliceBytes = 256 * limits::kKiB;
// A body may grow to this size, or to so many times its own.
constexpr size_t kFreeBytes = 1 * limits::kMiB;
constexpr size_t kRatioMax = 100;
// Senders of this coding may need no larger window (RFC 9659).
constexpr int kZstdWindowLogMax = 23;

}  // namespace

std::optional<Packing> body_packing(const std::vector<HttpHeader>& headers) {
  Packing packing = Packing::kNone;
  for (const HttpHeader& header : headers) {
    const std::string_view coding = header.value;
    if (!equal_ignoring_case(header.name, "content-encoding") || coding.empty() ||
        equal_ignoring_case(coding, "identity")) {
      continue;
    }
    const bool gzip = equal_ignoring_case(coding, "gzip") || equal_ignoring_case(coding, "x-gzip");
    if (packing != Packing::kNone || !(gzip || equal_ignoring_case(coding, "zstd"))) {
      return std::nullopt;
    }
    packing = gzip ? Packing::kGzip : Packing::kZstd;
  }
  return packing;
}

BodyUnpacker::BodyUnpacker(Packing packing, std::string packed)
    : packed_(std::move(packed)),
      left_(packed_),
      unpacker_(Unpacker::create(packing, kZstdWindowLogMax)) {}

Result<bool> BodyUnpacker::step(std::string& body) {
  const size_t before = body.size();
  std::span<const char> slice = left_.first(std::min(left_.size(), kSliceBytes));
  const size_t given = slice.size();
  body.resize(before + kSliceBytes);
  size_t made = 0;
  while (made < kSliceBytes && (!slice.empty() || unpacker_->inside())) {
    const auto piece = unpacker_->unpack(slice, std::span(body).subspan(before + made));
    if (!piece) {
      return piece.error();
    }
    if (*piece == 0 && slice.empty()) {
      break;
    }
    made += *piece;
  }
  body.resize(before + made);
  left_ = left_.subspan(given - slice.size());
  if (body.size() > std::max(kFreeBytes, kRatioMax * packed_.size())) {
    return Error{ErrorCode::kOverloaded, "it grows too much"};
  }
  const bool at_end = left_.empty() && made < kSliceBytes;
  if (at_end && unpacker_->inside()) {
    return Error{ErrorCode::kCorrupt, "it ends in the middle"};
  }
  return at_end;
}

}  // namespace pdjob::net
