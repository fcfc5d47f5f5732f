// KserveSink turns a worker's completion into a reply of KServe's protocol (openai/kserve), for the
// sink of the client. It keeps the completion until it is whole. Loop-bound.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "openai/kserve/infer_request.h"
#include "router/relay/reply_capture.h"
#include "router/relay/reply_sink.h"

namespace pdjob::router {

class KserveSink final : public ReplySink {
 public:
  KserveSink(openai::InferRequest request, std::unique_ptr<ReplySink> client);

  void reply(int status, std::string_view content_type, std::string_view body,
             const Headers& headers) override;
  void begin(const net::HttpReplyHead& head, WorkerId writer, const ReplyMarks& marks) override;
  bool write(std::string_view raw) override;
  void change_writer() override { copy_.give_up(); }
  void end() override;
  void abort() override;
  bool takes_chunks() const override { return true; }
  void hold_more(size_t bytes) override { client_->hold_more(bytes); }
  void body_freed() override { client_->body_freed(); }

 private:
  void answer(int status, std::string_view body, Headers headers);
  void refuse(const openai::ApiError& error);

  const openai::InferRequest request_;
  const std::unique_ptr<ReplySink> client_;
  ReplyCapture copy_;
  Headers marks_;  // Of the reply.
};

}  // namespace pdjob::router
