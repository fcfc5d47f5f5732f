// ReplyCapture: a bounded copy of a reply that is on its way to a client, for whoever wants it
// whole. What broke off, was too long, or whose end cannot be told is no copy. A stream of events
// is whole with its [DONE], before the client has that and comes with its next request, or leaves.
// Pure.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "common/id.h"
#include "net/http_client.h"
#include "net/http_parser.h"

namespace pdjob::router {

struct CapturedReply {
  int status = 0;
  std::string content_type;
  std::string body;  // Without chunks.
  WorkerId writer;
};

class ReplyCapture {
 public:
  using Done = std::function<void(std::optional<CapturedReply>)>;

  // `done` is called once: in finish(), or in take() with the end of a stream.
  ReplyCapture(size_t bytes_max, Done done) : bytes_max_(bytes_max), done_(std::move(done)) {}

  void begin(const net::HttpReplyHead& head, WorkerId writer);
  // Body bytes as they came.
  void take(std::string_view raw);
  void give_up();
  // The router's own.
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
