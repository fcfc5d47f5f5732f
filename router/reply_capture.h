// ReplyCapture: a bounded copy of a reply that is on its way to a client, for whoever wants it
// whole. What broke off, was too long, or whose end cannot be told is no copy. Pure.
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

  // `done` is called once, if the exchange ends before its router does.
  ReplyCapture(size_t bytes_max, Done done) : bytes_max_(bytes_max), done_(std::move(done)) {}

  void begin(const net::HttpReplyHead& head, WorkerId writer);
  // Body bytes as they came.
  void take(std::string_view raw);
  void give_up();
  enum class End { kWhole, kBrokenOff };
  void finish(End end);

 private:
  const size_t bytes_max_;
  const Done done_;
  std::optional<CapturedReply> reply_;
  bool chunked_ = false;
  net::ChunkDecoder chunks_;
};

}  // namespace pdjob::router
