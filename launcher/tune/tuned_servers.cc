#include "launcher/tune/tuned_servers.h"

#include <utility>
#include <vector>

#include "common/config/config_file.h"
#include "launcher/job_folder.h"
#include "launcher/look/status_command.h"
#include "launcher/look/status_page.h"
#include "launcher/plan/job_config.h"
#include "net/outbound/url.h"

namespace pdjob::launcher {
namespace {

Error wrong(const std::string& what) { return {ErrorCode::kInvalidArgument, what}; }

// The key without the end of its line.
Result<std::string> key_in(const std::string& path) {
  PDJOB_TRY(std::string key, read_config_file(path));
  key.erase(key.find_last_not_of(" \r\n") + 1);
  if (key.empty() || key.find_first_of("\r\n") != std::string::npos) {
    return wrong(path + " must hold one key in one line");
  }
  return key;
}

Result<ProbeTarget> target_of(const std::string& text, std::string key) {
  const std::string url = text.find("://") == std::string::npos ? "http://" + text : text;
  PDJOB_TRY(net::Url parsed, net::parse_url(url));
  if (parsed.https) {
    return wrong(text +
                 ": engines are measured by http, on their own network: TLS would be a part "
                 "of every figure");
  }
  std::string path = parsed.path;
  path.erase(path.find_last_not_of('/') + 1);
  if (path.ends_with("/v1")) {
    path.resize(path.size() - 3);
  }
  return ProbeTarget{.address = parsed.address, .path = path, .key = std::move(key)};
}

// The workers of a job have keys of their own.
Result<ProbedServers> workers_of(const std::string& job, const Places& places) {
  const std::string state_dir = default_state_dir(places);
  PDJOB_TRY(const std::string text, ask_launcher(state_dir, job, "/status"));
  PDJOB_TRY(const StatusPage status, read_status(text));
  const auto first = [&status](const char* role) {
    const ProcessLine* found = nullptr;
    for (const ProcessLine& process : status.processes) {
      found = found == nullptr && process.role == role && process.serving() ? &process : found;
    }
    return found;
  };
  const ProcessLine* const decode = first("decode");
  const ProcessLine* const prompts = first("prefill") != nullptr ? first("prefill") : first("both");
  if (prompts == nullptr) {
    return wrong("job " + job + " has no worker that serves prompts: see `pdjob status " + job +
                 "`");
  }
  const auto target = [&](const ProcessLine& worker) -> Result<ProbeTarget> {
    PDJOB_TRY(const auto keys, JobFolder::worker_keys(state_dir, job, {worker.name}));
    return target_of(worker.url, keys.front());
  };
  ProbedServers servers;
  PDJOB_TRY(servers.prompts, target(*prompts));
  if (decode != nullptr && prompts->role == "prefill") {
    PDJOB_TRY(servers.decode, target(*decode));
  }
  return servers;
}

}  // namespace

Result<ProbedServers> servers_of(const TunedServers& servers, const Places& places) {
  if (is_job_name(servers.measure) && servers.decode.empty() && servers.measure != "localhost") {
    return workers_of(servers.measure, places);
  }
  std::string key = places.api_key;
  if (!servers.key_file.empty()) {
    PDJOB_TRY(key, key_in(servers.key_file));
  }
  ProbedServers made;
  PDJOB_TRY(made.prompts, target_of(servers.measure, key));
  if (!servers.decode.empty()) {
    if (!servers.decode_key_file.empty()) {
      PDJOB_TRY(key, key_in(servers.decode_key_file));
    }
    PDJOB_TRY(made.decode, target_of(servers.decode, key));
  }
  return made;
}

}  // namespace pdjob::launcher
