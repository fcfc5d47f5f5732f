// The bytes of a connection's requests: HeadIntake has those up to the end of the next head, and
// BodyIntake takes a body out of its framing and its coding. Both count their memory in
// HeldBytes, and stay within the limits. Loop-bound.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/packing/unpacker.h"
#include "net/http/body_unpacker.h"
#include "net/http/held_bytes.h"
#include "net/http/http_parser.h"
#include "net/http/http_server.h"

namespace pdjob::net {

// Empty if a holder of `own` bytes may hold `more`. Pure.
std::optional<HttpRefusal> refusal_to_hold(const HeldBytes& held, HeldBytes::Account account,
                                           size_t own, size_t more);

class HeadIntake {
 public:
  explicit HeadIntake(HeldBytes& held) : held_(held) {}
  ~HeadIntake() { drop(); }
  HeadIntake(const HeadIntake&) = delete;
  HeadIntake& operator=(const HeadIntake&) = delete;

  // The bytes not taken yet: a part of a head, the start of a body, or pipelined requests.
  std::string_view bytes() const { return std::string_view(bytes_).substr(at_); }
  std::optional<HttpRefusal> refusal_to_add(size_t more) const {
    return refusal_to_hold(held_, 0, bytes().size(), more);
  }
  void add(std::string_view bytes);
  void take(size_t count) { at_ = std::min(at_ + count, bytes_.size()); }
  void drop();
  // If all bytes are taken, frees memory that only a long head needs.
  void shrink();

  // Skips line breaks before a head. Returns false if no byte of a head has arrived.
  bool head_begun();
  // Takes a whole head, to which `head` then points. Returns false if it is not whole, or if it is
  // refused.
  bool take_head(RequestHead& head);
  const std::optional<HttpRefusal>& refusal() const { return refusal_; }

 private:
  void count();

  HeldBytes& held_;
  std::string bytes_;
  size_t at_ = 0;
  size_t counted_ = 0;
  HeadFinder finder_;
  std::string head_;
  std::optional<HttpRefusal> refusal_;
};

class BodyIntake {
 public:
  explicit BodyIntake(HeldBytes& held) : held_(held) {}
  ~BodyIntake() { release(); }
  BodyIntake(const BodyIntake&) = delete;
  BodyIntake& operator=(const BodyIntake&) = delete;

  // Its bytes come next. Requires: nothing is held.
  void begin(const RequestHead& head);
  // Says whether the body of this request is taken, and hides its coding. A body that streams has
  // none.
  std::optional<HttpRefusal> admit(HttpRequest& request);

  struct Piece {
    size_t taken = 0;          // How many bytes belonged to the body.
    std::string_view payload;  // Without the framing.
  };
  // The next piece of a body that is not kept. `buffer` may hold the payload.
  Piece pass(std::string_view bytes, std::string& buffer);
  // Appends the next piece to `body`. Returns how many bytes belonged to it.
  size_t take(std::string_view bytes, std::string& body);
  // Unpacks the next slice of a whole body. Returns true after the last one. The packed bytes count
  // until then.
  bool unpack(std::string& body);

  bool whole() const { return whole_; }
  bool packed() const { return packing_ != Packing::kNone; }
  // Why the last piece or slice was not taken.
  const std::optional<HttpRefusal>& refusal() const { return refusal_; }

  void hold(size_t more);
  void release();

 private:
  bool refuse_to_hold(size_t more);

  HeldBytes& held_;
  BodyFraming framing_ = BodyFraming::kNone;
  uint64_t left_ = 0;  // Bytes that a body with a length still lacks.
  uint64_t size_ = 0;  // So far.
  size_t size_max_ = 0;
  ChunkDecoder chunks_;
  Packing packing_ = Packing::kNone;
  std::optional<BodyUnpacker> unpacker_;
  bool whole_ = false;
  std::optional<HttpRefusal> refusal_;
  HeldBytes::Account account_ = 0;
  size_t bytes_held_ = 0;
};

}  // namespace pdjob::net
