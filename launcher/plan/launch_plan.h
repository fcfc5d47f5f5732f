// LaunchPlan: which process runs where. It depends only on the job and the nodes, and is shown
// before anything starts. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "engine/recipes/model_folder.h"
#include "launcher/placement/gang.h"
#include "launcher/placement/near_devices.h"
#include "launcher/placement/node.h"
#include "launcher/plan/job_config.h"
#include "launcher/plan/job_terms.h"
#include "net/control/message.h"

namespace pdjob::launcher {

// Another node of an engine over several nodes.
struct PlanPart {
  std::string node;
  std::string host;
  std::vector<std::string> gpus;
  NearDevices near = {};
  std::string command;
};

struct PlanRow {
  std::string name;
  net::Role role = net::Role::kBoth;
  std::string model;  // Of a worker: its served name.
  std::string node;   // Empty: there is no place for it yet.
  std::string cluster;
  std::string why;     // Why this node and no other, in few words.
  uint32_t cores = 0;  // Engine threads; 0 for a router, which needs little.
  // A decode worker that shares its cores with a prefill worker, and so computes its prompts
  // itself.
  bool prefills = false;
  std::vector<std::string> gpus;  // The only GPUs it sees; empty: none of its own.
  uint32_t gpu_percent = kWholeGpu;
  NearDevices near;  // Of these.
  std::string host;
  uint16_t port = 0;  // 0: any free port, known once the socket is open.
  // The command line of an engine of another make. A port that is in use when it starts is replaced
  // by the next free one.
  std::string command;
  std::vector<PlanPart> more = {};

  Place place() const;
  bool runs_on(const std::string& of_node) const;
};

// The workers of one role of one model.
struct PlanGroup {
  net::Role role = net::Role::kBoth;
  std::string model;  // Served name.
  Group group;
  uint32_t spares = 0;  // Of its workers.
};

// What the file or the folder of a model says. 0: unknown.
struct ModelSize {
  uint64_t file_bytes = 0;
  uint64_t kv_bytes_per_token = 0;
  engine::ModelFolder folder = {};
};

struct ModelPlan {
  std::string name;  // Served name.
  // The same request gives the same tokens, whatever else is in the batch.
  bool invariant = false;
  std::string invariant_because;
};

struct LaunchPlan {
  std::string job;
  std::vector<ModelPlan> models;
  std::vector<PlanGroup> groups;
  std::vector<Node> nodes;  // Those that run at least one of its processes.
  // Routers first, then the Batch API and the stores, then the workers of one group after the
  // other.
  std::vector<PlanRow> rows;
  JobTerms terms;
  std::optional<batch::BatchConfig> batch;  // Of a job of mode batch.
  std::vector<std::string> warnings;

  // If true, texts must name each worker's model.
  bool several_models() const { return models.size() > 1; }

  std::string to_text() const;
  // `specs`: what processes get (launcher/specs/job_specs.h), as JSON; empty: it is left out.
  std::string to_json(const std::string& specs = "") const;
};

// `sizes`: of each model of the job. kUnavailable: the nodes cannot hold the job (exit code 3); the
// message says what is short by how much, and which node comes nearest. A launcher whose nodes may
// still join asks again when one has.
//
// kOthersMayCome: workers for which there is no place wait for nodes, instead of an error.
enum class NodesOfPlan { kAll, kOthersMayCome };
Result<LaunchPlan> make_plan(const JobConfig& config, const std::vector<Node>& nodes,
                             const std::vector<ModelSize>& sizes,
                             NodesOfPlan which = NodesOfPlan::kAll);

// What a store needs of its node.
Demand store_demand(const store::StoreConfig& config);

// "prefill", or "small-prefill" if the model has the name "small" in `models`.
std::string group_name(const ModelConfig& model, const char* role);

// The group of a worker, by role and model; null for a router.
const PlanGroup* group_of(const LaunchPlan& plan, const PlanRow& row);

}  // namespace pdjob::launcher
