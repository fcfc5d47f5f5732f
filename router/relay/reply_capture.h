// ReplyCapture: a bounded copy of a reply on its way to a client. It keeps a reply only if its end
// is recognizable, was reached and came within the bound. An event stream is complete at its
// [DONE]. The copy is then ready before the client has the [DONE] and can send its next request or
// leave. Pure.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

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
  using Done = std::function<void(std::optional<CapturedReply>)>;

  // Calls `done` once: in finish(), or in take() at the end of a stream.
  ReplyCapture(size_t bytes_max, Done done) : bytes_max_(bytes_max), done_(std::move(done)) {}

  void begin(const net::HttpReplyHead& head, WorkerId writer);
  // Body bytes as received.
  void take(std::string_view raw);
  void give_up();
  // An answer of the router itself.
  void answer(int status, std::string_view body);
  enum class End { kWhole, kBrokenOff };
  void finish(End end);

 private:
  const size_t bytes_max_;
  const Done done_;
  std::optional<CapturedReply> reply_;
  bool chunked_ = false;
  bool finished_ = false;
  net::ChunkDecoder chunks_;
};

}  // namespace pdjob::router
