#include "launcher/look/ask.h"

#include <string_view>
#include <utility>

#include "common/config/config_text.h"
#include "common/crypto/job_keys.h"
#include "common/limits.h"
#include "net/loop/event_loop.h"

namespace pdjob::launcher {
namespace {

// What a process says when it refuses: its reason, or else the status.
Error refusal_of(const AskedProcess& process, const net::HttpReply& reply) {
  constexpr size_t kReasonBytesMax = 1000;
  const std::string reason =
      printable(std::string_view(reply.body).substr(0, reply.body.find('\n')), kReasonBytesMax);
  return {ErrorCode::kInternal,
          reason.empty() ? process.address.to_string() + " answered " + std::to_string(reply.status)
                         : reason};
}

constexpr Duration kAnswerTimeout = std::chrono::seconds(5);

net::HttpCall call_of(const AskedProcess& process, const Order& order,
                      const std::string& key_line) {
  net::HttpCall call;
  call.to = process.address;
  call.header_lines = key_line;
  call.method = order.method;
  call.target = order.target;
  call.body = order.body;
  call.connect_timeout = call.head_timeout = call.idle_timeout = kAnswerTimeout;
  return call;
}

}  // namespace

Result<net::HttpReply> send_order(const AskedProcess& process, const Order& order) {
  net::EventLoop loop;
  const auto client = net::HttpClient::create(loop);
  Result<net::HttpReply> answer{Error{}};
  const std::string key_line = authorization_line(process.key);
  net::fetch(loop, *client, call_of(process, order, key_line), limits::kControlMessageBytesMax,
             [&](Result<net::HttpReply> reply) {
               answer = std::move(reply);
               loop.stop();
             });
  loop.run();
  return answer ? std::move(answer)
                : answer.error().during("asking " + process.address.to_string());
}

std::vector<Result<std::string>> ask_all(const std::vector<AskedProcess>& processes,
                                         const std::string& target) {
  std::vector<Result<std::string>> answers(processes.size(), Result<std::string>(Error{}));
  if (processes.empty()) {
    return answers;
  }
  net::EventLoop loop;
  const auto client = net::HttpClient::create(loop);
  size_t missing = processes.size();
  for (size_t i = 0; i < processes.size(); ++i) {
    const std::string key_line = authorization_line(processes[i].key);
    net::fetch(loop, *client, call_of(processes[i], {.target = target}, key_line),
               limits::kControlMessageBytesMax, [&, i](Result<net::HttpReply> reply) {
                 if (!reply) {
                   answers[i] = reply.error().during("asking " + processes[i].address.to_string());
                 } else if (reply->status != 200) {
                   answers[i] = refusal_of(processes[i], *reply);
                 } else {
                   answers[i] = std::move(reply->body);
                 }
                 if (--missing == 0) {
                   loop.stop();
                 }
               });
  }
  loop.run();
  return answers;
}

}  // namespace pdjob::launcher
