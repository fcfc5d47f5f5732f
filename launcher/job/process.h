// Process: one process of a job, as planned and as it is. Value.
//
//   waiting --> starting --> registered --> ready --> draining --> exited
//      ^            |            |            |          |
//      |            |            v            v          |
//      |            |           hung <---------          |
//      |            v            |                       |
//      |--------- backoff <------|------------------------
//
// A process waits while no node has a place for it. Its fate decides how it goes on after its end:
// usually as a new incarnation with a new engine id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/id.h"
#include "common/limits.h"
#include "common/time.h"
#include "launcher/job/heartbeats.h"
#include "launcher/job/looks.h"
#include "launcher/job/restart_policy.h"
#include "launcher/job/starvation.h"
#include "launcher/placement/placement.h"
#include "net/control/message.h"

namespace pdjob::launcher {

// Of a job: its workers, at most 64 routers (router.replicas), the Batch API's process, and a store
// on each node with workers.
inline constexpr size_t kProcessesMax = 2 * limits::kWorkersMax + 128;

// One start of one process; never reused.
using Incarnation = StrongId<struct IncarnationTag, uint64_t>;

enum class ProcessState {
  kWaiting,
  kStarting,
  kRegistered,
  kReady,
  kHung,
  kDraining,
  kExited,
  kBackoff
};
const char* to_string(ProcessState state);

enum class Signal { kTerminate, kKill, kDumpStacks };
const char* to_string(Signal signal);

enum class Fate { kRestart, kEnd, kChangeRole };

struct ProcessPlan {
  std::string name;
  net::Role role = net::Role::kBoth;
  std::string model;  // The model it serves; empty for a router.
  Demand demand{};
  Place place{};  // Without a node: the job chooses one.
  // The digest of the spec that this incarnation got (launcher/specs/job_specs.h).
  std::string spec = {};
  friend bool operator==(const ProcessPlan&, const ProcessPlan&) = default;
};

// The facts of a process that another launcher needs to go on with it. Its plan is as it is now:
// the role may have changed, and a place without a node means that it has none.
struct ProcessRecord : ProcessPlan {
  ProcessState state = ProcessState::kWaiting;
  Fate fate = Fate::kRestart;
  net::Role next_role = net::Role::kBoth;  // For Fate::kChangeRole.
  Incarnation incarnation;                 // 0: never started.
  std::string engine_id;
  // For Fate::kChangeRole, once it drains: its engine id if it changes its role without a new
  // start. Empty: it starts again.
  std::string next_engine_id;
  bool keeps_model = false;  // For Fate::kChangeRole: it may try that.
  bool spare = false;        // It gets no client's requests: enough others of its group serve.
  // With keeps_model: as in net::Drain::Next.
  uint64_t weights_order = 0;
  std::string next_version;
  uint32_t restarts = 0;
  uint32_t crashes = 0;
  uint32_t hangs = 0;
  net::WorkerEntry entry;  // As registered; without an engine id: it has not registered.
  friend bool operator==(const ProcessRecord&, const ProcessRecord&) = default;
};

struct Process : ProcessRecord {
  uint64_t order = 0;  // Of joining the job.
  int64_t pid = 0;
  Instant since{};  // Start of this state.
  Heartbeats heartbeats;
  bool suspected = false;        // Silent for longer than its heartbeats allow: no new requests.
  Instant next_look = kNever;    // While it is suspected.
  Looks looks;                   // While it is suspected, or takes too long to start.
  bool start_looked_at = false;  // In kStarting: its time is over, and a look decides.
  Starvation starvation;
  bool stands_still = false;  // Reported by the last heartbeat; a second one in a row decides.
  bool drain_sent = false;    // In kDraining: routers know of it, and so does the process.
  bool heard = true;          // False: it has said nothing to this launcher, which adopted it.
  bool shares_cores = false;  // As net::WorkerEntry has it.
  bool killed = false;        // By us; its exit has not been reported yet.
  std::string killed_for;     // "hung"; empty: not killed, or the state says why.
  net::WorkerLoad load;
  bool unusable = false;                     // Of a router: as HeartbeatSent has it.
  std::vector<net::WorkerTrouble> troubles;  // The same.
  bool load_told = false;  // By a heartbeat to this launcher. The totals before are not known.
  net::LossCause loss = net::LossCause::kUnknown;  // For this incarnation.
  std::string last_exit;
  // Times that it was replaced because it was slow, or failed with a partner.
  uint32_t replacements = 0;
  // The deadline of this state: the time of the next start, or the limit for starting, proving,
  // hanging or draining. kNever in all other states.
  Instant deadline = kNever;
  RestartPolicy restart_policy{RestartConfig{}};

  bool is_router() const { return role == net::Role::kRouter; }
  // It serves routers, and is a client of them. Its registration is proof enough.
  bool is_batch() const { return role == net::Role::kBatch; }
  // It keeps KV for the workers of its node, and only saves them time: nothing waits for it.
  bool is_store() const { return role == net::Role::kStore; }
  bool is_worker() const { return net::is_worker(role); }
  // Its engine is of another make, by the protocol that it registered.
  bool is_foreign() const {
    return entry.protocol != net::Protocol::kAuto && entry.protocol != net::Protocol::kPdjob;
  }
  // Spawned, and its exit has not been reported yet.
  bool alive() const {
    return serving() || state == ProcessState::kStarting || state == ProcessState::kHung ||
           state == ProcessState::kDraining;
  }
  bool serving() const {
    return state == ProcessState::kRegistered || state == ProcessState::kReady;
  }
  // It has registered, and may have requests: it serves, or finishes what it has.
  bool works() const {
    return serving() || (state == ProcessState::kDraining && !entry.engine_id.empty());
  }
  // It is a spare that could serve.
  bool stands_by() const { return spare && state == ProcessState::kReady && !suspected; }
  // It works, and has not been told to finish.
  bool awaits_drain() const { return works() && !drain_sent && !killed; }
  // It died too often, and was never ready.
  bool hopeless() const { return restart_policy.hopeless(); }
};

// For people: "a, b, c and 58 more", at most three of them by name.
std::string names_text(const std::vector<std::string>& names);

}  // namespace pdjob::launcher
