#include "batch/outbound_row_client.h"

#include <utility>

#include "batch/row_reply.h"
#include "openai/headers.h"

namespace pdjob::batch {
namespace {

constexpr Duration kConnectTimeout = std::chrono::seconds(10);

// Judges a call without a whole reply.
void set_fault(RowResult& result, const Error& fault, bool has_status) {
  switch (fault.code) {
    case ErrorCode::kTimeout:
      set_no_reply(result, Outcome::kBroken, "timeout", fault.message);
      return;
    case ErrorCode::kPeerFailed:
      set_no_reply(result, Outcome::kLost, "connection", fault.message);
      return;
    case ErrorCode::kUnsupported:
      set_no_reply(result, Outcome::kRefused, has_status ? "too_long" : "certificate",
                   fault.message);
      result.hopeless = has_status ? "" : fault.message;
      return;
    default:
      set_no_reply(result, Outcome::kUnreachable, "connection", fault.message);
  }
}

}  // namespace

RowResult result_of(Result<net::OutboundReply> reply) {
  RowResult result;
  if (!reply) {
    set_fault(result, reply.error(), /*has_status=*/false);
    return result;
  }
  result.status = reply->status;
  result.body = std::move(reply->body);
  result.request_id = reply->header(openai::header::kRequestId);
  result.retry_after = retry_after_of(reply->header("retry-after"));
  if (reply->complete) {
    judge_reply(result);
  } else {
    set_fault(result, reply->fault, /*has_status=*/true);
  }
  return result;
}

OutboundRowClient::OutboundRowClient(net::EventLoop& loop, const RowServer& server)
    : loop_(loop), server_(server), client_(net::OutboundClient::create(loop, server.ca_file)) {}

OutboundRowClient::~OutboundRowClient() = default;

void OutboundRowClient::start(Attempt attempt, const Then& then) {
  net::OutboundCall call{.to = server_.url,
                         .body = std::move(attempt.body),
                         .connect_timeout = kConnectTimeout,
                         .timeout = server_.row_timeout,
                         .peer = server_.peer,
                         .reply_bytes_max = kReplyBytesMax};
  call.to.path = joined_target(server_.url.path, attempt.target);
  call.headers = {"Content-Type: application/json",
                  std::string(openai::header::kRequestId) + ": " + attempt.request_id};
  std::string_view more = server_.header_lines;
  for (size_t end = more.find("\r\n"); end != more.npos; end = more.find("\r\n")) {
    call.headers.emplace_back(more.substr(0, end));
    more.remove_prefix(end + 2);
  }
  if (!server_.key.empty()) {
    call.headers.push_back("Authorization: Bearer " + server_.key);
  }
  calls_[attempt.id] =
      client_->post(std::move(call), [this, then, id = attempt.id, sent_id = attempt.request_id](
                                         Result<net::OutboundReply> reply) {
        calls_.erase(id);
        RowResult result = result_of(std::move(reply));
        result.request_id = result.request_id.empty() ? sent_id : result.request_id;
        then(id, std::move(result));
      });
}

void OutboundRowClient::cancel(AttemptId attempt) {
  if (const auto call = calls_.extract(attempt)) {
    client_->cancel(call.mapped());
  }
}

void OutboundRowClient::count_workers(std::function<void(size_t)> then) {
  loop_.post([then = std::move(then)] { then(0); });
}

}  // namespace pdjob::batch
