// JobLedger: what a job leaves on disk for another launcher to go on with it: its keys, its file,
// its ports, and what its Job core knows (job_record.h). One run of a job has one ledger, from the
// first launcher's start until the job ends. Each launcher of the run has a number, one more than
// the last; agents and processes obey no lower one than they have heard. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/crypto/job_keys.h"
#include "common/result.h"
#include "common/time.h"
#include "launcher/job/events.h"
#include "launcher/job/job.h"
#include "launcher/job/job_record.h"
#include "launcher/placement/node.h"
#include "launcher/rollout/rollout.h"
#include "launcher/scaling/scaling_record.h"
#include "launcher/scaling/stragglers.h"
#include "launcher/specs/job_specs.h"

namespace pdjob::launcher {

struct JobLedger {
  std::string build;      // Of pdjob: another one cannot go on with this run.
  uint64_t launcher = 0;  // The number of the last launcher.
  // The Unix time at its Instant zero, as it was when that launcher began. It does not change when
  // somebody sets the clock, because each change would be a write to the disk.
  Duration clock{};
  std::string root;   // The text of the job's root key. Secret.
  std::string nonce;  // In the engine ids of this run.
  // Where the launcher listens for its processes and its own agent, and routers for clients. 0: not
  // yet.
  uint16_t control_port = 0;
  uint16_t agent_port = 0;
  uint16_t door_port = 0;
  uint16_t batch_door_port = 0;  // Of the Batch API; 0: not yet, or it has none.
  std::string config_source;
  std::string config_text;
  JobSpecs specs;  // Of this file. With others it is another run.
  // While a changed file is being applied: what it replaces, to go back to.
  bool applies = false;
  std::string earlier_source;
  std::string earlier_text;
  JobSpecs earlier_specs;
  bool stopping = false;  // It was told to end: nobody goes on with it.
  bool planned = false;   // The rest is known.
  RolloutRecord rollout;  // Of a job of mode rollout.
  StragglerRecord stragglers;
  ScalingRecord scaling;
  std::vector<Node> plan_nodes;
  JobRecord job;

  RootKey root_key() const { return RootKey::of(root); }
  friend bool operator==(const JobLedger&, const JobLedger&) = default;
};

// When a step of the job must be on disk: before its effects are carried out, if another launcher
// could otherwise not know what they make; for all other changes soon is soon enough.
enum class LedgerDue { kNever, kSoon, kBefore };
LedgerDue ledger_due(const Job& job, const Event& event, const std::vector<Effect>& effects);
// All times in it are by the clock of this launcher from now on. The system's clock may have been
// set, and a damaged ledger may say anything: nothing that was is later than now.
void change_clock(JobLedger& ledger, Duration clock, Instant now);
// Takes what the job knows now.
void take(JobLedger& ledger, const Job& job);

std::string encode(const JobLedger& ledger);
// kCorrupt: these are no ledger's bytes, or some are damaged. kUnsupported: of another version.
Result<JobLedger> decode_ledger(const std::string& bytes);

}  // namespace pdjob::launcher
