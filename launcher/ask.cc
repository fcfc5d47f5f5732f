#include "launcher/ask.h"

#include <utility>

#include "common/limits.h"
#include "net/event_loop.h"

namespace pdjob::launcher {
namespace {

constexpr Duration kAnswerTimeout = std::chrono::seconds(5);

}  // namespace

std::vector<Result<std::string>> ask_all(const std::vector<net::HttpAddress>& addresses,
                                         const std::string& target) {
  std::vector<Result<std::string>> answers(addresses.size(), Result<std::string>(Error{}));
  if (addresses.empty()) {
    return answers;
  }
  net::EventLoop loop;
  const auto client = net::HttpClient::create(loop);
  size_t missing = addresses.size();
  for (size_t i = 0; i < addresses.size(); ++i) {
    net::HttpCall call;
    call.to = addresses[i];
    call.method = "GET";
    call.target = target;
    call.connect_timeout = call.head_timeout = call.idle_timeout = kAnswerTimeout;
    net::fetch(loop, *client, std::move(call), limits::kControlMessageBytesMax,
               [&, i](Result<net::HttpReply> reply) {
                 if (!reply) {
                   answers[i] = reply.error().during("asking " + addresses[i].to_string());
                 } else if (reply->status != 200) {
                   answers[i] =
                       Error{ErrorCode::kInternal, addresses[i].to_string() + " answered " +
                                                       std::to_string(reply->status)};
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
