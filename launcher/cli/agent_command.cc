#include "launcher/cli/agent_command.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include <unistd.h>

#include "common/crypto/job_keys.h"
#include "common/exit_code.h"
#include "launcher/agents/agent_keys.h"
#include "launcher/agents/agent_message.h"
#include "launcher/agents/agent_process.h"
#include "launcher/agents/build_version.h"
#include "launcher/plan/gpu_shares.h"
#include "launcher/pool/pool_specs.h"
#include "net/control/process_spec.h"
#include "net/http/http_client.h"

namespace pdjob::launcher {

namespace {

constexpr size_t kLabelBytesMax = 256;
constexpr size_t kNameBytesMax = 63;
constexpr size_t kJoinsMax = 8;

Error wrong(std::string what) { return {ErrorCode::kInvalidArgument, std::move(what)}; }

std::string machine_name() {
  std::array<char, 256> name{};
  const std::string text = gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "node";
  return text.substr(0, text.find('.'));
}

Result<std::string> key_of(const AgentFlags& flags) {
  if (flags.key_file.empty() == (flags.key_fd < 0)) {
    return wrong("give the key by --key-file FILE or by --key-fd N");
  }
  return flags.key_file.empty() ? read_key_line(flags.key_fd) : read_key_file(flags.key_file);
}

Result<AgentOptions> options_of(const AgentFlags& flags, const Places& places) {
  AgentOptions options;
  for (const std::string& each : flags.join) {
    const auto join = net::parse_http_address(each);
    if (!join || join->port == 0) {
      return wrong("--join must be HOST:PORT, got " + (each.empty() ? "nothing" : each));
    }
    options.join.push_back(*join);
  }
  if (options.join.empty() || options.join.size() > kJoinsMax) {
    return wrong(options.join.empty() ? "--join must be HOST:PORT, got nothing"
                                      : "--join: at most " + std::to_string(kJoinsMax));
  }
  PDJOB_TRY(options.key, key_of(flags));
  options.lifeline = flags.key_fd;
  options.lock = flags.lock_fd;
  options.name = flags.name.empty() ? machine_name() : flags.name;
  if (options.name.size() > kNameBytesMax) {
    return wrong("--name must have at most " + std::to_string(kNameBytesMax) + " bytes");
  }
  options.host = flags.host;
  options.cores = flags.cores;
  options.memory_bytes = flags.memory_bytes;
  options.granted = flags.granted ? "granted by Ray" : "";
  options.build = build_version();
  options.log_dir = flags.log_dir.empty()
                        ? default_state_dir(places) + "/agents/" + options.name + "/logs"
                        : flags.log_dir;
  if (flags.labels.size() > kNodeFactsMax) {
    return wrong("--label: at most " + std::to_string(kNodeFactsMax));
  }
  for (const std::string& label : flags.labels) {
    const size_t equal = label.find('=');
    if (equal == 0 || equal == std::string::npos || label.size() > kLabelBytesMax) {
      return wrong("--label must be KEY=VALUE of at most 256 bytes, got " + label);
    }
    options.labels.emplace_back(label.substr(0, equal), label.substr(equal + 1));
  }
  return options;
}

// What runs here sees no other GPU than those of the share.
Status show_gpus(const std::string& gpus) {
  return setenv(kVisibleGpus, gpus.c_str(), 1) == 0
             ? ok()
             : Status(system_error(std::string("cannot set ") + kVisibleGpus));
}

Result<AgentOptions> share_options(int spec_fd, const Places& places) {
  PDJOB_TRY(const net::ProcessSpec spec, net::read_spec(spec_fd));
  close(spec.listen_fd);
  PDJOB_TRY(const ShareSpec share, decode_share_spec(spec.work));
  PDJOB_TRY(const net::HttpAddress join, net::parse_http_address(share.join));
  PDJOB_TRY_STATUS(show_gpus(spec.gpus));
  return AgentOptions{
      .join = {join},
      .key = share.key,
      .name = share.name,
      .host = spec.host,
      .log_dir = default_state_dir(places) + "/agents/" + share.job + "-" + share.name + "/logs",
      .build = build_version(),
      .labels = {share.labels.begin(), share.labels.end()},
      .cores = share.cores,
      .memory_bytes = share.memory_bytes,
      .gpu_parts = share.gpu_parts,
      .granted = "its share of the pool"};
}

int refuse_agent(const Error& error) {
  std::fprintf(stderr, "pdjob agent: %s\n", error.message.c_str());
  return kExitUsage;
}

}  // namespace

int run_agent_by_flags(const AgentFlags& flags, const Places& places) {
  if (!flags.new_key_file.empty()) {
    const Status made = make_key_file(flags.new_key_file);
    return made ? kExitOk : refuse_agent(made.error());
  }
  const auto options = options_of(flags, places);
  return options ? run_agent(*options) : refuse_agent(options.error());
}

int run_pool_agent_by_spec(int spec_fd, const Places& places) {
  const auto options = share_options(spec_fd, places);
  return options ? run_agent(*options) : refuse_agent(options.error());
}

}  // namespace pdjob::launcher
