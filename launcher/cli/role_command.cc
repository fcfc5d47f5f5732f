#include "launcher/cli/role_command.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <utility>

#include <sys/prctl.h>
#include <unistd.h>

#include "batch/api/batch_member.h"
#include "common/crypto/job_keys.h"
#include "common/exit_code.h"
#include "common/files/own_files.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/random.h"
#include "decode/decode_worker.h"
#include "kvtransfer/link/link_keys.h"
#include "launcher/cli/batch_command.h"
#include "launcher/launcher_process.h"
#include "launcher/plan/router_file.h"
#include "launcher/pool/job_shares.h"
#include "launcher/pool/pool_specs.h"
#include "launcher/run/local_agent.h"
#include "launcher/specs/job_specs.h"
#include "net/control/process_spec.h"
#include "net/http/http_client.h"
#include "net/http/own_names.h"
#include "prefill/prefill_worker.h"
#include "router/router_process.h"
#include "store/store_member.h"
#include "worker/foreign/engine_process.h"
#include "worker/worker_process.h"

namespace pdjob::launcher {

namespace {

int refuse(const Error& error) {
  std::fprintf(stderr, "%s%s", error.message.c_str(), error.message.ends_with('\n') ? "" : "\n");
  return kExitUsage;
}

// For ps and ss, which would show "exe". The kernel keeps 15 characters.
void name_process(const std::string& name) { prctl(PR_SET_NAME, ("pdjob:" + name).c_str()); }

int run_worker_as(net::ProcessSpec spec, WorkerSpec work) {
  engine::EngineConfig& engine = work.engine;
  if (spec.threads_fd >= 0 && borrows_threads(engine)) {
    engine.threads_fd = spec.threads_fd;
  } else if (spec.threads_fd >= 0) {
    close(spec.threads_fd);
  }
  const bool foreign = engine.kind == engine::EngineKind::kForeign;
  if (!spec.weights.version.empty() && !foreign) {
    engine.own_weights = true;
    engine.model_path = spec.weights.path.empty() ? engine.model_path : spec.weights.path;
  }
  if (work.store.host.empty()) {
    work.store.host = spec.store_host;
  }
  if (foreign) {
    return worker::run_foreign_worker({.spec = std::move(spec),
                                       .engine = std::move(engine),
                                       .lease = work.kvtransfer.lease,
                                       .drain_timeout = work.drain_timeout,
                                       .start_timeout = work.start_timeout,
                                       .store = std::move(work.store),
                                       .fingerprint = work.fingerprint,
                                       .weights_dir = work.weights_dir});
  }
  if (work.kvtransfer.listen_host.empty() && !spec.control.empty()) {
    work.kvtransfer.listen_host = spec.host;  // One by hand may listen on a name, or everywhere.
  }
  return worker::run_worker({.spec = std::move(spec),
                             .engine = engine,
                             .kv = work.kvtransfer,
                             .drain_timeout = work.drain_timeout,
                             .core_of =
                                 [&work](net::Role role) {
                                   return role == net::Role::kPrefill
                                              ? prefill::core_factory(work.prefill)
                                              : decode::core_factory(decode_config(work, role));
                                 },
                             .changes_role = work.changes_role,
                             .weights_dir = work.weights_dir});
}

// Makes a job file of the flags. The reader requires a name, which is not used here.
Result<JobConfig> config_of(const std::vector<ConfigSetting>& settings, const Places& places) {
  return parse_job_config("flags", "name: standalone\n", places, JobUse::kAsWritten, settings);
}

Result<net::Role> role_of(const std::string& word) {
  const std::map<std::string, net::Role> roles = {
      {"prefill", net::Role::kPrefill}, {"decode", net::Role::kDecode}, {"both", net::Role::kBoth}};
  const auto found = roles.find(word);
  if (found == roles.end()) {
    return Error{ErrorCode::kInvalidArgument,
                 "pdjob: --role must be prefill, decode or both, got " + word};
  }
  return found->second;
}

Status append_workers(net::Role role, const std::vector<std::string>& urls,
                      std::vector<router::StaticWorker>& workers) {
  for (const std::string& url : urls) {
    PDJOB_TRY(router::StaticWorker worker, router::parse_static_worker(role, url));
    workers.push_back(std::move(worker));
  }
  return ok();
}

Result<int> worker_by_spec(int spec_fd, const Places& places) {
  PDJOB_TRY(net::ProcessSpec spec, net::read_spec(spec_fd));
  name_process(spec.name);
  PDJOB_TRY(WorkerSpec work, read_worker_spec(spec.name, spec.work));
  if (!spec.gpus.empty()) {
    work.engine.cuda.device = work.kvtransfer.nccl.cuda.device = 0;  // It sees no other.
  }
  if (const Status found = find_file(work.model, places, work.engine); !found) {
    return Error{found.error().code, "pdjob: model: " + found.error().message};
  }
  log::start(spec.name, log::Level::kInfo);
  return run_worker_as(std::move(spec), std::move(work));
}

Result<int> router_by_spec(int spec_fd) {
  PDJOB_TRY(net::ProcessSpec spec, net::read_spec(spec_fd));
  name_process(spec.name);
  PDJOB_TRY(RouterSpec work, read_router_spec(spec.name, spec.work));
  log::start(spec.name, log::Level::kInfo);
  router::RouterOptions options{.config = std::move(work.router)};
  const router::RolloutConfig& rollout = work.rollout;
  options.config.control = {.on = !spec.control_key.empty(),
                            .same_address = rollout.control == router::ControlPlace::kSameAddress,
                            .listen = rollout.listen,
                            .key = rollout.open ? "" : spec.control_key,
                            .patience = rollout.prepare_timeout + rollout.quiesce_timeout +
                                        rollout.apply_timeout + std::chrono::minutes(1)};
  options.spec = std::move(spec);
  options.config.models = std::move(work.models);
  options.config.batches.body_bytes_max = work.file_bytes_max + limits::kFormBytesMax;
  options.plain = work.plain;
  options.read_work =
      [name = options.spec.name](const std::string& text) -> Result<router::RouterConfig> {
    PDJOB_TRY(RouterSpec changed, read_router_spec(name, text));
    return std::move(changed.router);
  };
  return router::run_router(options);
}

Result<int> batch_by_spec(int spec_fd) {
  PDJOB_TRY(net::ProcessSpec spec, net::read_spec(spec_fd));
  name_process(spec.name);
  PDJOB_TRY(BatchSpec work, read_batch_spec(spec.name, spec.work));
  log::start(spec.name, log::Level::kInfo);
  return batch::run_batch_member({.spec = std::move(spec),
                                  .config = std::move(work.batch_api),
                                  .row_timeout = work.row_timeout,
                                  .drain_timeout = work.drain_timeout});
}

// It is started and watched as an engine of another make.
int run_store_program(net::ProcessSpec spec, const StoreSpec& work) {
  const bool is_master = spec.name == store::kMaster;
  engine::StoreUse use = store::use_of(work.kv_store, is_master ? spec.host : spec.store_host);
  if (engine::serves_own_machine(use.kind)) {
    spec.host = use.host;
  }
  engine::EngineConfig program;
  program.kind = engine::EngineKind::kForeign;
  program.foreign = store::program_of(work.kv_store, is_master);
  return worker::run_foreign_worker({.spec = std::move(spec),
                                     .engine = std::move(program),
                                     .drain_timeout = work.drain_timeout,
                                     .store = std::move(use)});
}

Result<int> store_by_spec(int spec_fd) {
  PDJOB_TRY(net::ProcessSpec spec, net::read_spec(spec_fd));
  name_process(spec.name);
  PDJOB_TRY(StoreSpec work, read_store_spec(spec.name, spec.work));
  if (work.kvtransfer.listen_host.empty()) {
    work.kvtransfer.listen_host = spec.host;
  }
  log::start(spec.name, log::Level::kInfo);
  if (work.kv_store.is_foreign()) {
    return run_store_program(std::move(spec), work);
  }
  return store::run_store_member({.spec = std::move(spec),
                                  .config = work.kv_store,
                                  .kv = work.kvtransfer,
                                  .drain_timeout = work.drain_timeout});
}

// Its job file is a copy: the original may be on another machine, or may have changed.
Result<int> pool_launcher_by_spec(int spec_fd, const Places& places) {
  PDJOB_TRY(const net::ProcessSpec spec, net::read_spec(spec_fd));
  close(spec.listen_fd);
  PDJOB_TRY(const LaunchSpec launch, decode_launch_spec(spec.work));
  const std::string folder = default_state_dir(places) + "/pool-jobs/" + launch.job;
  PDJOB_TRY_STATUS(make_own_folder(folder));
  const auto last_key = read_key_file(folder + "/key");
  PDJOB_TRY_STATUS(write_own_text(folder + "/key", launch.key + "\n"));
  PDJOB_TRY_STATUS(write_own_text(folder + "/job.yaml", launch.text));
  Places of_job = places;
  of_job.original = launch.source;
  const std::vector<std::string> settings =
      pool_settings(launch.listen, folder + "/key", launch.nodes);
  PDJOB_TRY(JobConfig config, read_job_config(folder + "/job.yaml", of_job, JobUse::kAsWritten,
                                              settings_of(settings)));
  if (last_key && *last_key != launch.key) {
    // Another run, whose shares have ended. Its agent here may be left, for warm workers.
    LocalAgent::end(config.launcher.state_dir + "/" + batch_job(config).name, Duration{});
  }
  if (config.mode == Mode::kBatch) {
    return run_batch_command({.config = folder + "/job.yaml", .settings = settings}, of_job);
  }
  std::fputs(config.warnings.c_str(), stderr);
  config.launcher.keep = {};  // It ends only if it was cancelled.
  return run_job(config, of_job);
}

// Workers with the same key file belong to one job: the key opens the worker's port, and makes its
// identity on KV links.
Status take_key(const WorkerFlags& flags, net::ProcessSpec& spec) {
  if (!flags.key_file.empty()) {
    PDJOB_TRY(spec.key, read_key_file(flags.key_file));
    const kvtransfer::LinkAuthority authority(RootKey::of(spec.key).derive("kv links"));
    spec.link_keys = encode(authority.issue(spec.engine_id));
    return ok();
  }
  if (!net::is_loopback(spec.host) && !flags.no_key) {
    return Error{ErrorCode::kInvalidArgument,
                 "pdjob worker: others can reach " + spec.host +
                     ", and this worker asks for no key: give it --key-file FILE, or --no-key if "
                     "everybody may use it"};
  }
  return ok();
}

Result<int> worker_by_flags(const WorkerFlags& flags, const Places& places) {
  PDJOB_TRY(const net::Role role, role_of(flags.role));
  PDJOB_TRY(const net::HttpAddress listen, net::parse_http_address(flags.listen));
  std::vector<ConfigSetting> settings = settings_of(flags.settings);
  settings.insert(
      settings.begin(),
      {.text = "model=" + flags.model, .form = ConfigSetting::Form::kText, .flag = "--model"});
  PDJOB_TRY(const JobConfig config, config_of(settings, places));
  net::ProcessSpec spec;
  spec.role = role;
  spec.name = !flags.name.empty()
                  ? flags.name
                  : flags.role + "-" + std::to_string(listen.port != 0 ? listen.port : getpid());
  spec.engine_id = spec.name + "." + std::to_string(entropy());
  spec.host = listen.host;
  spec.port = listen.port;
  PDJOB_TRY_STATUS(take_key(flags, spec));
  log::start(spec.name, log::Level::kInfo);
  if (spec.key.empty()) {
    log::warn("without --key-file, whoever reaches this worker's port may use it");
  }
  WorkerSpec work = worker_spec(config, config.models.front(), role);
  return run_worker_as(std::move(spec), std::move(work));
}

Result<RouterFile> router_of_flags(const RouterFlags& flags, const Places& places) {
  RouterFile file;
  PDJOB_TRY_STATUS(append_workers(net::Role::kPrefill, flags.prefill, file.workers));
  PDJOB_TRY_STATUS(append_workers(net::Role::kDecode, flags.decode, file.workers));
  PDJOB_TRY_STATUS(append_workers(net::Role::kBoth, flags.workers, file.workers));
  if (flags.prefill.empty() != flags.decode.empty()) {
    return Error{ErrorCode::kInvalidArgument, "pdjob router: --prefill and --decode come together"};
  }
  if (file.workers.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "pdjob router: name its workers: --prefill URL --decode URL, or --worker URL; or "
                 "a file that does: --config FILE"};
  }
  std::vector<ConfigSetting> settings = settings_of(flags.settings);
  // A router has no model; the fake engine keeps the reader from looking for one.
  settings.insert(settings.begin(), {{.text = "router.listen=" + flags.listen,
                                      .form = ConfigSetting::Form::kText,
                                      .flag = "--listen"},
                                     {.text = "engine.kind=fake"}});
  PDJOB_TRY(const JobConfig config, config_of(settings, places));
  file.router = config.router;
  return file;
}

Result<int> router_by_flags(const RouterFlags& flags, const Places& places) {
  PDJOB_TRY(RouterFile file,
            flags.config.empty() ? router_of_flags(flags, places) : read_router_file(flags.config));
  router::RouterOptions options{.config = std::move(file.router),
                                .workers = std::move(file.workers)};
  options.plain = std::ranges::none_of(options.workers, [](const router::StaticWorker& worker) {
    return worker.role == net::Role::kPrefill;
  });
  if (!flags.worker_key_file.empty()) {
    PDJOB_TRY(options.worker_key, read_key_file(flags.worker_key_file));
  }
  options.spec.name = "router-" + std::to_string(getpid());
  options.spec.role = net::Role::kRouter;
  log::start(options.spec.name, log::Level::kInfo);
  return router::run_router(options);
}

int code_of(const Result<int>& outcome) { return outcome ? *outcome : refuse(outcome.error()); }

}  // namespace

int run_worker_by_spec(int spec_fd, const Places& places) {
  return code_of(worker_by_spec(spec_fd, places));
}
int run_router_by_spec(int spec_fd) { return code_of(router_by_spec(spec_fd)); }
int run_batch_by_spec(int spec_fd) { return code_of(batch_by_spec(spec_fd)); }
int run_store_by_spec(int spec_fd) { return code_of(store_by_spec(spec_fd)); }
int run_pool_launcher_by_spec(int spec_fd, const Places& places) {
  return code_of(pool_launcher_by_spec(spec_fd, places));
}
int run_worker_by_flags(const WorkerFlags& flags, const Places& places) {
  return code_of(worker_by_flags(flags, places));
}
int run_router_by_flags(const RouterFlags& flags, const Places& places) {
  return code_of(router_by_flags(flags, places));
}

}  // namespace pdjob::launcher
