#include "launcher/specs/job_specs.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "common/check.h"
#include "common/config/config_errors.h"
#include "common/config/config_reader.h"
#include "common/config/config_text.h"
#include "common/crypto/blake2b.h"
#include "common/hex.h"
#include "common/json/json_writer.h"
#include "common/limits.h"

namespace pdjob::launcher {

namespace {

constexpr FieldText kDrainTimeout{"Requests may finish for this long after a signal."};

void read(ConfigReader& in, engine::StoreUse& store) {
  in.field("kind", store.kind, {"Whose it is."});
  in.field("host", store.host, {"Where it is."});
  in.field("port", store.port, {"Where it is."});
  in.field("transport", store.transport, {"How its KV moves."});
}

void read(ConfigReader& in, WorkerSpec& spec) {
  constexpr FieldText kModel{"A path, or a name that the worker's machine finds."};
  if (spec.engine.kind == engine::EngineKind::kForeign) {
    in.field("model", spec.model, kModel);  // A slash does not make it a path.
  } else {
    in.path("model", spec.model, kModel, ".gguf");
  }
  in.field("served_name", spec.served_name, {"What clients call the model."});
  in.section("engine", {"The engine."},
             [&](ConfigReader& section) { engine::read(section, spec.engine); });
  in.section("gpu", {"Its GPU."},
             [&](ConfigReader& section) { pdjob::read(section, spec.engine.cuda); });
  in.section("kvtransfer", {"How KV moves."},
             [&](ConfigReader& section) { kvtransfer::read(section, spec.kvtransfer); });
  in.section("prefill", {"As a prefill worker."},
             [&](ConfigReader& section) { prefill::read(section, spec.prefill); });
  in.section("decode", {"As a decode worker."},
             [&](ConfigReader& section) { decode::read(section, spec.decode); });
  in.field("changes_role", spec.changes_role, {"Its role may change while it runs."});
  in.field("drain_timeout", spec.drain_timeout, kDrainTimeout);
  in.field("start_timeout", spec.start_timeout, {"An engine of another make must start in it."});
  in.field("weights_dir", spec.weights_dir, {"Where new weights are found."});
  in.field("fingerprint", spec.fingerprint, {"What the KV of an engine of another make means."});
  in.section("kv_store", {"The store of KV that an engine of another make uses."},
             [&](ConfigReader& section) { read(section, spec.store); });
  spec.engine.served_name = spec.served_name;
  spec.kvtransfer.nccl.cuda = spec.engine.cuda;
}

void read(ConfigReader& in, RouterSpec& spec) {
  in.section("router", {"The front door."},
             [&](ConfigReader& section) { read_router(section, spec.router); });
  in.section("rollout", {"A trainer's orders."},
             [&](ConfigReader& section) { router::read(section, spec.rollout); });
  in.field("models", spec.models, {"The models of the job."});
  in.field("plain", spec.plain, {"The job is not disaggregated."});
  in.field("file_bytes_max", spec.file_bytes_max, {"Of an upload.", "bytes"});
}

void read(ConfigReader& in, BatchSpec& spec) {
  in.section("batch_api", {"Files and batches."},
             [&](ConfigReader& section) { batch::read(section, spec.batch_api); });
  in.field("row_timeout", spec.row_timeout, {"Of one request."});
  in.field("drain_timeout", spec.drain_timeout, kDrainTimeout);
}

void read(ConfigReader& in, StoreSpec& spec) {
  in.section("kv_store", {"What it keeps."},
             [&](ConfigReader& section) { store::read(section, spec.kv_store); });
  in.section("kvtransfer", {"How KV moves."},
             [&](ConfigReader& section) { kvtransfer::read(section, spec.kvtransfer); });
  in.field("drain_timeout", spec.drain_timeout, kDrainTimeout);
}

// Of a text that yaml_of() made.
ConfigNode mapping_of(const std::string& yaml) {
  ConfigErrors errors("", yaml);
  return parse_config_document(yaml, errors).value_or(ConfigNode{});
}

template <class Spec>
ConfigNode values_of(Spec spec) {
  ConfigReader out = ConfigReader::write();
  read(out, spec);
  return out.values();
}

template <class Spec>
std::string text_of(const Spec& spec) {
  return yaml_of(without(values_of(spec), values_of(Spec{})));
}

template <class Spec>
Result<Spec> spec_of(const std::string& name, const std::string& text) {
  Spec spec;
  ConfigReader in = ConfigReader::parse("the spec of " + name, text);
  read(in, spec);
  if (std::string errors = in.finish(); !errors.empty()) {
    return Error{ErrorCode::kInvalidArgument, std::move(errors)};
  }
  return spec;
}

// Of the keys of a role, those that the launcher obeys.
void write_groups(ConfigReader& in, ModelConfig& model) {
  in.section("prefill", {""}, [&](ConfigReader& section) {
    section.field("workers", model.prefill_workers, {""});
    read(section, model.prefill_group);
  });
  in.section("decode", {""}, [&](ConfigReader& section) {
    section.field("workers", model.decode_workers, {""});
    read(section, model.decode_group);
  });
}

// What the launcher itself obeys: all but what its processes get, the rows of a batch, and the
// folder that the job's state is in.
ConfigNode launcher_values(JobConfig config) {
  if (config.launcher.log_dir == usual_logs(config)) {
    config.launcher.log_dir.clear();
  }
  config.launcher.state_dir.clear();
  const auto values = [](JobConfig& job) {
    ConfigReader out = ConfigReader::write();
    out.field("name", job.name, {""});
    read(out, job.mode);
    out.section("launcher", {""}, [&](ConfigReader& section) { read(section, job.launcher); });
    out.section("scaling", {""}, [&](ConfigReader& section) { read(section, job.scaling); });
    read_clusters(out, job.clusters);
    for (ModelConfig& model : job.models) {
      const auto groups = [&model](ConfigReader& section) { write_groups(section, model); };
      model.name.empty() ? groups(out) : out.section("models", {""}, [&](ConfigReader& all) {
        all.section(model.name, {""}, groups);
      });
    }
    return out.values();
  };
  JobConfig standard;
  for (const ModelConfig& model : config.models) {
    standard.models.push_back({.name = model.name});
  }
  return without(values(config), values(standard));
}

// Nobody knows here which options of another make change what its KV means. So those of both roles
// count; sizes and ports do not.
std::string foreign_fingerprint(const ModelConfig& model) {
  if (model.decode_engine.kind != engine::EngineKind::kForeign) {
    return "";
  }
  const auto what = [&model](const engine::EngineConfig& engine) {
    WorkerSpec spec{.model = model.model, .served_name = model.served_name};
    spec.engine.kind = engine.kind;
    spec.engine.foreign = engine.foreign;
    spec.engine.foreign.ports = {};
    spec.engine.foreign.kv_events = true;
    return text_of(spec);
  };
  return spec_digest((model.disaggregated() ? what(model.prefill_engine) : "") +
                     what(model.decode_engine));
}

engine::StoreUse store_of(const JobConfig& config, const ModelConfig& model, net::Role role) {
  if (!config.kv_store.is_foreign() || !uses_store(config, model, role)) {
    return {};
  }
  engine::StoreUse store = store::use_of(config.kv_store, "");
  store.memory_bytes = 0;  // Of the store alone.
  return store;
}

}  // namespace

WorkerSpec worker_spec(const JobConfig& config, const ModelConfig& model, net::Role role) {
  const bool changes_role =
      model.disaggregated() && same_engine(model.prefill_engine, model.decode_engine);
  const bool prefills = role == net::Role::kPrefill;
  return {.model = model.model.starts_with('.') ? absolute_path(model.model) : model.model,
          .served_name = model.served_name,
          .engine = prefills ? model.prefill_engine : model.decode_engine,
          .kvtransfer = config.kvtransfer,
          .prefill = prefills || changes_role ? model.prefill : prefill::PrefillConfig{},
          .decode = !prefills || changes_role ? model.decode : decode::DecodeConfig{},
          .changes_role = changes_role,
          .drain_timeout = drain_timeout(config, changes_role ? net::Role::kPrefill : role),
          .start_timeout = config.launcher.start_timeout,
          .weights_dir = config.rollout.weights_dir,
          .fingerprint = foreign_fingerprint(model),
          .store = store_of(config, model, role)};
}

// Only decode workers have streams to protect from long steps; a worker of both roles computes all
// its prompts in any case.
decode::DecodeConfig decode_config(const WorkerSpec& work, net::Role role) {
  decode::DecodeConfig config = work.decode;
  if (config.local_chunk_tokens == 0 && role == net::Role::kDecode && !work.engine.gpu &&
      work.engine.gpu_layers == 0) {
    config.local_chunk_tokens = decode::kShortChunk;
  }
  return config;
}

JobSpecs specs_of(const JobConfig& config) {
  JobSpecs specs{.launcher = yaml_of(launcher_values(config))};
  for (const ModelConfig& model : config.models) {
    std::vector<net::Role> roles = {net::Role::kBoth};
    if (model.disaggregated()) {
      roles = {net::Role::kPrefill, net::Role::kDecode};
    }
    for (const net::Role role : roles) {
      specs.work.emplace(SpecKey(role, model.served_name),
                         text_of(worker_spec(config, model, role)));
    }
  }
  specs.work.emplace(SpecKey(net::Role::kRouter, ""),
                     text_of(RouterSpec{.router = config.router,
                                        .rollout = config.rollout,
                                        .models = config.served_names(),
                                        .plain = !config.models.front().disaggregated(),
                                        .file_bytes_max = config.batch_api.file_bytes_max}));
  specs.work.emplace(SpecKey(net::Role::kBatch, ""),
                     text_of(BatchSpec{.batch_api = config.batch_api,
                                       .row_timeout = config.router.request_timeout,
                                       .drain_timeout = drain_timeout(config, net::Role::kBatch)}));
  if (config.kv_store.on()) {
    specs.work.emplace(
        SpecKey(net::Role::kStore, ""),
        text_of(StoreSpec{.kv_store = config.kv_store,
                          .kvtransfer = config.kvtransfer,
                          .drain_timeout = drain_timeout(config, net::Role::kStore)}));
  }
  return specs;
}

Result<WorkerSpec> read_worker_spec(const std::string& name, const std::string& text) {
  return spec_of<WorkerSpec>(name, text);
}
Result<RouterSpec> read_router_spec(const std::string& name, const std::string& text) {
  return spec_of<RouterSpec>(name, text);
}
Result<BatchSpec> read_batch_spec(const std::string& name, const std::string& text) {
  return spec_of<BatchSpec>(name, text);
}
Result<StoreSpec> read_store_spec(const std::string& name, const std::string& text) {
  return spec_of<StoreSpec>(name, text);
}

std::string with_live_keys(const std::string& from, const std::string& to) {
  auto spec = read_router_spec("a router", from);
  const auto asked = read_router_spec("a router", to);
  PDJOB_CHECK(spec && asked);
  router::take_live_keys(asked->router, spec->router);
  return text_of(*spec);
}

Result<ConfigNode> spec_values(net::Role role, const std::string& text) {
  if (role == net::Role::kRouter) {
    PDJOB_TRY(RouterSpec spec, read_router_spec("a router", text));
    return values_of(std::move(spec));
  }
  if (role == net::Role::kBatch) {
    PDJOB_TRY(BatchSpec spec, read_batch_spec("the Batch API", text));
    return values_of(std::move(spec));
  }
  if (role == net::Role::kStore) {
    PDJOB_TRY(StoreSpec spec, read_store_spec("a store", text));
    return values_of(std::move(spec));
  }
  PDJOB_TRY(WorkerSpec spec, read_worker_spec("a worker", text));
  return values_of(std::move(spec));
}

Status check(const JobSpecs& specs) {
  for (const auto& [key, text] : specs.work) {
    if (text.size() > limits::kConfigBytesMax) {
      return Error{ErrorCode::kInvalidArgument,
                   std::string("what the job file says of ") + to_string(key.first) +
                       " is too long when its aliases are written out: at most " +
                       std::to_string(limits::kConfigBytesMax) + " bytes"};
    }
  }
  return ok();
}

std::string JobSpecs::digest(net::Role role, const std::string& model) const {
  const auto found = work.find({role, model});
  return found == work.end() ? "" : spec_digest(found->second);
}

uint32_t engine_ports(const JobSpecs& specs) {
  uint32_t most = 0;
  for (const auto& [key, work] : specs.work) {
    const auto spec = net::is_worker(key.first)
                          ? read_worker_spec("a worker", work)
                          : Result<WorkerSpec>(Error{ErrorCode::kInvalidArgument, ""});
    if (spec && spec->engine.kind == engine::EngineKind::kForeign) {
      most = std::max(most, engine::ports_of_engine(spec->engine.foreign));
    }
  }
  return most;
}

std::string specs_json(const JobSpecs& specs) {
  std::string text;
  JsonWriter json(text);
  json.begin_array();
  for (const auto& [key, work] : specs.work) {
    const auto all = spec_values(key.first, work);
    const auto standard = spec_values(key.first, "{}");
    json.begin_object();
    json.key("role").string(to_string(key.first));
    json.key("model").string(key.second);
    json.key("digest").string(spec_digest(work));
    json.key("work").raw(all && standard ? json_of(without(*all, *standard)) : "{}");
    json.end_object();
  }
  json.end_array();
  return text;
}

std::vector<SpecChange> changes(const JobSpecs& from, const JobSpecs& to) {
  std::vector<SpecChange> found;
  const auto note = [&found](const std::string& of, const ConfigNode& before,
                             const ConfigNode& after) {
    if (auto keys = differences(before, after); !keys.empty()) {
      found.push_back({.of = of, .keys = std::move(keys)});
    }
  };
  note("launcher", mapping_of(from.launcher), mapping_of(to.launcher));
  std::map<SpecKey, std::pair<std::string, std::string>> both;
  std::set<std::string> models;
  for (const auto& [key, text] : from.work) {
    both[key].first = text;
    models.insert(key.second);
  }
  for (const auto& [key, text] : to.work) {
    both[key].second = text;
    models.insert(key.second);
  }
  const bool one_model = models.size() <= 2;  // Of the others, the model is empty.
  const auto values = [](net::Role role, const std::string& text) {
    auto all = text.empty() ? Result<ConfigNode>(ConfigNode{}) : spec_values(role, text);
    return all ? *std::move(all) : mapping_of(text);
  };
  for (const auto& [key, texts] : both) {
    const std::string role = to_string(key.first);
    note(one_model || key.second.empty() ? role : role + " of " + key.second,
         values(key.first, texts.first), values(key.first, texts.second));
  }
  return found;
}

std::string changes_text(const std::vector<SpecChange>& changes) {
  constexpr size_t kKeysShown = 4;
  std::string text;
  size_t seen = 0;
  for (const SpecChange& change : changes) {
    for (const ConfigDifference& key : change.keys) {
      if (++seen <= kKeysShown) {
        text += (text.empty() ? "" : "; ") + change.of + ": " + key.path + " from " +
                (key.from.empty() ? "nothing" : printable(key.from, 80)) + " to " +
                (key.to.empty() ? "nothing" : printable(key.to, 80));
      }
    }
  }
  return seen > kKeysShown ? text + " and " + std::to_string(seen - kKeysShown) + " more" : text;
}

std::string spec_digest(const std::string& text) {
  constexpr size_t kBytes = 8;
  const Digest digest = Blake2b("pdjob spec").add(text).finish();
  return hex_of(std::span(digest).first(kBytes));
}

}  // namespace pdjob::launcher
