// What a keeper says of its pool: `pdjob jobs`, as text and JSON, and its metrics. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/placement/node.h"
#include "launcher/pool/pool_job.h"

namespace pdjob::launcher {

struct PoolView {
  std::string pool;
  std::vector<PoolJob> jobs;
  std::vector<QueueQuota> quotas;
  std::vector<Node> nodes;
  std::vector<Node> free;  // The same with what no job holds.
};

std::string jobs_text(const PoolView& view);
std::string jobs_json(const PoolView& view);
// One flat object: name, state, why, and where clients reach it.
std::string job_json(const PoolJob& job, const std::string& host = "");
// Prometheus's text.
std::string pool_metrics(const PoolView& view);

}  // namespace pdjob::launcher
