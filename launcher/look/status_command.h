// `pdjob status`, `pdjob nodes`, `pdjob rollout` and `pdjob explain`: find a running launcher by
// its job's name and ask it.
#pragma once

#include <string>

#include "common/result.h"
#include "launcher/look/show_page.h"

namespace pdjob::launcher {

// Returns a page of the job's launcher. kNotFound: the job is not running.
Result<std::string> ask_launcher(const std::string& state_dir, const std::string& job,
                                 const std::string& page);

// Return the exit code (common/exit_code.h); kExitFailed if the job is not running.
int show_status(const std::string& state_dir, const std::string& job, StatusForm form,
                ShowMode mode);
enum class NodesForm { kText, kJson, kYaml };
int show_nodes(const std::string& state_dir, const std::string& job, NodesForm form);
// Of a job of mode rollout.
int show_rollout(const std::string& state_dir, const std::string& job, StatusForm form);

int show_decisions(const std::string& state_dir, const std::string& job, StatusForm form);

}  // namespace pdjob::launcher
