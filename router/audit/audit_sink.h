// AuditSink writes a reply on to another sink and copies it. It calls `done` with the copy if one
// pair of workers made the whole reply. Loop-bound.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "router/relay/reply_capture.h"

namespace pdjob::router {

class AuditSink final : public CopyingSink {
 public:
  struct Copy {
    CapturedReply reply;
    std::string request_id;
    std::string prefill;
    std::string decode;
  };
  using Done = std::function<void(Copy)>;

  AuditSink(std::unique_ptr<ReplySink> next, size_t bytes_max, Done done)
      : CopyingSink(std::move(next), bytes_max), done_(std::move(done)) {}

  void begin(const net::HttpReplyHead& head, WorkerId writer, const ReplyMarks& marks) override;
  void end() override;

 private:
  const Done done_;
  std::string request_id_;
  std::string prefill_;
  std::string decode_;
};

}  // namespace pdjob::router
