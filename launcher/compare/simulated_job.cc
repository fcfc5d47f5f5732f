#include "launcher/compare/simulated_job.h"

#include <algorithm>
#include <utility>

#include "launcher/plan/launch_plan.h"
#include "launcher/specs/job_specs.h"
#include "launcher/view/table.h"
#include "worker/api/openai_api.h"

namespace pdjob::launcher {
namespace {

constexpr uint32_t kGpusOfNode = 1U << 16;

Error unsupported(const std::string& what) { return {ErrorCode::kUnsupported, what}; }

worker::EngineSize size_of(const engine::EngineConfig& engine) {
  return {.sequences = engine.sequences,
          .rows_per_sequence = engine.tokens_per_sequence,
          .batch_tokens = engine.batch_tokens};
}

// Only what decides about requests: nothing that speaks to the world outside, and no keys.
router::RouterConfig router_of(const router::RouterConfig& config,
                               std::vector<std::string>& notes) {
  router::RouterConfig router = config;
  router.tls = {};
  router.tracing = {};
  router.async = {};
  router.audit = {};
  router.cache = {};
  router.models.clear();
  router.tenants.clear();
  router.replicas = 1;
  if (config.replicas > 1) {
    notes.push_back("One router decides, not " + std::to_string(config.replicas) + ".");
  }
  if (!config.tenants.empty()) {
    notes.emplace_back("Tenants are left out: all requests are one client's.");
  }
  if (config.cache.bytes_max > 0) {
    notes.emplace_back("The response cache is left out: no request is answered from it.");
  }
  if (config.audit.share > 0) {
    notes.emplace_back("Audits are left out.");
  }
  return router;
}

Status check_job(const JobConfig& config) {
  if (config.models.size() != 1) {
    return unsupported("a simulation has one model, and the file has " +
                       std::to_string(config.models.size()) +
                       ": write a file with only one of them");
  }
  if (config.router.kind != router::RouterKind::kBuiltIn) {
    return unsupported("a router of another make cannot be simulated: remove router.kind");
  }
  if (config.router.prefill_policy == router::PolicyKind::kPlugin ||
      config.router.decode_policy == router::PolicyKind::kPlugin) {
    return unsupported("a policy from a plug-in is not simulated: choose another router policy");
  }
  const ModelConfig& model = config.models.front();
  for (const engine::EngineConfig* engine : {&model.prefill_engine, &model.decode_engine}) {
    if (engine->kind == engine::EngineKind::kForeign) {
      return unsupported(
          "engines of other makes cannot be simulated: they have schedulers of their own, and only "
          "pdjob's is here. For an estimate by pdjob's scheduler, write a file with the same sizes "
          "for pdjob's engine (engine.sequences, engine.tokens_per_sequence, engine.batch_tokens), "
          "and give the times of the other engine with --model");
    }
  }
  return ok();
}

// The job as its launcher has it, on one node that has room for all.
Result<simulation::LaunchedJob> launched_job(const JobConfig& config,
                                             const router::RouterConfig& router,
                                             Duration start_time) {
  if (start_time >= config.launcher.start_timeout) {
    return Error{ErrorCode::kInvalidArgument,
                 "--start-time: the launcher ends workers that take longer than "
                 "launcher.start_timeout (" +
                     duration_text(config.launcher.start_timeout) + ") to start"};
  }
  simulation::LaunchedJob made{.config = config, .start_time = start_time};
  JobConfig& job = made.config;
  job.mode = Mode::kServe;
  job.batch_api = {};
  job.kv_store = {};  // The model of steps knows no KV that comes from elsewhere.
  job.router = router;
  job.router.listen = simulation::kRouterDoor;
  for (ModelConfig& model : job.models) {
    model.served_name = simulation::kTraceModel;
    for (GroupConfig* const group : {&model.prefill_group, &model.decode_group}) {
      group->clusters.clear();
      group->labels.clear();
      group->spares = 0;
    }
  }
  made.node = {.name = "node", .host = "10.0.1.1", .cores = 1U << 20};
  for (uint32_t gpu = 0; gpu < kGpusOfNode; ++gpu) {
    made.node.gpus.push_back(std::to_string(gpu));
  }
  PDJOB_TRY(made.plan, make_plan(job, {made.node}, {ModelSize{}}));
  return made;
}

}  // namespace

Result<SimulatedJob> simulated_job(const JobConfig& config, const EngineModel& model,
                                   Duration start_time) {
  PDJOB_TRY_STATUS(check_job(config));
  const ModelConfig& workers = config.models.front();
  SimulatedJob made;
  simulation::TraceJob& job = made.job;
  job.router = router_of(config.router, made.notes);
  const auto whole = [](EngineModel::Time time) { return std::chrono::round<Duration>(time); };
  job.step_time = model.step;
  job.kv_row_time = model.kv_per_token;
  job.kv_transfer_time = whole(model.kv_per_transfer);
  job.request_time = whole(model.per_request);
  job.worker_queue_timeout = worker::OpenaiApiOptions{}.queue_timeout;
  job.engine = size_of(workers.decode_engine);
  const net::Role role = workers.disaggregated() ? net::Role::kDecode : net::Role::kBoth;
  job.decode_config = decode_config(worker_spec(config, workers, role), role);
  if (workers.disaggregated()) {
    job.prefill = workers.prefill_workers;
    job.decode = workers.decode_workers;
    job.prefill_engine = size_of(workers.prefill_engine);
    job.prefill_config = worker_spec(config, workers, net::Role::kPrefill).prefill;
  } else {
    job.both = workers.decode_workers;
  }
  if (workers.prefill_group.scaling.on() || workers.decode_group.scaling.on()) {
    PDJOB_TRY(auto launched, launched_job(config, job.router, start_time));
    job.launched = std::make_shared<const simulation::LaunchedJob>(std::move(launched));
    made.notes.push_back("A new worker takes " + duration_text(start_time) +
                         " to start (--start-time), and there is room for each one.");
  }
  if (workers.prefill_group.spares + workers.decode_group.spares > 0) {
    made.notes.emplace_back("Spares are left out: no worker is lost.");
  }
  if (model.kv_tokens > 0) {
    const uint64_t rows = uint64_t{job.engine.sequences} * job.engine.rows_per_sequence;
    if (rows > model.kv_tokens) {
      made.notes.push_back("engine.sequences times engine.tokens_per_sequence is " +
                           std::to_string(rows) + " tokens of KV, and the measured engine held " +
                           std::to_string(model.kv_tokens) + ".");
    }
  }
  return made;
}

simulation::TraceJob colocated(const simulation::TraceJob& job, uint32_t chunk) {
  simulation::TraceJob same = job;
  same.both = job.prefill + job.decode + job.both;
  same.prefill = same.decode = 0;
  same.launched = nullptr;
  same.decode_config.local_chunk_tokens = chunk;
  // Whoever computes the prompts keeps them.
  if (job.prefill > 0) {
    same.router.decode_policy = job.router.prefill_policy;
  }
  return same;
}

std::vector<uint32_t> chunks_to_try(const simulation::TraceJob& job) {
  const uint32_t own = job.decode_config.local_chunk_tokens;
  std::vector<uint32_t> chunks{32, decode::kLongChunk, 512, own > 0 ? own : decode::kLongChunk};
  std::erase_if(chunks, [&](uint32_t chunk) { return chunk > job.engine.batch_tokens; });
  if (chunks.empty()) {
    chunks.push_back(job.engine.batch_tokens);
  }
  std::ranges::sort(chunks);
  chunks.erase(std::ranges::unique(chunks).begin(), chunks.end());
  return chunks;
}

}  // namespace pdjob::launcher
