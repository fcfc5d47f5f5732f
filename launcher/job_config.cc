#include "launcher/job_config.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "common/limits.h"
#include "net/http_client.h"
#include "router/router_recipe.h"

namespace pdjob::launcher {

namespace {

constexpr size_t kJobNameBytesMax = 63;
constexpr size_t kServedNameBytesMax = 256;
constexpr uint32_t kWorkersPerRoleMax = limits::kWorkersMax / 2 - 1;

bool is_job_name(std::string_view name) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  };
  return !name.empty() && name.size() <= kJobNameBytesMax && name.front() != '-' &&
         std::ranges::all_of(name, plain);
}

void read_launcher(ConfigReader& in, LauncherConfig& config) {
  using std::chrono::hours;
  using std::chrono::milliseconds;
  using std::chrono::seconds;
  in.field(
      "admin", config.admin,
      {.doc = "Where status, /metrics and /plan are served; loopback only. Port 0: any free one."});
  in.field(
      "start_timeout", config.start_timeout,
      {.doc = "The job must be ready, and a restarted process must have registered, within it."},
      {seconds(1), hours(24)});
  in.field(
      "stop_timeout", config.stop_timeout,
      {.doc =
           "Requests may finish for this long after SIGTERM or SIGINT; then everything is killed. "
           "A "
           "prefill worker that was started by hand, or ended alone, has kvtransfer.lease on top."},
      {seconds(0), hours(24)});
  in.field("heartbeat_timeout", config.heartbeat_timeout,
           {.doc = "A process that was silent this long gets no new requests."},
           {seconds(1), hours(1)});
  in.field("hang_timeout", config.hang_timeout,
           {.doc = "A process that was silent this long is killed and replaced."},
           {seconds(2), hours(1)});
  in.section(
      "restart", {.doc = "When a process that died is started again."}, [&](ConfigReader& section) {
        RestartConfig& restart = config.restart;
        section.field("backoff_min", restart.backoff_min,
                      {.doc = "The first wait; it doubles with each death in a row."},
                      {milliseconds(10), hours(1)});
        section.field("backoff_max", restart.backoff_max, {.doc = "The longest wait."},
                      {milliseconds(10), hours(1)});
        section.field("healthy_after", restart.healthy_after,
                      {.doc = "A process that lived this long starts counting anew."},
                      {seconds(1), hours(24)});
        section.field(
            "attempts", restart.attempts,
            {.doc = "A process that died this often without ever being ready fails the job."},
            {1, 1000});
      });
  in.field(
      "state_dir", config.state_dir,
      {.doc = "Holds one folder per job. Default: pdjob in $XDG_STATE_HOME or in ~/.local/state."});
  in.field(
      "log_dir", config.log_dir,
      {.doc = "Holds one log file per process. Default: logs in the job's folder in state_dir."});
}

// The reference need not tell the keys of `engine` three times.
enum class Overrides { kRead, kOnlyNamed };

void read_override(ConfigReader& in, Overrides overrides, engine::EngineConfig& config) {
  if (overrides == Overrides::kRead && !in.has("engine")) {
    return;  // What is wrong with the common keys is not reported again for each role.
  }
  in.section("engine", {.doc = "Keys of `engine` that differ here."}, [&](ConfigReader& section) {
    if (overrides == Overrides::kRead) {
      engine::read(section, config);
    }
  });
}

