// JobRecord: what must be known of a job to go on with it in another launcher. A Job makes one
// (Job::record), and a new Job begins with one (JobSetting::record). What runs is not in it: that
// is what the nodes say when they join. Bytes: job_record.cc. Values.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "launcher/job/process.h"
#include "launcher/placement/node.h"
#include "launcher/placement/node_trust.h"
#include "net/control/wire_fields.h"

namespace pdjob::launcher {

struct JobRecord {
  bool ready = false;  // Clients were told so.
  // The job has ended, and this is what it left running. The rest of the next job is its plan's.
  bool warm = false;
  uint64_t incarnations_made = 0;
  net::WeightSource weights;  // As JobSetting::weights.
  std::vector<Node> nodes;
  std::vector<NodeFaults> trust;  // By the clock of the launcher that made this record.
  std::vector<ProcessRecord> processes;
  std::vector<std::pair<std::string, uint32_t>> sizes;  // JobGroup::wanted, by name.
  friend bool operator==(const JobRecord&, const JobRecord&) = default;
};

// As fields of a larger record.
void write_fields(net::WireWriter& writer, const JobRecord& record);
void write_fields(net::WireWriter& writer, const Node& node);
void read_fields(net::WireReader& reader, JobRecord& record);
void read_fields(net::WireReader& reader, Node& node);

}  // namespace pdjob::launcher
