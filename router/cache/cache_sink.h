// CacheSink writes a reply on to another sink, marked as one that the cache did not have, and keeps
// a bounded copy. A whole copy goes to `keep`. An event stream is whole at its [DONE], so the copy
// is kept before the client has the [DONE] and can send its next request or leave. Loop-bound.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "router/relay/reply_capture.h"
#include "router/relay/reply_sink.h"

namespace pdjob::router {

class CacheSink final : public ReplySink {
 public:
  using Keep = std::function<void(CapturedReply)>;

  // Calls `keep` at most once.
  CacheSink(std::unique_ptr<ReplySink> next, size_t bytes_max, Keep keep);

  void reply(int status, std::string_view content_type, std::string_view body,
             const Headers& headers) override;
  void begin(const net::HttpReplyHead& head, WorkerId writer, const ReplyMarks& marks) override;
  bool write(std::string_view raw) override;
  // Drops the copy: the writer of a kept reply must be known.
  void change_writer() override;
  void end() override;
  void abort() override { next_->abort(); }
  bool takes_chunks() const override { return next_->takes_chunks(); }
  void hold_more(size_t bytes) override { next_->hold_more(bytes); }
  void body_freed() override { next_->body_freed(); }

 private:
  void keep_copy();

  const std::unique_ptr<ReplySink> next_;
  const Keep keep_;
  ReplyCapture copy_;
};

}  // namespace pdjob::router
