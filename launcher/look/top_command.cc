#include "launcher/look/top_command.h"

#include <vector>

#include "common/os/real_clock.h"
#include "launcher/job_folder.h"
#include "launcher/look/links_command.h"
#include "launcher/look/status_command.h"
#include "launcher/look/top.h"

namespace pdjob::launcher {
namespace {

constexpr size_t kPairsShownMax = 16;

Result<StatusPage> status_of(const std::string& state_dir, const std::string& job) {
  PDJOB_TRY(const std::string text, ask_launcher(state_dir, job, "/status"));
  return read_status(text);
}

}  // namespace

int show_top(const std::string& state_dir, const std::string& job) {
  Top top;
  return show_page(StatusForm::kText, ShowMode::kWatch, [&]() -> Result<std::string> {
    PDJOB_TRY(const StatusPage status, status_of(state_dir, job));
    const auto links = ask_links(state_dir, job);  // A job that starts has no workers to ask.
    return top.look(status, real_now()) + "\n" +
           (links ? links_brief(*links, kPairsShownMax)
                  : "no KV links: " + links.error().message + "\n");
  });
}

int show_jobs(const std::string& state_dir, StatusForm form) {
  std::vector<StatusPage> jobs;
  for (const std::string& name : JobFolder::running(state_dir)) {
    Result<StatusPage> status = status_of(state_dir, name);
    jobs.push_back(status ? *std::move(status)
                          : StatusPage{.job = name, .state = "its launcher does not answer"});
  }
  return show_page(form, ShowMode::kOnce, [&]() -> Result<std::string> {
    return form == StatusForm::kJson ? jobs_json(jobs) : jobs_text(jobs);
  });
}

}  // namespace pdjob::launcher
