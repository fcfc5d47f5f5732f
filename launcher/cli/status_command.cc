#include "launcher/cli/status_command.h"

#include <cstdio>

#include "common/exit_code.h"
#include "common/result.h"
#include "launcher/cli/ask.h"
#include "launcher/job_folder.h"

namespace pdjob::launcher {

namespace {

Result<std::string> status(const std::string& state_dir, const std::string& job, StatusForm form) {
  PDJOB_TRY(const LauncherAddress launcher, JobFolder::find(state_dir, job));
  PDJOB_TRY(const net::HttpAddress admin, net::parse_http_address(launcher.admin));
  return ask_all({{admin, ""}}, form == StatusForm::kJson ? "/status" : "/status?as=text").front();
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
