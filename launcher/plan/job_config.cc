#include "launcher/plan/job_config.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>
#include <utility>

#include "common/config/config_file.h"
#include "common/crypto/job_keys.h"
#include "launcher/placement/node.h"
#include "launcher/plan/vllm_job.h"
#include "net/http/http_client.h"
#include "net/loop/socket.h"
#include "router/recipes/router_recipe.h"

namespace pdjob::launcher {

namespace {

void read_name(ConfigReader& in, std::string& name) {
  in.field("name", name,
           {.doc = "The job's name: a-z, 0-9, - and _. One job of a name runs at a time."});
}

void check_control_host(ConfigReader& in, JobConfig& config) {
  std::string& host = config.launcher.control_host;
  host = host.empty() ? address_for_nodes(config.clusters) : host;
  if (host.empty()) {
    in.fail("launcher.control_host",
            "is missing: the cluster's `listen` is no single address at which nodes could reach "
            "the launcher");
  } else if (!net::resolve(host, 0, net::HostForm::kNumeric) || host == "0.0.0.0" || host == "::") {
    in.fail("launcher.control_host",
            "must be one address of this machine, such as 10.0.0.1, got " + host);
  }
}

void read_keys(ConfigReader& in, JobConfig& config, Overrides overrides) {
  read_name(in, config.name);
  read(in, config.mode);
  read_models(in, overrides, config.models);
  in.section("kvtransfer", {.doc = "How KV moves from prefill to decode workers."},
             [&](ConfigReader& section) { kvtransfer::read(section, config.kvtransfer); });
  in.section("kv_store",
             {.doc = "Processes that keep the KV of prompts, one on each node with workers of "
                     "pdjob's own engine."},
             [&](ConfigReader& section) { store::read(section, config.kv_store); });
  in.section("gpu", {.doc = "The GPU of each worker that uses one."}, [&](ConfigReader& section) {
    GpuConfig gpu;
    read(section, gpu);
    config.set_gpu(gpu);
  });
  in.section("router", {.doc = "The front door."},
             [&](ConfigReader& section) { read_router(section, config.router); });
  in.section("batch_api",
             {.doc = "OpenAI's Batch API on the routers (docs/how-to/batch-api.md): /v1/files and "
                     "/v1/batches."},
             [&](ConfigReader& section) { batch::read(section, config.batch_api); });
  in.section("scaling",
             {.doc = "How many workers the job may have, where `prefill.scaling` or "
                     "`decode.scaling` lets it change their number."},
             [&](ConfigReader& section) { read(section, config.scaling); });
  in.section("rollout",
             {.doc = "With `mode: rollout`: weights that a trainer changes while the job runs "
                     "(docs/how-to/rollouts.md)."},
             [&](ConfigReader& section) { router::read(section, config.rollout); });
  read_clusters(in, config.clusters);
  const bool has_batch = in.has("batch");
  in.section("batch",
             {.doc = "The rows that a batch answers: with `mode: batch`, or by `pdjob batch "
                     "--config FILE`, whose flags win over these keys. Its job is called "
                     "NAME-batch, and its router listens on a free port of this machine."},
             [&](ConfigReader& section) {
               batch::read(section, config.batch);
               if (config.mode == Mode::kBatch && has_batch) {
                 batch::check_complete(section, config.batch);
               }
             });
  in.section("launcher", {.doc = "How processes are started, watched and stopped."},
             [&](ConfigReader& section) { read(section, config.launcher); });
  check_control_host(in, config);
}

// Only where the launcher and its routers run, the files are there.
void check_tls(ConfigReader& in, const Places& places, const net::CertificateFiles& tls,
               const std::string& section) {
  if (!places.models_here || tls.certificate.empty() || tls.key.empty()) {
    return;
  }
  const auto fault = net::check_certificate(
      {.certificate = expand_home(tls.certificate, places), .key = expand_home(tls.key, places)});
  if (fault) {
    const bool of_key = fault->file == net::CertificateFault::File::kKey;
    const std::string key = section + (of_key ? ".key" : ".certificate");
    places.models_elsewhere ? in.warn(key, fault->why) : in.fail(key, fault->why);
  }
}

bool speaks_sglang(const engine::EngineConfig& engine) {
  return engine.kind == engine::EngineKind::kForeign &&
         engine::recipe_of(engine.foreign).protocol == "sglang";
}

void check_router(ConfigReader& in, const JobConfig& config) {
  if (std::ranges::any_of(config.models, [](const ModelConfig& model) {
        return model.disaggregated() && speaks_sglang(model.decode_engine);
      })) {
    router::require_prefill_workers(in, config.router, "router.");
  }
  if (config.router.kind != router::RouterKind::kCommand) {
    return;
  }
  if (config.batch_api.on()) {
    in.fail("batch_api", "is of pdjob's own router, and router.type is command");
  }
  if (config.models.size() > 1) {
    in.fail("router.type", "a router of another make serves one model, and here are " +
                               std::to_string(config.models.size()));
    return;
  }
  if (const auto recipe = router::find_recipe(config.router.recipe)) {
    const bool plain = !config.models.front().disaggregated();
    if (const Status fits = router::serves(*recipe, plain); !fits) {
      in.fail("router.recipe", fits.error().message);
    }
  }
}

// All workers share the ports of one machine, and one `kvtransfer` section.
void check_workers(ConfigReader& in, const JobConfig& config) {
  constexpr size_t kWorkersOfJobMax = size_t{2} * kWorkersPerRoleMax;
  size_t workers = 0;
  for (const ModelConfig& model : config.models) {
    workers += model.prefill_workers + model.decode_workers;
  }
  if (workers > kWorkersOfJobMax) {
    in.fail("models", "must have at most " + std::to_string(kWorkersOfJobMax) +
                          " workers together, got " + std::to_string(workers));
  }
  if (config.kvtransfer.listen_port != 0 && workers > 1) {
    in.fail("kvtransfer",
            "listen_port must be 0 where there is more than one worker: they cannot share a port");
  } else if (config.kvtransfer.listen_port != 0 && config.kv_store.on() &&
             !config.kv_store.is_foreign()) {
    in.fail(
        "kvtransfer",
        "listen_port must be 0 where there is a kv_store: it cannot share a port with a worker");
  }
}

void check_store(ConfigReader& in, const JobConfig& config) {
  if (!config.kv_store.on()) {
    return;
  }
  const bool foreign = config.kv_store.is_foreign();
  if (std::ranges::none_of(config.models, [&](const ModelConfig& model) {
        return uses_store(config, model, net::Role::kDecode) ||
               (model.disaggregated() && uses_store(config, model, net::Role::kPrefill));
      })) {
    in.fail("kv_store", foreign ? "no engine of this job has a recipe that says how it uses " +
                                      store::kind_word(config.kv_store.kind) + " (`kv_stores`)"
                                : "stores serve pdjob's own engine, and all engines of this job "
                                  "are of another make: for those, set `kind`");
  }
  if (config.kv_store.kind == store::StoreKind::kLmcache &&
      std::ranges::any_of(config.models, [](const ModelConfig& model) {
        return std::max(model.prefill_engine.foreign.nodes, model.decode_engine.foreign.nodes) > 1;
      })) {
    in.fail("kv_store",
            "of kind lmcache serves engines of one node, and one here spans several: "
            "take mooncake");
  }
  if (config.mode == Mode::kRollout) {
    in.fail("kv_store", "keeps the KV of one set of weights: mode rollout does without it");
  }
  if (config.router.kind == router::RouterKind::kCommand && !foreign) {
    in.fail("kv_store", "is of pdjob's own router, and router.type is command");
  }
}

// The first cluster of the group that the job does not have; empty: it has all.
std::string unknown_cluster(const GroupConfig& group, const std::vector<std::string>& known) {
  const auto found = std::ranges::find_if(group.clusters, [&](const std::string& name) {
    return std::ranges::find(known, name) == known.end();
  });
  return found == group.clusters.end() ? "" : *found;
}

// Groups name clusters of the job. An error stands where the name was written: at a model, or at
// the keys of all models.
void check_groups(ConfigReader& in, const JobConfig& config) {
  std::vector<std::string> known;
  for (const ClusterConfig& cluster : config.clusters) {
    known.push_back(cluster.name);
  }
  if (known.empty()) {
    known.push_back(Node{}.cluster);
  }
  std::string names;
  for (const std::string& name : known) {
    names += (names.empty() ? "" : ", ") + name;
  }
  const auto refuse = [&](const std::string& key, const std::string& name) {
    in.fail(key, "no cluster is called " + name + ": the job has " + names);
  };
  std::map<std::string, std::string> of_all;  // Key of all models -> unknown name.
  const auto check_model = [&](const ModelConfig& model, bool below) {
    for (const auto& [key, group] : {std::pair("prefill.cluster", &model.prefill_group),
                                     std::pair("decode.cluster", &model.decode_group)}) {
      const std::string unknown = unknown_cluster(*group, known);
      if (unknown.empty()) {
        continue;
      }
      if (below && in.has(key)) {
        refuse(key, unknown);
      } else {
        of_all[key] = unknown;
      }
    }
  };
  if (in.has("models")) {
    auto model = config.models.begin();
    in.named_sections("models", {.doc = "The models."},
                      [&](const std::string&, ConfigReader&) { check_model(*model++, true); });
  } else {
    check_model(config.models.front(), false);
  }
  for (const auto& [key, name] : of_all) {
    refuse(key, name);
  }
}

void check_batch(ConfigReader& in, const JobConfig& config, JobUse use) {
  if (config.mode == Mode::kBatch && !in.has("batch")) {
    in.fail("mode",
            "batch needs the section `batch`: it names the input, `in`, and the folder for "
            "results, `out`");
  }
  if ((config.mode == Mode::kBatch || use == JobUse::kForBatch) &&
      !config.router.async.file.empty()) {
    in.fail("router.async.file",
            "can belong to one job only, and a batch starts a job of its own: give it a copy of "
            "this file without the key");
  }
}

void check_rollout_engine(ConfigReader& in, const engine::EngineConfig& engine) {
  if (engine.kind != engine::EngineKind::kForeign) {
    return;
  }
  const engine::EngineRecipe recipe = engine::recipe_of(engine.foreign);
  if (!recipe.weights.can_change()) {
    in.fail("mode", "rollout needs to know how " + recipe.name +
                        " takes weights: its recipe has no `weights`");
  }
  if (engine::shape_of(engine.foreign, engine.gpu).nodes > 1) {
    in.fail("mode", "rollout is for engines that are on one node each");
  }
}

void check_rollout(ConfigReader& in, const JobConfig& config) {
  if (config.mode != Mode::kRollout) {
    return;
  }
  if (config.rollout.weights_dir.empty()) {
    in.fail("rollout.weights_dir", "is missing: mode rollout needs it");
  }
  if (config.models.size() > 1) {
    in.fail("mode", "rollout is for a job of one model");
  }
  const ModelConfig& model = config.models.front();
  check_rollout_engine(in, model.decode_engine);
  if (model.disaggregated()) {
    check_rollout_engine(in, model.prefill_engine);
  }
  if (config.router.kind == router::RouterKind::kCommand) {
    in.fail("mode", "rollout is for pdjob's own router");
  }
  if (config.router.cache.bytes_max > 0) {
    in.fail("router.cache", "would give answers of old weights: mode rollout does without it");
  }
  if (config.router.replicas > 1 && config.rollout.control == router::ControlPlace::kOwnAddress) {
    in.fail("rollout.control",
            "must be same_address with several routers: they cannot share rollout.listen");
  }
  if (config.rollout.open && !config.rollout.key_file.empty()) {
    in.fail("rollout.open", "asks for no key, and rollout.key_file names one");
  }
}

void check_keep(ConfigReader& in, const JobConfig& config) {
  if (config.launcher.keep == Duration::zero()) {
    return;
  }
  if (config.mode == Mode::kRollout) {
    in.fail("launcher.keep",
            "would leave workers with a trainer's weights: mode rollout does without it");
  }
  if (std::ranges::any_of(config.clusters, [](const ClusterConfig& cluster) {
        return cluster.kind == ClusterKind::kRay;
      })) {
    in.fail("launcher.keep", "nodes of kind ray end with their launcher: leave it out");
  }
}

bool all_scale(const ModelConfig& model) {
  return model.decode_group.scaling.on() &&
         (!model.disaggregated() || model.prefill_group.scaling.on());
}

void check_scaling(ConfigReader& in, const JobConfig& config) {
  if (config.scaling.zero_after == Duration::zero()) {
    return;
  }
  if (config.models.size() > 1) {
    in.fail("scaling.zero_after", "is for a job of one model");  // A router counts all requests.
  } else if (!all_scale(config.models.front())) {
    in.fail("scaling.zero_after", "needs `scaling.max` of every group");
  }
  if (config.router.kind == router::RouterKind::kCommand) {
    in.fail("scaling.zero_after",
            "needs pdjob's own router: a router of type command does not report requests that "
            "wait, so no request would start the workers again. Remove router.type, or remove "
            "zero_after to keep at least one worker");
  }
}

void check_name(ConfigReader& in, const std::string& name) {
  if (!is_job_name(name)) {
    in.fail("name", name.empty()
                        ? "is missing: give the job a name"
                        : "must be 1..63 of a-z, 0-9, - and _, and not begin with -; got " + name);
  }
}

}  // namespace

void JobConfig::set_gpu(const GpuConfig& gpu) {
  kvtransfer.nccl.cuda = gpu;
  for (ModelConfig& model : models) {
    model.prefill_engine.cuda = gpu;
    model.decode_engine.cuda = gpu;
  }
}

const ModelConfig* JobConfig::model_called(std::string_view served_name) const {
  const auto found = std::ranges::find(models, served_name, &ModelConfig::served_name);
  return found == models.end() ? nullptr : &*found;
}

std::vector<std::string> JobConfig::served_names() const {
  std::vector<std::string> names;
  for (const ModelConfig& model : models) {
    names.push_back(model.served_name);
  }
  return names;
}

void read(ConfigReader& in, Mode& mode) {
  in.field("mode", mode,
           {{"serve", Mode::kServe}, {"batch", Mode::kBatch}, {"rollout", Mode::kRollout}},
           {.doc = "What the job does. `serve`: answer requests until it is stopped. `batch`: "
                   "answer the rows of `batch`, then end, with the exit code of `pdjob batch`. "
                   "`rollout`: as `serve`, and a trainer changes the weights."});
}

void read_router(ConfigReader& in, router::RouterConfig& config) {
  router::read(in, config);
  if (!net::parse_http_address(config.listen)) {
    in.fail("listen", "must be HOST:PORT, got " + config.listen);
  }
}

std::string usual_logs(const JobConfig& config) {
  return config.launcher.state_dir + "/" + config.name + "/logs";
}

bool uses_store(const JobConfig& config, const ModelConfig& model, net::Role role) {
  const engine::EngineConfig& engine = model.engine_of(role);
  const bool foreign = engine.kind == engine::EngineKind::kForeign;
  if (!config.kv_store.on() || foreign != config.kv_store.is_foreign()) {
    return false;
  }
  return !foreign ||
         engine::recipe_of(engine.foreign).store(store::kind_word(config.kv_store.kind)) != nullptr;
}

Duration drain_timeout(const JobConfig& config, net::Role role) {
  return config.launcher.stop_timeout +
         (role == net::Role::kPrefill ? config.kvtransfer.lease : Duration(0));
}

std::string default_state_dir(const Places& places) {
  return (places.state_home.empty() ? places.home + "/.local/state" : places.state_home) + "/pdjob";
}

namespace {

std::string at_home(const std::string& path, const Places& places) {
  return std::filesystem::absolute(expand_home(path, places)).string();
}

Result<JobConfig> parse_native(const std::string& source, const std::string& text,
                               const Places& places, JobUse use,
                               const std::vector<ConfigSetting>& settings) {
  JobConfig config;
  config.source = source;
  config.launcher.state_dir = default_state_dir(places);
  ConfigReader in = ConfigReader::parse(source, text, settings);
  read_keys(in, config, Overrides::kRead);
  check_name(in, config.name);
  Places models = places;
  models.models_elsewhere = places.models_elsewhere || !config.clusters.empty();
  check_models(in, models, config.models);
  check_groups(in, config);
  check_workers(in, config);
  check_store(in, config);
  check_router(in, config);
  check_engines_and_router(in, config.router, store::kind_word(config.kv_store.kind),
                           config.models);
  check_tls(in, places, config.router.tls, "router.tls");
  check_tls(in, places, config.launcher.admin_tls, "launcher.admin_tls");
  const std::string& key_file = config.launcher.admin_key_file;
  if (places.models_here && !key_file.empty() && !config.launcher.admin_is_local()) {
    if (const auto key = read_key_file(expand_home(key_file, places)); !key) {
      places.models_elsewhere ? in.warn("launcher.admin_key_file", key.error().message)
                              : in.fail("launcher.admin_key_file", key.error().message);
    }
  }
  check_batch(in, config, use);
  check_rollout(in, config);
  check_keep(in, config);
  config.text_of_job = in.text_without("batch");
  check_scaling(in, config);
  if (const std::string errors = in.finish(); !errors.empty()) {
    return Error{ErrorCode::kInvalidArgument, errors};
  }
  config.warnings = in.warnings();
  config.text = settings.empty() ? text : in.merged_text();
  LauncherConfig& launcher = config.launcher;
  launcher.state_dir = at_home(launcher.state_dir, places);
  launcher.log_dir =
      launcher.log_dir.empty() ? usual_logs(config) : at_home(launcher.log_dir, places);
  for (std::string* path :
       {&config.rollout.weights_dir, &config.rollout.key_file, &config.router.tls.certificate,
        &config.router.tls.key, &config.launcher.admin_key_file,
        &config.launcher.admin_tls.certificate, &config.launcher.admin_tls.key}) {
    *path = expand_home(*path, places);
  }
  batch::BatchConfig& batch = config.batch;
  for (std::string* path : {&batch.out, &batch.body_template, &batch.key_file}) {
    *path = expand_home(*path, places);
  }
  for (std::string& input : batch.inputs) {
    input = expand_home(input, places);
  }
  for (auto* stages : {&batch.stages.before, &batch.stages.after}) {
    for (batch::StageConfig& stage : *stages) {
      stage.python = expand_home(stage.python, places);
    }
  }
  return config;
}

}  // namespace

Result<JobConfig> parse_job_config(const std::string& source, const std::string& text,
                                   const Places& places, JobUse use,
                                   const std::vector<ConfigSetting>& settings) {
  if (!is_vllm_job(text)) {
    return parse_native(source, text, places, use, settings);
  }
  PDJOB_TRY(NativeJob native, native_job(source, text));
  PDJOB_TRY(JobConfig config, parse_native(source + " (as `pdjob convert` prints it)", native.yaml,
                                           places, use, settings));
  config.warnings = native.warnings + config.warnings;
  return config;
}

Result<JobConfig> read_job_config(const std::string& path, const Places& places, JobUse use,
                                  const std::vector<ConfigSetting>& settings) {
  PDJOB_TRY(const std::string text, read_config_file(path));
  return parse_job_config(places.original.empty() ? path : places.original, text, places, use,
                          settings);
}

Result<JobPlace> read_job_place(const std::string& path, const Places& places) {
  PDJOB_TRY(std::string text, read_config_file(path));
  if (is_vllm_job(text)) {
    PDJOB_TRY(NativeJob native, native_job(path, text));
    text = std::move(native.yaml);
  }
  JobPlace place{.state_dir = default_state_dir(places)};
  ConfigReader in = ConfigReader::parse(path, text);
  read_name(in, place.name);
  in.section("launcher", {.doc = "The launcher."},
             [&](ConfigReader& section) { read_state_dir(section, place.state_dir); });
  if (!is_job_name(place.name)) {
    return Error{ErrorCode::kInvalidArgument,
                 path + ": name: there is none, or it is no job's name: `pdjob plan` says more\n"};
  }
  place.state_dir = at_home(place.state_dir, places);
  return place;
}

JobConfig batch_job(JobConfig config) {
  const std::string usual = usual_logs(config);
  config.name += "-batch";
  config.mode = config.mode == Mode::kRollout ? Mode::kServe : config.mode;
  config.launcher.log_dir =
      config.launcher.log_dir == usual ? usual_logs(config) : config.launcher.log_dir + "-batch";
  config.launcher.admin = "127.0.0.1:0";
  config.launcher.admin_key_file.clear();
  config.launcher.admin_tls = {};
  config.router.listen = "127.0.0.1:0";
  config.router.tls = {};               // Nobody outside asks it.
  config.batch_api.dir.clear();         // It belongs to the other job.
  config.launcher.orphan_timeout = {};  // The batch is gone with its launcher.
  return config;
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
