#include "router/relay/reply_capture.h"

namespace pdjob::router {

// In a text of a client or a model, the quotes would be escaped.
bool CapturedReply::is_aborted() const {
  return body.find(R"("finish_reason":"abort")") != std::string::npos;
}

void ReplyCapture::begin(const net::HttpReplyHead& head, WorkerId writer) {
  // If closing ends the body, half of it looks whole.
  if (head.framing != net::BodyFraming::kUntilClose && head.header("content-encoding").empty()) {
    reply_ = CapturedReply{.status = head.status,
                           .content_type = std::string(head.header("content-type")),
                           .writer = writer};
    chunked_ = head.framing == net::BodyFraming::kChunked;
  }
}

void ReplyCapture::take(std::string_view raw) {
  if (!reply_) {
    return;
  }
  if (chunked_) {
    chunks_.decode(raw, reply_->body);
  } else {
    reply_->body.append(raw);
  }
  if (reply_->body.size() > bytes_max_) {
    give_up();
  }
}

bool ReplyCapture::has_last_event() const {
  return reply_ && reply_->content_type.starts_with("text/event-stream") &&
         reply_->body.ends_with("data: [DONE]\n\n");
}

}  // namespace pdjob::router
