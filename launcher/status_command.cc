#include "launcher/status_command.h"

#include <cstdio>
#include <utility>

#include "common/exit_code.h"
#include "common/limits.h"
#include "common/result.h"
#include "launcher/job_folder.h"
#include "net/event_loop.h"
#include "net/http_client.h"

namespace pdjob::launcher {

namespace {

constexpr Duration kAnswerTimeout = std::chrono::seconds(5);

Result<std::string> ask(const net::HttpAddress& admin, const char* target) {
  net::EventLoop loop;
  const auto client = net::HttpClient::create(loop);
  net::HttpCall call;
  call.to = admin;
  call.method = "GET";
  call.target = target;
  call.head_timeout = call.idle_timeout = kAnswerTimeout;
  Result<std::string> answer = Error{};
  net::fetch(loop, *client, std::move(call), limits::kControlMessageBytesMax,
             [&](Result<net::HttpReply> reply) {
               if (!reply) {
                 answer = reply.error().during("asking the launcher at " + admin.to_string());
               } else if (reply->status != 200) {
                 answer = Error{ErrorCode::kInternal,
                                "the launcher answered " + std::to_string(reply->status)};
               } else {
                 answer = std::move(reply->body);
               }
               loop.stop();
             });
  loop.run();
  return answer;
}

Result<std::string> status(const std::string& state_dir, const std::string& job, StatusForm form) {
  PDJOB_TRY(const LauncherAddress launcher, JobFolder::find(state_dir, job));
  PDJOB_TRY(const net::HttpAddress admin, net::parse_http_address(launcher.admin));
  return ask(admin, form == StatusForm::kJson ? "/status" : "/status?as=text");
}

}  // namespace

int show_status(const std::string& state_dir, const std::string& job, StatusForm form) {
  const Result<std::string> answer = status(state_dir, job, form);
  if (!answer) {
    std::fprintf(stderr, "pdjob: %s\n", answer.error().message.c_str());
    return kExitFailed;
  }
  std::fputs(answer->c_str(), stdout);
  return kExitOk;
}

}  // namespace pdjob::launcher
