// AuditSink passes a reply on and copies it. It calls `done` with the copy if a pair of workers
// made it, without a change of workers. Loop-bound.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "router/relay/reply_capture.h"
#include "router/relay/reply_sink.h"

namespace pdjob::router {

class AuditSink final : public ReplySink {
 public:
  struct Copy {
    CapturedReply reply;
    std::string request_id;
    std::string prefill;
    std::string decode;
  };
  using Done = std::function<void(Copy)>;

  AuditSink(std::unique_ptr<ReplySink> next, size_t bytes_max, Done done)
      : next_(std::move(next)), done_(std::move(done)), copy_(bytes_max) {}

  void reply(int status, std::string_view content_type, std::string_view body,
             const Headers& headers) override {
    next_->reply(status, content_type, body, headers);
  }
  void begin(const net::HttpReplyHead& head, WorkerId writer, const ReplyMarks& marks) override;
  bool write(std::string_view raw) override;
  void change_writer() override;
  void end() override;
  void abort() override { next_->abort(); }
  bool takes_chunks() const override { return next_->takes_chunks(); }
  void hold_more(size_t bytes) override { next_->hold_more(bytes); }
  void body_freed() override { next_->body_freed(); }

 private:
  const std::unique_ptr<ReplySink> next_;
  const Done done_;
  ReplyCapture copy_;
  std::string request_id_;
  std::string prefill_;
  std::string decode_;
};

}  // namespace pdjob::router
