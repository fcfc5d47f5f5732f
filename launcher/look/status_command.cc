#include "launcher/look/status_command.h"

#include "launcher/job_folder.h"
#include "launcher/look/ask.h"

namespace pdjob::launcher {
namespace {

int show(const std::string& state_dir, const std::string& job, const std::string& page,
         StatusForm form, ShowMode mode) {
  const std::string target = form == StatusForm::kJson ? page : page + "?as=text";
  return show_page(form, mode, [&] { return ask_launcher(state_dir, job, target); });
}

}  // namespace

Result<std::string> ask_launcher(const std::string& state_dir, const std::string& job,
                                 const std::string& page) {
  PDJOB_TRY(const LauncherAddress launcher, JobFolder::find(state_dir, job));
  PDJOB_TRY(const net::HttpAddress admin, net::parse_http_address(launcher.admin));
  return ask_all({{admin, ""}}, page).front();
}

int show_status(const std::string& state_dir, const std::string& job, StatusForm form,
                ShowMode mode) {
  return show(state_dir, job, "/status", form, mode);
}

int show_decisions(const std::string& state_dir, const std::string& job, StatusForm form) {
  const std::string page = form == StatusForm::kJson ? "/explain?as=json" : "/explain";
  return show_page(form, ShowMode::kOnce, [&] { return ask_launcher(state_dir, job, page); });
}

int show_nodes(const std::string& state_dir, const std::string& job, NodesForm form) {
  const std::string page = form == NodesForm::kYaml ? "/nodes?as=yaml" : "/nodes";
  return show(state_dir, job, page,
              form == NodesForm::kText ? StatusForm::kText : StatusForm::kJson, ShowMode::kOnce);
}

int show_rollout(const std::string& state_dir, const std::string& job, StatusForm form) {
  return show(state_dir, job, "/rollout", form, ShowMode::kOnce);
}

}  // namespace pdjob::launcher
