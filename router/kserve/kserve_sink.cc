#include "router/kserve/kserve_sink.h"

#include <utility>

#include "common/limits.h"
#include "openai/headers.h"
#include "openai/kserve/infer_reply.h"

namespace pdjob::router {

KserveSink::KserveSink(openai::InferRequest request, std::unique_ptr<ReplySink> client)
    : request_(std::move(request)), client_(std::move(client)), copy_(limits::kHttpBodyBytesMax) {}

// A refusal, or what the response cache has.
void KserveSink::reply(int status, std::string_view /*content_type*/, std::string_view body,
                       const Headers& headers) {
  answer(status, body, headers);
}

void KserveSink::begin(const net::HttpReplyHead& head, WorkerId writer, const ReplyMarks& marks) {
  copy_.begin(head, writer);
  marks_.clear();
  for (const auto& [name, value] : {std::pair(openai::header::kRequestId, marks.request_id),
                                    std::pair(openai::header::kPrefill, marks.prefill),
                                    std::pair(openai::header::kDecode, marks.decode)}) {
    if (!value.empty()) {
      marks_.emplace_back(name, value);
    }
  }
}

bool KserveSink::write(std::string_view raw) {
  copy_.take(raw);
  return true;
}

void KserveSink::end() {
  const auto kept = copy_.release();
  if (!kept) {
    return abort();
  }
  answer(kept->status, kept->body, marks_);
}

void KserveSink::answer(int status, std::string_view body, Headers headers) {
  if (status != 200) {
    return client_->reply(status, "application/json", openai::infer_error(body), headers);
  }
  const auto made = openai::infer_reply(request_, body);
  if (!made) {
    return refuse(made.error());
  }
  if (made->has_binary()) {
    headers.emplace_back(openai::kInferJsonBytes, std::to_string(made->json_bytes));
  }
  client_->reply(200, made->has_binary() ? "application/octet-stream" : "application/json",
                 made->body, headers);
}

void KserveSink::abort() {
  refuse({.status = 502, .message = "The answer broke off, or was too long"});
}

void KserveSink::refuse(const openai::ApiError& error) {
  client_->reply(error.status, "application/json", openai::infer_error(openai::error_body(error)),
                 marks_);
}

}  // namespace pdjob::router
