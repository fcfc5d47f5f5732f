#include "launcher/capacity/probe_client.h"

#include <algorithm>
#include <utility>

#include "common/crypto/job_keys.h"
#include "common/parse_number.h"
#include "openai/headers.h"

namespace pdjob::launcher {
namespace {

constexpr size_t kBodyBytesMax = size_t{4} << 20;
constexpr Duration kGetTimeout = std::chrono::seconds(10);

bool is_success(int status) { return status >= 200 && status < 300; }

Error stopped() { return {ErrorCode::kCancelled, "stopped"}; }

}  // namespace

ProbeClient::ProbeClient(net::EventLoop& loop)
    : loop_(loop), client_(net::HttpClient::create(loop)) {}

ProbeClient::~ProbeClient() { cancel_all(); }

Result<std::vector<ProbeReply>> ProbeClient::ask(std::vector<ProbeAsk> asks, Instant deadline) {
  if (stopped_) {
    return stopped();
  }
  asks_ = std::move(asks);
  replies_.assign(asks_.size(), {});
  failure_.reset();
  late_left_ = static_cast<size_t>(std::ranges::count(asks_, true, &ProbeAsk::late));
  for (size_t i = 0; i < asks_.size(); ++i) {
    if (!asks_[i].late) {
      start(i);
    }
  }
  const net::TimerId timer = loop_.call_at(deadline, [this] {
    fail({ErrorCode::kTimeout, "the server did not finish a measurement in time"});
  });
  loop_.run();
  loop_.cancel(timer);
  cancel_all();
  if (failure_) {
    return *failure_;
  }
  return std::move(replies_);
}

Result<net::HttpReply> ProbeClient::get(const ProbeTarget& from, const std::string& route) {
  if (stopped_) {
    return stopped();
  }
  const std::string lines = authorization_line(from.key);
  const std::string target = from.path + route;
  net::HttpCall call;
  call.to = from.address;
  call.method = "GET";
  call.target = target;
  call.header_lines = lines;
  call.head_timeout = call.idle_timeout = kGetTimeout;
  failure_.reset();
  std::optional<Result<net::HttpReply>> answer;
  net::fetch(loop_, *client_, std::move(call), kBodyBytesMax, [&](Result<net::HttpReply> reply) {
    answer = std::move(reply);
    loop_.stop();
  });
  while (!answer && !failure_) {
    loop_.run();
  }
  return answer ? std::move(*answer) : Result<net::HttpReply>(stopped());
}

void ProbeClient::stop() {
  stopped_ = true;
  fail(stopped());
}

void ProbeClient::start(size_t at) {
  const ProbeAsk& ask = asks_[at];
  const std::string lines = authorization_line(ask.to.key) + "Content-Type: application/json\r\n";
  const std::string target = ask.to.path + "/v1/completions";
  net::HttpCall call;
  call.to = ask.to.address;
  call.target = target;
  call.header_lines = lines;
  call.body = body_of(ask.request);
  replies_[at].sent = loop_.exact_now();
  const net::CallId id = client_->start(std::move(call), *this);
  Call& made = calls_[id];
  made.at = at;
  made.stream = ask.request.stream;
}

void ProbeClient::start_late() {
  const auto has_output = [this](size_t i) {
    return asks_[i].late || !replies_[i].tokens.empty() || !replies_[i].refusal.empty();
  };
  for (size_t i = 0; i < asks_.size(); ++i) {
    if (!has_output(i)) {
      return;
    }
  }
  late_left_ = 0;
  for (size_t i = 0; i < asks_.size(); ++i) {
    if (asks_[i].late) {
      start(i);
    }
  }
}

void ProbeClient::on_head(net::CallId id, const net::HttpReplyHead& head) {
  Call& call = calls_.at(id);
  replies_[call.at].status = head.status;
  call.chunked = head.framing == net::BodyFraming::kChunked;
  call.stream = call.stream && is_success(head.status);
  replies_[call.at].kv_seconds =
      parse_number<double>(head.header(openai::header::kKvSeconds)).value_or(0);
}

void ProbeClient::on_body(net::CallId id, std::string_view raw) {
  const Instant now = loop_.exact_now();
  Call& call = calls_.at(id);
  ProbeReply& reply = replies_[call.at];
  std::string decoded;
  if (call.chunked) {
    call.chunks.decode(raw, decoded);
    raw = decoded;
  }
  if (!call.stream) {
    call.body.append(raw.substr(0, kBodyBytesMax - std::min(call.body.size(), kBodyBytesMax)));
    return;
  }
  const ProbeEvents::Seen seen = call.events.add(raw);
  reply.tokens.insert(reply.tokens.end(), seen.tokens, now);
  if (!seen.error.empty()) {
    client_->cancel(id);
    reply.refusal = seen.error;
    end(id);
  } else if (seen.tokens > 0 && late_left_ > 0) {
    start_late();
  }
}

void ProbeClient::on_end(net::CallId id) {
  Call& call = calls_.at(id);
  ProbeReply& reply = replies_[call.at];
  reply.usage = call.stream ? call.events.usage() : usage_of_reply(call.body);
  if (!is_success(reply.status)) {
    reply.refusal = refusal_text(reply.status, call.body);
  }
  reply.body = std::move(call.body);
  end(id);
}

void ProbeClient::on_error(net::CallId id, const Error& error) {
  ProbeReply& reply = replies_[calls_.at(id).at];
  if (reply.status == 0 && !client_->reached()) {
    calls_.erase(id);
    fail(error);
    return;
  }
  reply.refusal = error.message;
  end(id);
}

void ProbeClient::end(net::CallId id) {
  calls_.erase(id);
  if (late_left_ > 0) {
    start_late();
  }
  if (calls_.empty()) {
    loop_.stop();
  }
}

void ProbeClient::fail(Error error) {
  if (!failure_) {
    failure_ = std::move(error);
  }
  loop_.stop();
}

void ProbeClient::cancel_all() {
  for (const auto& [id, call] : std::exchange(calls_, {})) {
    client_->cancel(id);
  }
}

}  // namespace pdjob::launcher
