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
  std::string node;
  uint32_t cores = 0;  // Engine threads; 0 for a router, which needs little.
  std::string gpu;     // The only one it sees; empty: none of its own.
  std::string host;
  uint16_t port = 0;  // 0: any free one, known once its socket is open.
};

struct LaunchPlan {
  std::string job;
  std::string model;          // Served name.
  std::vector<PlanRow> rows;  // Routers first.
  bool invariant = false;  // The same request gives the same tokens, whatever else is in the batch.
  std::string invariant_because;
  std::vector<std::string> warnings;

  std::string to_text() const;
  std::string to_json() const;
};

// kUnavailable: the nodes cannot hold the job (exit code 3).
Result<LaunchPlan> make_plan(const JobConfig& config, const std::vector<Node>& nodes,
                             uint64_t model_bytes);

// "host:port"
std::string address_text(const PlanRow& row);

}  // namespace pdjob::launcher
