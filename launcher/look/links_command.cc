#include "launcher/look/links_command.h"

#include "launcher/job_folder.h"
#include "launcher/look/ask.h"
#include "launcher/look/status_command.h"

namespace pdjob::launcher {

Result<std::vector<LinksAnswer>> ask_links(const std::string& state_dir, const std::string& job) {
  PDJOB_TRY(const std::string status, ask_launcher(state_dir, job, "/status"));
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

int show_links(const std::string& state_dir, const std::string& job, StatusForm form,
               ShowMode mode) {
  return show_page(form, mode, [&]() -> Result<std::string> {
    PDJOB_TRY(const auto answers, ask_links(state_dir, job));
    return form == StatusForm::kJson ? links_json(job, answers) : links_text(answers);
  });
}

}  // namespace pdjob::launcher
