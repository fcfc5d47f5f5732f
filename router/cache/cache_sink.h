// CacheSink writes a reply on to another sink, marked as one that the cache did not have, and keeps
// a bounded copy. A whole copy goes to `keep`. An event stream is whole at its [DONE], so the copy
// is kept before the client has the [DONE] and can send its next request or leave. Loop-bound.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "router/relay/reply_capture.h"

namespace pdjob::router {

class CacheSink final : public CopyingSink {
 public:
  using Keep = std::function<void(CapturedReply)>;

  // Calls `keep` at most once.
  CacheSink(std::unique_ptr<ReplySink> next, size_t bytes_max, Keep keep)
      : CopyingSink(std::move(next), bytes_max), keep_(std::move(keep)) {}

  void begin(const net::HttpReplyHead& head, WorkerId writer, const ReplyMarks& marks) override;
  void end() override;

 private:
  void copied() override;
  void keep_copy();

  const Keep keep_;
};

}  // namespace pdjob::router
