#include "launcher/job_start.h"

#include <vector>

#include "launcher/job_plan.h"
#include "launcher/plan/foreign_plan.h"

namespace pdjob::launcher {

namespace {

JobTiming timing_of(const JobConfig& job) {
  const LauncherConfig& config = job.launcher;
  return {.start_timeout = config.start_timeout,
          .stop_timeout = config.stop_timeout,
          .drain_timeout = config.drain_timeout,
          .lease = job.kvtransfer.lease,
          .heartbeat_timeout = config.heartbeat_timeout,
          .hang_timeout = config.hang_timeout,
          .progress_timeout = config.progress_timeout,
          .restart = config.restart};
}

std::vector<ProcessPlan> processes_of(const JobConfig& config, const LaunchPlan& plan,
                                      const JobSpecs& specs) {
  std::vector<ProcessPlan> processes;
  for (const PlanRow& row : plan.rows) {
    const PlanGroup* const group = group_of(plan, row);
    processes.push_back({.name = row.name,
                         .role = row.role,
                         .model = row.model,
                         .demand = row.role == net::Role::kStore && row.name != store::kMaster
                                       ? store_demand(config.kv_store)
                                   : group == nullptr ? Demand{}
                                                      : group->group.demand,
                         .place = row.place(),
                         .spec = specs.digest(row.role, row.model)});
  }
  return processes;
}

}  // namespace

const GroupScaling& scaling_of(const JobConfig& config, net::Role role, const std::string& model) {
  const ModelConfig& of = *config.model_called(model);
  return (role == net::Role::kPrefill ? of.prefill_group : of.decode_group).scaling;
}

std::vector<JobGroup> groups_of(const JobConfig& config, const LaunchPlan& plan) {
  const JobSpecs specs = specs_of(config);
  // All groups together may have no worker more.
  const bool bounded = config.scaling.workers_max > 0 || config.scaling.gpus_max > 0;
  std::vector<JobGroup> groups;
  for (const PlanGroup& each : plan.groups) {
    groups.push_back(
        {.name = each.group.name,
         .role = each.role,
         .model = each.model,
         .demand = each.group.demand,
         .workers_min = each.group.workers_min,
         .spec = specs.digest(each.role, each.model),
         .wanted = each.group.workers - each.spares,
         .most = bounded ? 1 : scaling_of(config, each.role, each.model).workers_max,
         .spares = each.spares,
         .uses_store = uses_store(config, *config.model_called(each.model), each.role)});
  }
  return groups;
}

JobRunnerOptions runner_options(const JobConfig& config, const LaunchPlan& plan,
                                const JobLedger& ledger, bool adopts,
                                const std::string& control_key) {
  const JobSpecs specs = specs_of(config);
  JobRunnerOptions options{.job = config.name,
                           .processes = processes_of(config, plan, specs),
                           .groups = groups_of(config, plan),
                           .timing = timing_of(config),
                           .nonce = ledger.nonce,
                           .foreign_router = has_foreign_router(config),
                           .open_workers = recipe_without_key(config),
                           .root_key = ledger.root_key(),
                           .launcher = ledger.launcher,
                           .record = {},
                           .weights = {},
                           .store = {},
                           .control_key = control_key,
                           .https = config.router.tls.on(),
                           .specs = specs};
  if (config.kv_store.on()) {
    options.store = ProcessPlan{.role = net::Role::kStore,
                                .demand = store_demand(config.kv_store),
                                .spec = specs.digest(net::Role::kStore, "")};
  }
  if (adopts) {
    options.record = ledger.job;
  }
  if (config.mode == Mode::kRollout) {
    options.weights.version = router::kFirstVersion;
  }
  const bool shared = config.router.replicas > 1;
  for (const PlanRow& row : plan.rows) {
    if (row.role == net::Role::kRouter) {
      options.doors.push_back({.name = row.name,
                               .node = row.node,
                               .host = row.host,
                               .port = ledger.door_port != 0 ? ledger.door_port : row.port,
                               .use = shared ? net::PortUse::kShared : net::PortUse::kAlone});
    } else if (row.role == net::Role::kBatch) {
      options.batch_door = Door{
          .name = row.name, .node = row.node, .host = row.host, .port = ledger.batch_door_port};
    }
  }
  return options;
}

}  // namespace pdjob::launcher
