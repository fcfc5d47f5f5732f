// ReplyCapture: a bounded copy of a worker's reply, for the sinks that keep replies. It keeps a
// reply only if its end is recognizable and came within the bound. CopyingSink is such a sink,
// which also writes the reply on. Pure.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/id.h"
#include "net/http/http_client.h"
#include "net/http/http_parser.h"
#include "router/relay/reply_sink.h"

namespace pdjob::router {

struct CapturedReply {
  int status = 0;
  std::string content_type;
  std::string body;  // Without chunk framing.
  WorkerId writer;

  // It was ended before its time, so it has only a part of its tokens.
  bool is_aborted() const;
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

// Passes all on to another sink. A reply that changes its writer is not kept.
class CopyingSink : public ReplySink {
 public:
  CopyingSink(std::unique_ptr<ReplySink> next, size_t bytes_max)
      : next_(std::move(next)), copy_(bytes_max) {}

  void reply(int status, std::string_view content_type, std::string_view body,
             const Headers& headers) override {
    next_->reply(status, content_type, body, headers);
  }
  void interim(std::string_view header_lines) override { next_->interim(header_lines); }
  void begin(const net::HttpReplyHead& head, WorkerId writer, const ReplyMarks& marks) override {
    copy_.begin(head, writer);
    next_->begin(head, writer, marks);
  }
  bool write(std::string_view raw) override {
    copy_.take(raw);
    copied();
    return next_->write(raw);
  }
  void change_writer() override {
    copy_.give_up();
    next_->change_writer();
  }
  void end() override { next_->end(); }
  void abort() override { next_->abort(); }
  bool takes_chunks() const override { return next_->takes_chunks(); }
  void hold_more(size_t bytes) override { next_->hold_more(bytes); }
  void body_freed() override { next_->body_freed(); }

 protected:
  ReplyCapture& copy() { return copy_; }
  // The copy has more bytes, which the next sink does not have yet.
  virtual void copied() {}

 private:
  const std::unique_ptr<ReplySink> next_;
  ReplyCapture copy_;
};

}  // namespace pdjob::router