void read_keys(ConfigReader& in, JobConfig& config, Overrides overrides) {
  in.field("name", config.name,
           {.doc = "The job's name: a-z, 0-9, - and _. One job of a name runs at a time."});
  in.field("mode", config.mode, {{"serve", Mode::kServe}},
           {.doc = "What the job does: answer requests until it is stopped."});
  in.field("model", config.model,
           {.doc = "A .gguf file, or the name of a model that `./dev model` installed."});
  in.field("served_name", config.served_name,
           {.doc = "What clients call the model. Default: the file's name without its ending."});

  engine::EngineConfig engine;
  in.section(
      "engine",
      {.doc = "The engine of every worker; each role may override keys in its own `engine`."},
      [&](ConfigReader& section) { engine::read(section, engine); });
  config.prefill_engine = config.decode_engine = engine;
  in.section("prefill", {.doc = "The workers that compute prompts."}, [&](ConfigReader& section) {
    section.field("workers", config.prefill_workers,
                  {.doc = "How many. 0: decode workers compute their prompts themselves."},
                  {0, kWorkersPerRoleMax});
    prefill::read(section, config.prefill);
    read_override(section, overrides, config.prefill_engine);
  });
  in.section("decode", {.doc = "The workers that generate tokens."}, [&](ConfigReader& section) {
    section.field("workers", config.decode_workers, {.doc = "How many."}, {1, kWorkersPerRoleMax});
    decode::read(section, config.decode);
    read_override(section, overrides, config.decode_engine);
  });
  in.section("kvtransfer", {.doc = "How KV moves from prefill to decode workers."},
             [&](ConfigReader& section) { kvtransfer::read(section, config.kvtransfer); });
  in.section("router", {.doc = "The front door."},
             [&](ConfigReader& section) { read_router(section, config.router); });
  in.section("launcher", {.doc = "How processes are started, watched and stopped."},
             [&](ConfigReader& section) {
               read_launcher(section, config.launcher);
               const auto admin = net::parse_http_address(config.launcher.admin);
               if (!admin || (admin->host != "127.0.0.1" && admin->host != "localhost")) {
                 section.fail("admin", "must be 127.0.0.1:PORT, got " + config.launcher.admin +
                                           "; it has no access control");
               }
               if (config.launcher.hang_timeout < config.launcher.heartbeat_timeout) {
                 section.fail("hang_timeout", "must not be below heartbeat_timeout");
               }
               if (config.launcher.restart.backoff_max < config.launcher.restart.backoff_min) {
                 section.fail("restart", "backoff_max must not be below backoff_min");
               }
             });
}

// KV rows can only move between engines of the same kind and KV type; they are not converted. How
// many sequences of how many tokens each end holds is its own affair.
void check_engines(ConfigReader& in, const JobConfig& config) {
  const engine::EngineConfig& p = config.prefill_engine;
  const engine::EngineConfig& d = config.decode_engine;
  if (!config.disaggregated()) {
    return;
  }
  // Told at the role that differs from the common `engine`.
  const auto refuse = [&](const std::string& key, const std::string& values) {
    const std::string decode_key = "decode.engine." + key;
    in.fail(in.has(decode_key) ? decode_key : "prefill.engine." + key,
            "must be the same for prefill and decode, got " + values);
  };
  if (p.kind != d.kind) {
    refuse("kind", "different ones: KV cannot move between different engines");
  }
  if (p.kv_type != d.kv_type) {
    refuse("kv_type", std::string(to_string(p.kv_type)) + " and " + to_string(d.kv_type) +
                          ": KV is not converted on its way");
  }
}

void check_router(ConfigReader& in, const JobConfig& config) {
  if (config.router.kind != router::RouterKind::kCommand) {
    return;
  }
  if (const auto recipe = router::find_recipe(config.router.recipe)) {
    if (const Status fits = router::serves(*recipe, !config.disaggregated()); !fits) {
      in.fail("router.recipe", fits.error().message);
    }
  }
}

// All workers share one machine's ports, and one `kvtransfer` section.
void check_ports(ConfigReader& in, const JobConfig& config) {
  if (config.kvtransfer.listen_port != 0 && config.prefill_workers + config.decode_workers > 1) {
    in.fail("kvtransfer",
            "listen_port must be 0 where there is more than one worker: they cannot share a port");
  }
}

void check_names(ConfigReader& in, const JobConfig& config) {
  if (!is_job_name(config.name)) {
    in.fail("name",
            config.name.empty()
                ? "is missing: give the job a name"
                : "must be 1..63 of a-z, 0-9, - and _, and not begin with -; got " + config.name);
  }
  if (config.served_name.size() > kServedNameBytesMax) {
    in.fail("served_name", "must have at most 256 bytes");
  }
}

