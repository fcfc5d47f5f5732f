// JobRecord: what must be known of a job to go on with it in another launcher. A Job makes one
// (Job::record), and a new Job begins with one (JobSetting::record). What runs is not in it: that
// is what the nodes say when they join. Bytes: job_record.cc. Values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/job/process.h"
#include "launcher/placement/node.h"
#include "net/control/wire_fields.h"

namespace pdjob::launcher {

struct ProcessRecord {
  ProcessPlan plan;  // With its place as it is now.
  ProcessState state = ProcessState::kWaiting;
  Fate fate = Fate::kRestart;
  net::Role next_role = net::Role::kBoth;
  bool keeps_model = false;
  std::string next_engine_id;
  Incarnation incarnation;  // 0: never started.
  std::string engine_id;
  uint32_t restarts = 0;
  uint32_t crashes = 0;
  uint32_t hangs = 0;
  net::WorkerEntry entry;  // As registered; without an engine id: it has not registered.
  friend bool operator==(const ProcessRecord&, const ProcessRecord&) = default;
};

struct JobRecord {
  bool ready = false;  // Clients were told so.
  uint64_t incarnations_made = 0;
  std::vector<Node> nodes;
  std::vector<ProcessRecord> processes;
  friend bool operator==(const JobRecord&, const JobRecord&) = default;
};

// As fields of a larger record.
void write_fields(net::WireWriter& writer, const JobRecord& record);
void write_fields(net::WireWriter& writer, const Node& node);
void read_fields(net::WireReader& reader, JobRecord& record);
void read_fields(net::WireReader& reader, Node& node);

}  // namespace pdjob::launcher
