#include "launcher/cli/status_command.h"

#include <cstdio>

#include "common/exit_code.h"
#include "common/result.h"
#include "launcher/cli/ask.h"
#include "launcher/job_folder.h"

namespace pdjob::launcher {

namespace {

Result<std::string> page_of(const std::string& state_dir, const std::string& job,
                            const std::string& page) {
  PDJOB_TRY(const LauncherAddress launcher, JobFolder::find(state_dir, job));
  PDJOB_TRY(const net::HttpAddress admin, net::parse_http_address(launcher.admin));
  return ask_all({{admin, ""}}, page).front();
}

int print(const Result<std::string>& answer) {
  if (!answer) {
    std::fprintf(stderr, "pdjob: %s\n", answer.error().message.c_str());
    return kExitFailed;
  }
  std::fputs(answer->c_str(), stdout);
  return kExitOk;
}

int show(const std::string& state_dir, const std::string& job, const std::string& page,
         StatusForm form) {
  return print(page_of(state_dir, job, form == StatusForm::kJson ? page : page + "?as=text"));
}

}  // namespace

int show_status(const std::string& state_dir, const std::string& job, StatusForm form) {
  return show(state_dir, job, "/status", form);
}

int show_decisions(const std::string& state_dir, const std::string& job) {
  return print(page_of(state_dir, job, "/explain"));
}

int show_nodes(const std::string& state_dir, const std::string& job, StatusForm form) {
  return show(state_dir, job, "/nodes", form);
}

}  // namespace pdjob::launcher