void resolve_model(ConfigReader& in, const Places& places, JobConfig& config) {
  if (config.prefill_engine.kind == engine::EngineKind::kFake &&
      config.decode_engine.kind == engine::EngineKind::kFake) {
    config.served_name = config.served_name.empty() ? (config.model.empty() ? "fake" : config.model)
                                                    : config.served_name;
  } else {
    const Result<std::string> path = find_model(config.model, places);
    if (!path) {
      in.fail("model", path.error().message);
      return;
    }
    config.prefill_engine.model_path = config.decode_engine.model_path = *path;
    if (config.served_name.empty()) {
      config.served_name = std::filesystem::path(*path).stem().string();
    }
  }
  config.prefill_engine.served_name = config.decode_engine.served_name = config.served_name;
}

bool is_gguf(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

}  // namespace

void read_router(ConfigReader& in, router::RouterConfig& config) {
  router::read(in, config);
  if (!net::parse_http_address(config.listen)) {
    in.fail("listen", "must be HOST:PORT, got " + config.listen);
  }
}

Duration drain_timeout(const JobConfig& config, net::Role role) {
  return config.launcher.stop_timeout +
         (role == net::Role::kPrefill ? config.kvtransfer.lease : Duration(0));
}

Places places_from_environment() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  return {.home = variable("HOME"),
          .models = variable("PDJOB_MODELS"),
          .state_home = variable("XDG_STATE_HOME")};
}

std::string expand_home(const std::string& path, const Places& places) {
  return path == "~" || path.starts_with("~/") ? places.home + path.substr(1) : path;
}

std::string default_state_dir(const Places& places) {
  return (places.state_home.empty() ? places.home + "/.local/state" : places.state_home) + "/pdjob";
}

Result<std::string> find_model(const std::string& model, const Places& places) {
  if (model.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "is missing: name a .gguf file or a model that `./dev model` installed"};
  }
  const bool is_path = model.ends_with(".gguf") || model.find('/') != std::string::npos;
  std::vector<std::filesystem::path> candidates;
  if (is_path) {
    candidates.emplace_back(expand_home(model, places));
  } else {
    if (!places.models.empty()) {
      candidates.emplace_back(places.models + "/" + model + ".gguf");
    }
    candidates.emplace_back(places.home + "/.cache/pdjob/models/" + model + ".gguf");
  }
  std::string tried;
  for (const auto& candidate : candidates) {
    if (is_gguf(candidate)) {
      return std::filesystem::absolute(candidate).string();
    }
    tried += (tried.empty() ? "" : " nor ") + candidate.string();
  }
  const std::string advice = is_path ? "" : "; `./dev model` installs the default one";
  return Error{ErrorCode::kInvalidArgument, "not found: no file " + tried + advice};
}

Result<JobConfig> parse_job_config(const std::string& source, const std::string& text,
                                   const Places& places) {
  JobConfig config;
  config.text = text;
  config.source = source;
  config.launcher.state_dir = default_state_dir(places);
  ConfigReader in = ConfigReader::parse(source, text);
  read_keys(in, config, Overrides::kRead);
  check_names(in, config);
  check_engines(in, config);
  check_ports(in, config);
  check_router(in, config);
  resolve_model(in, places, config);
  if (const std::string errors = in.finish(); !errors.empty()) {
    return Error{ErrorCode::kInvalidArgument, errors};
  }
  LauncherConfig& launcher = config.launcher;
  launcher.state_dir = std::filesystem::absolute(expand_home(launcher.state_dir, places)).string();
  launcher.log_dir =
      launcher.log_dir.empty()
          ? launcher.state_dir + "/" + config.name + "/logs"
          : std::filesystem::absolute(expand_home(launcher.log_dir, places)).string();
  return config;
}

Result<std::string> read_config_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(limits::kConfigBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) {
    return Error{ErrorCode::kInvalidArgument, path + ": cannot be read\n"};
  }
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

Result<JobConfig> read_job_config(const std::string& path, const Places& places) {
  PDJOB_TRY(const std::string text, read_config_text(path));
  return parse_job_config(path, text, places);
}

std::string config_reference() {
  ConfigReader in = ConfigReader::describe();
  JobConfig config;
  read_keys(in, config, Overrides::kOnlyNamed);
  return "# Job file reference\n\n"
         "Every key of a job file. Generated by `pdjob reference` from the declarations in the "
         "code; a test keeps it current.\n\n" +
         in.reference();
}

}  // namespace pdjob::launcher
