#include "batch/http_row_client.h"

#include <utility>

#include "common/parse_number.h"
#include "openai/headers.h"
#include "openai/json/json_edit.h"

namespace pdjob::batch {
namespace {

constexpr size_t kReplyBytesMax = size_t{32} << 20;
constexpr size_t kWorkersBytesMax = size_t{16} << 20;
constexpr Duration kRetryAfterMax = std::chrono::minutes(10);

// "/v1" of a base URL and "/v1/completions" of a row are "/v1/completions".
std::string joined(const std::string& base, const std::string& target) {
  const std::string_view trimmed = std::string_view(base).substr(0, base.find_last_not_of('/') + 1);
  constexpr std::string_view kVersion = "/v1";
  return std::string(trimmed.ends_with(kVersion)
                         ? trimmed.substr(0, trimmed.size() - kVersion.size())
                         : trimmed) +
         target;
}

// The other form, a date, is left to the ledger's own backoff.
Duration retry_after_of(std::string_view header) {
  const auto given = parse_number<uint32_t>(header);
  return given ? std::min<Duration>(std::chrono::seconds(*given), kRetryAfterMax) : Duration{};
}

size_t serving_workers(const std::string& body) {
  size_t count = 0;
  for (size_t at = 0; (at = body.find("\"standing\":\"serving\"", at)) != std::string::npos; ++at) {
    ++count;
  }
  return count;
}

}  // namespace

Outcome outcome_of_status(int status) {
  switch (status) {
    case 429:
    case 503:
      return Outcome::kBusy;
    case 502:
      return Outcome::kLost;  // A connection broke behind the server.
    case 408:
    case 409:
    case 425:
      return Outcome::kBroken;
    default:
      return status / 100 == 2   ? Outcome::kAnswered
             : status / 100 == 5 ? Outcome::kBroken
                                 : Outcome::kRefused;
  }
}

Result<RowServer> parse_row_server(const std::string& url) {
  const std::string text = url.find("://") == std::string::npos ? "http://" + url : url;
  PDJOB_TRY(net::Url parsed, net::parse_url(text));
  if (parsed.https) {
    return Error{ErrorCode::kUnsupported,
                 url + ": https is not supported: name a server by http, such as a local proxy"};
  }
  return RowServer{.url = std::move(parsed)};
}

HttpRowClient::HttpRowClient(net::Loop& loop, const RowServer& server)
    : loop_(loop), server_(server), client_(net::HttpClient::create(loop)) {}

void HttpRowClient::start(Attempt attempt, const Then& then) {
  std::string lines = server_.header_lines + "Content-Type: application/json\r\n";
  lines.append(openai::header::kRequestId).append(": ").append(attempt.request_id).append("\r\n");
  if (!server_.key.empty()) {
    lines.append("Authorization: Bearer ").append(server_.key).append("\r\n");
  }
  const std::string target = joined(server_.url.path, attempt.target);
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
    result.outcome = Outcome::kRefused;
    result.body.clear();
    result.cause = "too_long";
    result.message = "the reply is longer than " + std::to_string(kReplyBytesMax) + " bytes";
    finish(id, std::move(result));
  }
}

void HttpRowClient::on_end(net::CallId id) {
  RowResult result = std::move(calls_.at(id).result);
  result.outcome = outcome_of_status(result.status);
  if (!openai::is_valid_json(result.body)) {
    result.body.clear();
    if (result.outcome == Outcome::kAnswered) {
      result.outcome = Outcome::kBroken;
      result.cause = "bad_reply";
      result.message = "the reply is not JSON";
    }
  }
  if (result.outcome != Outcome::kAnswered && result.cause.empty()) {
    result.cause = "http_" + std::to_string(result.status);
    result.message = "the server answered with status " + std::to_string(result.status);
  }
  finish(id, std::move(result));
}

void HttpRowClient::on_error(net::CallId id, const Error& error) {
  RowResult result = std::move(calls_.at(id).result);
  const bool reached = client_->reached();
  result.outcome = error.code == ErrorCode::kTimeout && reached ? Outcome::kBroken
                   : reached                                    ? Outcome::kLost
                                                                : Outcome::kUnreachable;
  result.cause = error.code == ErrorCode::kTimeout ? "timeout" : "connection";
  result.message = error.message;
  result.status = 0;
  result.body.clear();
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
