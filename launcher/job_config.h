// JobConfig: a whole job file. Composes the folders' own structs, finds the model, and checks the
// rules that span sections. Value.
#pragma once

#include <cstdint>
#include <string>

#include "common/config_reader.h"
#include "common/result.h"
#include "common/time.h"
#include "decode/decode_config.h"
#include "engine/engine_config.h"
#include "kvtransfer/kvtransfer_config.h"
#include "launcher/restart_policy.h"
#include "net/message.h"
#include "prefill/prefill_config.h"
#include "router/router_config.h"

namespace pdjob::launcher {

enum class Mode { kServe };

struct LauncherConfig {
  std::string admin = "127.0.0.1:0";
  Duration start_timeout = std::chrono::minutes(5);
  Duration stop_timeout = std::chrono::seconds(30);
  Duration heartbeat_timeout = std::chrono::seconds(3);
  Duration hang_timeout = std::chrono::seconds(15);
  RestartConfig restart;
  std::string state_dir;  // Absolute.
  std::string log_dir;    // Empty: `logs` in the job's folder in state_dir.
};

struct JobConfig {
  std::string name;
  Mode mode = Mode::kServe;
  std::string model;  // As written.
  std::string served_name;
  uint32_t prefill_workers =
      1;  // 0: not disaggregated, decode workers compute their prompts themselves.
  uint32_t decode_workers = 1;
  engine::EngineConfig prefill_engine;  // The common `engine:` keys, overridden by the role's own.
  engine::EngineConfig decode_engine;
  prefill::PrefillConfig prefill;
  decode::DecodeConfig decode;
  kvtransfer::KvTransferConfig kvtransfer;
  router::RouterConfig router;
  LauncherConfig launcher;

  // What the processes are told verbatim; they read their own sections.
  std::string text;
  std::string source;  // The file, as errors call it.

  bool disaggregated() const { return prefill_workers > 0; }
};

// Of a worker that a signal of its own ends: the KV of the last prompts that a prefill worker has
// finished by then is kept for its lease.
Duration drain_timeout(const JobConfig& config, net::Role role);

// Where models and state are looked for; read from the environment by main.cc only.
struct Places {
  std::string home;        // $HOME
  std::string models;      // $PDJOB_MODELS, may be empty.
  std::string state_home;  // $XDG_STATE_HOME, may be empty.
};
Places places_from_environment();

// kInvalidArgument: the message is the text of all errors, as config_reader.h has it. Looks at the
// file system for the model only.
Result<JobConfig> parse_job_config(const std::string& source, const std::string& text,
                                   const Places& places);
Result<JobConfig> read_job_config(const std::string& path, const Places& places);

// A file's text; kInvalidArgument where it cannot be read. One of more than kConfigBytesMax is cut
// off behind that, which is enough for the parser to refuse it.
Result<std::string> read_config_text(const std::string& path);
// The `router` section.
void read_router(ConfigReader& in, router::RouterConfig& config);

// `~/x` is below home; anything else stays.
std::string expand_home(const std::string& path, const Places& places);
std::string default_state_dir(const Places& places);
// The file of a model as a job file or a flag names it: a path to a .gguf, or a name that `./dev
// model` installed.
Result<std::string> find_model(const std::string& model, const Places& places);

// configs/REFERENCE.md.
std::string config_reference();

}  // namespace pdjob::launcher
