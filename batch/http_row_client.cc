#include "batch/http_row_client.h"

#include <array>
#include <utility>

#include "batch/row_reply.h"
#include "openai/headers.h"
#include "openai/json/json_edit.h"

namespace pdjob::batch {
namespace {

constexpr size_t kWorkersBytesMax = size_t{16} << 20;

size_t serving_workers(const std::string& body) {
  size_t count = 0;
  for (size_t at = 0; (at = body.find("\"standing\":\"serving\"", at)) != std::string::npos; ++at) {
    ++count;
  }
  return count;
}

}  // namespace

HttpRowClient::HttpRowClient(net::Loop& loop, const RowServer& server)
    : loop_(loop), server_(server), client_(net::HttpClient::create(loop)) {}

void HttpRowClient::start(Attempt attempt, const Then& then) {
  std::string lines = server_.header_lines + "Content-Type: application/json\r\n";
  lines.append(openai::header::kRequestId).append(": ").append(attempt.request_id).append("\r\n");
  if (!server_.key.empty()) {
    lines.append("Authorization: Bearer ").append(server_.key).append("\r\n");
  }
  const bool asks = attempt.tell_every > 0 && told_ && may_ask_;
  if (asks) {
    lines.append(openai::header::kProgress).append(": ");
    lines.append(std::to_string(attempt.tell_every)).append("\r\n");
  }
  if (!attempt.goes_on.tokens.empty()) {
    const std::array edits = {openai::JsonEdit{"pdjob_resume", attempt.goes_on.tokens},
                              openai::JsonEdit{"pdjob_resume_weights", attempt.goes_on.weights},
                              openai::JsonEdit{"pdjob_resume_model", attempt.goes_on.model}};
    if (auto edited = openai::edit_json_object(attempt.body, edits)) {
      attempt.body = *std::move(edited);
    }
  }
  const std::string target = joined_target(server_.url.path, attempt.target);
  net::HttpCall call;
  call.to = server_.url.address;
  call.target = target;
  call.header_lines = lines;
  call.body = std::move(attempt.body);
  call.head_timeout = call.idle_timeout = call.total_timeout = server_.row_timeout;
  const net::CallId id = client_->start(std::move(call), *this);
  Call& made = calls_[id];
  made.attempt = attempt.id;
  made.then = then;
  made.asks = asks;
  made.result.request_id = std::move(attempt.request_id);
  call_of_.emplace(attempt.id, id);
}

void HttpRowClient::cancel(AttemptId attempt) {
  if (const auto found = call_of_.find(attempt); found != call_of_.end()) {
    client_->cancel(found->second);
    calls_.erase(found->second);
    call_of_.erase(found);
  }
}

void HttpRowClient::count_workers(std::function<void(size_t)> then) {
  std::string lines = server_.header_lines;
  if (!server_.key.empty()) {
    lines += "Authorization: Bearer " + server_.key + "\r\n";
  }
  net::HttpCall call;
  call.to = server_.url.address;
  call.method = "GET";
  call.target = "/pdjob/workers";
  call.header_lines = lines;
  call.head_timeout = call.idle_timeout = std::chrono::seconds(5);
  net::fetch(loop_, *client_, std::move(call), kWorkersBytesMax,
             [then = std::move(then)](const Result<net::HttpReply>& reply) {
               then(reply && reply->status == 200 ? serving_workers(reply->body) : 0);
             });
}

void HttpRowClient::on_interim(net::CallId id, const net::HttpReplyHead& head) {
  const std::string_view note = head.header(openai::header::kTokens);
  if (!note.empty() && told_) {
    told_(calls_.at(id).attempt, note);
  }
}

void HttpRowClient::on_head(net::CallId id, const net::HttpReplyHead& head) {
  Call& call = calls_.at(id);
  call.result.status = head.status;
  call.result.retry_after = retry_after_of(head.header("retry-after"));
  call.chunked = head.framing == net::BodyFraming::kChunked;
  if (const std::string_view given = head.header(openai::header::kRequestId); !given.empty()) {
    call.result.request_id = given;
  }
}

void HttpRowClient::on_body(net::CallId id, std::string_view raw) {
  Call& call = calls_.at(id);
  std::string& body = call.result.body;
  if (call.chunked) {
    call.chunks.decode(raw, body);
  } else {
    body.append(raw);
  }
  if (body.size() > kReplyBytesMax) {
    client_->cancel(id);
    RowResult result = std::move(call.result);
    set_no_reply(result, Outcome::kRefused, "too_long",
                 "the reply is longer than " + std::to_string(kReplyBytesMax) + " bytes");
    finish(id, std::move(result));
  }
}

void HttpRowClient::on_end(net::CallId id) {
  RowResult result = std::move(calls_.at(id).result);
  judge_reply(result);
  finish(id, std::move(result));
}

void HttpRowClient::on_error(net::CallId id, const Error& error) {
  Call& call = calls_.at(id);
  may_ask_ = may_ask_ && !(call.asks && error.code == ErrorCode::kCorrupt);
  RowResult result = std::move(call.result);
  const bool reached = client_->reached();
  const bool late = error.code == ErrorCode::kTimeout;
  set_no_reply(result,
               !reached ? Outcome::kUnreachable
               : late   ? Outcome::kBroken
                        : Outcome::kLost,
               late ? "timeout" : "connection", error.message);
  finish(id, std::move(result));
}

void HttpRowClient::finish(net::CallId id, RowResult result) {
  const auto found = calls_.find(id);
  const Call call = std::move(found->second);
  calls_.erase(found);
  call_of_.erase(call.attempt);
  call.then(call.attempt, std::move(result));
}

}  // namespace pdjob::batch
