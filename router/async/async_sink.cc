#include "router/async/async_sink.h"

#include <string>
#include <utility>

#include "openai/openai.h"

namespace pdjob::router {
namespace {

AsyncAnswer broken_off() {
  const openai::ApiError error{
      .status = 502, .type = "server_error", .message = "The answer broke off, or was too long"};
  return {error.status, openai::error_body(error)};
}

}  // namespace

void AsyncSink::reply(int status, std::string_view /*content_type*/, std::string_view body,
                      const Headers& /*headers*/) {
  done_({status, std::string(body)});
}

void AsyncSink::begin(const net::HttpReplyHead& head, WorkerId writer,
                      const ReplyMarks& /*marks*/) {
  copy_.begin(head, writer);
}

bool AsyncSink::write(std::string_view raw) {
  copy_.take(raw);
  return true;
}

void AsyncSink::end() {
  auto reply = copy_.release();
  done_(reply ? AsyncAnswer{reply->status, std::move(reply->body)} : broken_off());
}

void AsyncSink::abort() { done_(broken_off()); }

}  // namespace pdjob::router
