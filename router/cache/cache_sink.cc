#include "router/cache/cache_sink.h"

#include <string>
#include <utility>

#include "openai/headers.h"

namespace pdjob::router {
namespace {

// An aborted reply has only a part of its tokens. In a text of a client or a model, the quotes
// would be escaped.
bool is_aborted(const CapturedReply& reply) {
  return reply.body.find(R"("finish_reason":"abort")") != std::string::npos;
}

}  // namespace

CacheSink::CacheSink(std::unique_ptr<ReplySink> next, size_t bytes_max, Keep keep)
    : next_(std::move(next)), keep_(std::move(keep)), copy_(bytes_max) {}

void CacheSink::reply(int status, std::string_view content_type, std::string_view body,
                      const Headers& headers) {
  next_->reply(status, content_type, body, headers);
}

void CacheSink::begin(const net::HttpReplyHead& head, WorkerId writer, const ReplyMarks& marks) {
  copy_.begin(head, writer);
  std::string more(marks.more);
  more.append(openai::header::kCache).append(": miss\r\n");
  ReplyMarks marked = marks;
  marked.more = more;
  next_->begin(head, writer, marked);
}

bool CacheSink::write(std::string_view raw) {
  copy_.take(raw);
  if (copy_.has_last_event()) {
    keep_copy();
  }
  return next_->write(raw);
}

void CacheSink::change_writer() {
  copy_.give_up();
  next_->change_writer();
}

void CacheSink::end() {
  keep_copy();
  next_->end();
}

void CacheSink::keep_copy() {
  auto reply = copy_.release();
  if (reply && !is_aborted(*reply)) {
    keep_(std::move(*reply));
  }
}

}  // namespace pdjob::router
