#include "net/http/request_intake.h"

#include <algorithm>
#include <utility>

#include "common/limits.h"
#include "net/loop/free_text.h"

namespace pdjob::net {
namespace {

// Retry-After for a client that was refused for lack of memory.
constexpr uint32_t kMemoryRetrySeconds = 1;
// Buffer bytes that a connection keeps after its request.
constexpr size_t kHeadKeptMax = 16 * limits::kKiB;

// Some programs write it before their JSON (RFC 8259, 8.1).
void drop_byte_order_mark(std::string& body) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (body.starts_with(kByteOrderMark)) {
    body.erase(0, kByteOrderMark.size());
  }
}

}  // namespace

std::optional<HttpRefusal> refusal_to_hold(const HeldBytes& held, HeldBytes::Account account,
                                           size_t own, size_t more) {
  switch (held.ask(account, own, more)) {
    case HeldBytes::Verdict::kFits:
      break;
    case HeldBytes::Verdict::kTotalIsFull:
      return HttpRefusal{503, "too many bytes of requests are in memory: try again",
                         kMemoryRetrySeconds};
    case HeldBytes::Verdict::kAccountIsFull:
      return HttpRefusal{429, "too many bytes of this tenant's requests are in memory",
                         kMemoryRetrySeconds};
  }
  return std::nullopt;
}

void HeadIntake::add(std::string_view bytes) {
  bytes_.erase(0, std::exchange(at_, 0));
  bytes_.append(bytes);
  count();
}

void HeadIntake::drop() {
  take(bytes_.size());
  shrink();
}

void HeadIntake::shrink() {
  if (bytes().empty()) {
    at_ = 0;
    free_text(bytes_, kHeadKeptMax);
  }
  count();
}

void HeadIntake::count() {
  held_.give_back(0, std::exchange(counted_, bytes_.size()));
  held_.take(0, counted_);
}

bool HeadIntake::head_begun() {
  while (bytes().starts_with("\r\n")) {  // RFC 9112 2.2 asks for this leniency.
    take(2);
    finder_.reset();
  }
  return !bytes().empty();
}

bool HeadIntake::take_head(RequestHead& head) {
  const size_t length = finder_.find(bytes());
  refusal_ = finder_.refusal();
  if (length == 0 || refusal_) {
    return false;
  }
  head_.assign(bytes().substr(0, length));
  take(length);
  finder_.reset();
  refusal_ = parse_request_head(head_, head);
  return !refusal_;
}

void BodyIntake::begin(const RequestHead& head) {
  framing_ = head.framing;
  left_ = head.content_length;
  size_ = 0;
  account_ = 0;
  chunks_ = {};
  packing_ = Packing::kNone;
  whole_ = false;
  refusal_.reset();
}

std::optional<HttpRefusal> BodyIntake::admit(HttpRequest& request) {
  size_max_ = request.body_bytes_max;
  if (left_ > size_max_) {
    return HttpRefusal{413, "the request body is too large"};
  }
  const auto packing =
      framing_ == BodyFraming::kNone ? Packing::kNone : body_packing(request.headers);
  if (!packing || (request.streams && *packing != Packing::kNone)) {
    return HttpRefusal{.status = 415,
                       .reason = request.streams
                                     ? "a body without Content-Encoding is wanted here"
                                     : "Content-Encoding must be gzip, zstd or identity",
                       .accept_encoding = request.streams ? "identity" : kBodyCodings};
  }
  packing_ = *packing;
  std::erase_if(request.headers, [](const HttpHeader& header) {
    return equal_ignoring_case(header.name, "content-encoding");
  });
  if (request.streams) {
    return std::nullopt;
  }
  account_ = request.account;
  // An early check, not a reservation: others may take the room while the body arrives.
  return refusal_to_hold(held_, account_, 0, static_cast<size_t>(left_));
}

BodyIntake::Piece BodyIntake::pass(std::string_view bytes, std::string& buffer) {
  Piece piece;
  if (framing_ == BodyFraming::kChunked) {
    const size_t before = buffer.size();
    piece.taken = chunks_.decode(bytes, buffer);
    piece.payload = std::string_view(buffer).substr(before);
    whole_ = chunks_.done();
  } else {
    piece.taken = static_cast<size_t>(std::min<uint64_t>(left_, bytes.size()));
    piece.payload = bytes.substr(0, piece.taken);
    left_ -= piece.taken;
    whole_ = left_ == 0;
  }
  size_ += piece.payload.size();
  if (chunks_.failed()) {
    refusal_ = {400, "malformed chunked body"};
  } else if (size_ > size_max_) {
    refusal_ = {413, "the request body is too large"};
  }
  return piece;
}

size_t BodyIntake::take(std::string_view bytes, std::string& body) {
  const Piece piece = pass(bytes, body);
  if (refuse_to_hold(piece.payload.size())) {
    return piece.taken;
  }
  if (framing_ != BodyFraming::kChunked) {
    body.append(piece.payload);
  }
  if (whole_ && packed() && !body.empty()) {
    unpacker_.emplace(packing_, std::exchange(body, std::string()));
  } else if (whole_) {
    packing_ = Packing::kNone;
    drop_byte_order_mark(body);
  }
  return piece.taken;
}

bool BodyIntake::unpack(std::string& body) {
  const size_t before = body.size();
  const Result<bool> unpacked = unpacker_->step(body);
  if (!unpacked && unpacked.error().code == ErrorCode::kCorrupt) {
    refusal_ = {400, "the body is not what its Content-Encoding says"};
  } else if (!unpacked || body.size() > size_max_) {
    refusal_ = {413, "the request body is too large once it is unpacked"};
  }
  if (refusal_ || refuse_to_hold(body.size() - before) || !*unpacked) {
    return false;
  }
  const size_t packed_bytes = unpacker_->packed_bytes();
  unpacker_.reset();
  bytes_held_ -= packed_bytes;
  held_.give_back(account_, packed_bytes);
  drop_byte_order_mark(body);
  body.reserve(body.size() + HttpRequest::kBodySlack);
  return true;
}

bool BodyIntake::refuse_to_hold(size_t more) {
  if (auto refusal = refusal_to_hold(held_, account_, bytes_held_, more)) {
    refusal_ = refusal;
    return true;
  }
  hold(more);
  return refusal_.has_value();
}

void BodyIntake::hold(size_t more) {
  bytes_held_ += more;
  held_.take(account_, more);
}

void BodyIntake::release() {
  unpacker_.reset();
  held_.give_back(account_, std::exchange(bytes_held_, 0));
}

}  // namespace pdjob::net
