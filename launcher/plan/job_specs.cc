#include "launcher/plan/job_specs.h"

#include <algorithm>
#include <utility>

#include "common/config/config_reader.h"
#include "common/crypto/blake2b.h"
#include "common/hex.h"

namespace pdjob::launcher {

namespace {

constexpr FieldText kDrainTimeout{"Requests may finish for this long after a signal."};

void read(ConfigReader& in, WorkerSpec& spec) {
  in.field("model", spec.model, {"A path, or a name that the worker's machine finds."});
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

}  // namespace

WorkerSpec worker_spec(const JobConfig& config, const ModelConfig& model, net::Role role) {
  const bool changes_role =
      model.disaggregated() && same_engine(model.prefill_engine, model.decode_engine);
  return {.model = model.model,
          .served_name = model.served_name,
          .engine = role == net::Role::kPrefill ? model.prefill_engine : model.decode_engine,
          .kvtransfer = config.kvtransfer,
          .prefill = model.prefill,
          .decode = model.decode,
          .changes_role = changes_role,
          .drain_timeout = drain_timeout(config, changes_role ? net::Role::kPrefill : role),
          .start_timeout = config.launcher.start_timeout,
          .weights_dir = config.rollout.weights_dir};
}

JobSpecs specs_of(const JobConfig& config) {
  JobSpecs specs;
  for (const ModelConfig& model : config.models) {
    std::vector<net::Role> roles = {net::Role::kBoth};
    if (model.disaggregated()) {
      roles = {net::Role::kPrefill, net::Role::kDecode};
    }
    for (const net::Role role : roles) {
      specs.emplace(SpecKey(role, model.served_name), text_of(worker_spec(config, model, role)));
    }
  }
  specs.emplace(SpecKey(net::Role::kRouter, ""),
                text_of(RouterSpec{.router = config.router,
                                   .rollout = config.rollout,
                                   .models = config.served_names(),
                                   .plain = !config.models.front().disaggregated(),
                                   .file_bytes_max = config.batch_api.file_bytes_max}));
  specs.emplace(SpecKey(net::Role::kBatch, ""),
                text_of(BatchSpec{.batch_api = config.batch_api,
                                  .row_timeout = config.router.request_timeout,
                                  .drain_timeout = drain_timeout(config, net::Role::kBatch)}));
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

Result<ConfigNode> spec_values(net::Role role, const std::string& text) {
  if (role == net::Role::kRouter) {
    PDJOB_TRY(RouterSpec spec, read_router_spec("a router", text));
    return values_of(std::move(spec));
  }
  if (role == net::Role::kBatch) {
    PDJOB_TRY(BatchSpec spec, read_batch_spec("the Batch API", text));
    return values_of(std::move(spec));
  }
  PDJOB_TRY(WorkerSpec spec, read_worker_spec("a worker", text));
  return values_of(std::move(spec));
}

std::string spec_digest(const std::string& text) {
  constexpr size_t kBytes = 8;
  const Digest digest = Blake2b("pdjob spec").add(text).finish();
  std::string hex;
  for (const std::byte byte : std::span(digest).first(kBytes)) {
    append_hex(hex, std::to_integer<uint64_t>(byte), 2);
  }
  return hex;
}

}  // namespace pdjob::launcher
