// AsyncSink keeps the reply to an asynchronous request, for which no client waits. It accepts every
// byte, keeps a bounded number of them, and calls `done` with the answer. Loop-bound.
#pragma once

#include <functional>
#include <string_view>
#include <utility>

#include "router/async/async_database.h"
#include "router/relay/reply_capture.h"
#include "router/relay/reply_sink.h"

namespace pdjob::router {

class AsyncSink final : public ReplySink {
 public:
  using Done = std::function<void(AsyncAnswer)>;

  // Calls `done` once, unless the relay drops the sink: then the request was cancelled.
  AsyncSink(size_t bytes_max, Done done) : done_(std::move(done)), copy_(bytes_max) {}

  void reply(int status, std::string_view content_type, std::string_view body,
             const Headers& headers) override;
  void begin(const net::HttpReplyHead& head, WorkerId writer, const ReplyMarks& marks) override;
  bool write(std::string_view raw) override;
  void change_writer() override { copy_.give_up(); }
  void end() override;
  void abort() override;
  bool takes_chunks() const override { return true; }
  void hold_more(size_t /*bytes*/) override {}
  void body_freed() override {}

 private:
  const Done done_;
  ReplyCapture copy_;
};

}  // namespace pdjob::router
