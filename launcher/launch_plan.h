// LaunchPlan: which process runs where. Made from the job and the nodes alone, shown before
// anything starts. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "launcher/cluster.h"
#include "launcher/job_config.h"
#include "net/message.h"

namespace pdjob::launcher {

struct PlanRow {
  std::string name;
  net::Role role = net::Role::kBoth;
  std::string model;  // Served name; empty for a router.
  std::string node;
  uint32_t cores = 0;  // Engine threads; 0 for a router, which needs little.
  std::string gpu;     // The only one it sees; empty: none of its own.
  std::string host;
  uint16_t port = 0;  // 0: any free one, known once its socket is open.
};

struct ModelPlan {
  std::string name;        // Served name.
  bool invariant = false;  // The same request gives the same tokens, whatever else is in the batch.
  std::string invariant_because;
};

struct LaunchPlan {
  std::string job;
  std::vector<ModelPlan> models;
  std::vector<PlanRow> rows;  // Routers first, then the workers of one model after the other.
  std::vector<std::string> warnings;

  // Which worker is whose must be said.
  bool several_models() const { return models.size() > 1; }

  std::string to_text() const;
  std::string to_json() const;
};

// `model_bytes`: of each model of the job. kUnavailable: the nodes cannot hold the job (exit code
// 3).
Result<LaunchPlan> make_plan(const JobConfig& config, const std::vector<Node>& nodes,
                             const std::vector<uint64_t>& model_bytes);

// "host:port"
std::string address_text(const PlanRow& row);

}  // namespace pdjob::launcher
