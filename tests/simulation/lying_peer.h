// LyingPeer: a peer that loses and repeats some of its messages on a KV link. It reads its own
// bytes, so that the stream of messages stays whole. It ends its lies if a fault has broken that
// stream already. Value.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "common/random.h"
#include "kvtransfer/link/link_message.h"

namespace pdjob::simulation {

// Chances, for each message. Messages that open a link, or that something follows on the socket
// (rows, a tail, a file descriptor), are spared.
struct Lies {
  double lost = 0;
  double repeated = 0;
};

class LyingPeer {
 public:
  LyingPeer(Lies lies, uint64_t seed) : lies_(lies), random_(seed) {}

  // Takes the next bytes of the stream. Returns those to send instead.
  std::string says(const std::string& bytes, bool lies) {
    unsaid_ += bytes;
    std::string said;
    while (!unsaid_.empty() && !broken_) {
      const size_t size = payload_left_ > 0 ? std::min(payload_left_, unsaid_.size()) : message();
      if (size == 0) {
        break;
      }
      const std::string part = unsaid_.substr(0, size);
      unsaid_.erase(0, size);
      if (payload_left_ > 0) {
        payload_left_ -= size;
        said += part;
      } else {
        said += repeat(part, lies);
      }
    }
    return broken_ ? said + std::exchange(unsaid_, "") : said;
  }

 private:
  static std::span<const std::byte> bytes_of(const std::string& text) {
    return std::as_bytes(std::span(text));
  }

  // Returns the bytes of the next message; 0: it is not complete.
  size_t message() {
    if (unsaid_.size() < kvtransfer::kFrameHeaderBytes) {
      return 0;
    }
    const auto header =
        kvtransfer::decode_header(bytes_of(unsaid_).first<kvtransfer::kFrameHeaderBytes>());
    broken_ = !header.has_value();
    if (broken_) {
      return 0;
    }
    const size_t size = kvtransfer::kFrameHeaderBytes + header->body_bytes;
    return unsaid_.size() < size ? 0 : size;
  }

  std::string repeat(const std::string& frame, bool lies) {
    const auto header =
        kvtransfer::decode_header(bytes_of(frame).first<kvtransfer::kFrameHeaderBytes>());
    const auto message = kvtransfer::decode_body(
        header->type, bytes_of(frame).subspan(kvtransfer::kFrameHeaderBytes));
    broken_ = !message.has_value();
    if (broken_) {
      return frame;
    }
    if (const auto* rows = std::get_if<kvtransfer::Rows>(&*message)) {
      payload_left_ = rows->payload_bytes;
    } else if (const auto* commit = std::get_if<kvtransfer::Commit>(&*message)) {
      payload_left_ = commit->tail_bytes;
    }
    const kvtransfer::MessageRole role = kvtransfer::role_of(*message);
    const bool spared = payload_left_ > 0 || !(role.from_receiver || role.from_sender) ||
                        std::holds_alternative<kvtransfer::Grant>(*message);
    if (spared || !lies) {
      return frame;
    }
    return random_.chance(lies_.lost) ? "" : random_.chance(lies_.repeated) ? frame + frame : frame;
  }

  const Lies lies_;
  Random random_;
  std::string unsaid_;
  size_t payload_left_ = 0;
  bool broken_ = false;
};

}  // namespace pdjob::simulation
