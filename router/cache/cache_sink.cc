#include "router/cache/cache_sink.h"

#include <string>

#include "openai/headers.h"

namespace pdjob::router {

void CacheSink::begin(const net::HttpReplyHead& head, WorkerId writer, const ReplyMarks& marks) {
  std::string more(marks.more);
  more.append(openai::header::kCache).append(": miss\r\n");
  ReplyMarks marked = marks;
  marked.more = more;
  CopyingSink::begin(head, writer, marked);
}

void CacheSink::copied() {
  if (copy().has_last_event()) {
    keep_copy();
  }
}

void CacheSink::end() {
  keep_copy();
  CopyingSink::end();
}

void CacheSink::keep_copy() {
  auto reply = copy().release();
  if (reply && !reply->is_aborted()) {
    keep_(std::move(*reply));
  }
}

}  // namespace pdjob::router
