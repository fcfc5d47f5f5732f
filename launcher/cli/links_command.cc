#include "launcher/cli/links_command.h"

#include <cstdio>

#include <poll.h>
#include <unistd.h>

#include "common/exit_code.h"
#include "launcher/cli/ask.h"
#include "launcher/job_folder.h"
#include "launcher/links.h"

namespace pdjob::launcher {
namespace {

constexpr int kWatchMilliseconds = 1000;
constexpr const char* kClearScreen = "\x1b[H\x1b[2J";

Result<std::vector<LinksAnswer>> ask_workers(const std::string& state_dir, const std::string& job) {
  PDJOB_TRY(const LauncherAddress launcher, JobFolder::find(state_dir, job));
  PDJOB_TRY(const net::HttpAddress admin, net::parse_http_address(launcher.admin));
  PDJOB_TRY(const std::string status, ask_all({{admin, ""}}, "/status").front());
  PDJOB_TRY(const std::vector<LinkedWorker> workers, linked_workers(status));
  std::vector<LinksAnswer> answers;
  std::vector<std::string> names;
  for (const LinkedWorker& worker : workers) {
    names.push_back(worker.name);
  }
  PDJOB_TRY(const std::vector<std::string> keys, JobFolder::worker_keys(state_dir, job, names));
  std::vector<AskedProcess> processes;
  std::vector<size_t> asked;
  for (const LinkedWorker& worker : workers) {
    answers.push_back({worker, Error{ErrorCode::kUnavailable, "it does not serve"}});
    const Result<net::HttpAddress> address = net::parse_http_address(worker.url);
    if (worker.serving && address) {
      processes.push_back({*address, keys[answers.size() - 1]});
      asked.push_back(answers.size() - 1);
    }
  }
  std::vector<Result<std::string>> bodies = ask_all(processes, "/pdjob/links");
  for (size_t i = 0; i < asked.size(); ++i) {
    answers[asked[i]].body = std::move(bodies[i]);
  }
  return answers;
}

}  // namespace

int show_links(const std::string& state_dir, const std::string& job, StatusForm form,
               LinksMode mode) {
  const bool over_itself = mode == LinksMode::kWatch && form == StatusForm::kText && isatty(1) == 1;
  for (;;) {
    const auto answers = ask_workers(state_dir, job);
    if (!answers) {
      std::fprintf(stderr, "pdjob: %s\n", answers.error().message.c_str());
      return kExitFailed;
    }
    const std::string text =
        form == StatusForm::kJson ? links_json(job, *answers) : links_text(*answers);
    const bool separated = mode == LinksMode::kWatch && form == StatusForm::kText && !over_itself;
    std::fputs((over_itself ? kClearScreen + text : text + (separated ? "\n" : "")).c_str(),
               stdout);
    if (std::fflush(stdout) != 0 || mode == LinksMode::kOnce) {
      return kExitOk;
    }
    ::poll(nullptr, 0, kWatchMilliseconds);
  }
}

}  // namespace pdjob::launcher
