// ReplyCapture: a bounded copy of a worker's reply, for the sinks that keep replies. It keeps a
// reply only if its end is recognizable and came within the bound. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/id.h"
#include "net/http/http_client.h"
#include "net/http/http_parser.h"

namespace pdjob::router {

struct CapturedReply {
  int status = 0;
  std::string content_type;
  std::string body;  // Without chunk framing.
  WorkerId writer;
};

class ReplyCapture {
 public:
  explicit ReplyCapture(size_t bytes_max) : bytes_max_(bytes_max) {}

  void begin(const net::HttpReplyHead& head, WorkerId writer);
  // Body bytes as received.
  void take(std::string_view raw);
  void give_up() { reply_.reset(); }
  // True if the reply is an event stream, and its last event ([DONE]) is there.
  bool has_last_event() const;
  // Returns the copy once; later calls return nothing. Requires: the reply has ended, or
  // has_last_event().
  std::optional<CapturedReply> release() { return std::exchange(reply_, std::nullopt); }

 private:
  const size_t bytes_max_;
  std::optional<CapturedReply> reply_;
  bool chunked_ = false;
  net::ChunkDecoder chunks_;
};

}  // namespace pdjob::router
