// Every message of the control plane, one struct each, one variant. Past-tense facts go up to the
// launcher, imperatives go down. Bytes: wire.h. Values.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace pdjob::net {

enum class Role : uint8_t { kPrefill = 1, kDecode = 2, kBoth = 3, kRouter = 4 };
const char* to_string(Role role);  // "prefill", ...

// What a router must know to use a worker. `kv_address` is the JSON object that goes into a decode
// leg's kv_transfer_params (remote_host, remote_port, remote_engine_id, ...), opaque to the router;
// empty: the engine speaks the two-hop protocol only.
struct WorkerEntry {
  std::string name;       // "prefill-0": the same over restarts.
  std::string engine_id;  // Of this incarnation.
  Role role = Role::kBoth;
  std::string host;
  uint16_t port = 0;
  std::string model;  // Served model name.
  std::string kv_address;
  std::string key;  // Its HTTP port wants it (Authorization: Bearer KEY); empty: nothing. Secret.
  friend bool operator==(const WorkerEntry&, const WorkerEntry&) = default;
};

// Load of a worker, in tokens and cells rather than in requests.
struct WorkerLoad {
  uint32_t requests_running = 0;
  uint32_t requests_queued = 0;
  uint64_t tokens_queued = 0;  // Prompt tokens not yet prefilled.
  uint64_t kv_rows_used = 0;
  uint64_t kv_rows_max = 0;
  uint64_t standstill_ms = 0;  // The engine has had work and made no progress for so long.
  friend bool operator==(const WorkerLoad&, const WorkerLoad&) = default;
};

// Why a process left the job, as far as its launcher knows.
enum class LossCause : uint8_t {
  kUnknown = 0,  // It is silent, and may come back.
  kOutside = 1,  // Somebody ended it, or nobody can say: SIGKILL, SIGTERM, an exit code.
  kCrash = 2,    // It broke at its work: SIGSEGV, SIGABRT and their like.
  kHang = 3,     // It had work and made no progress.
};
const char* to_string(LossCause cause);  // "unknown", ...

// An incarnation that was a member and is no longer.
struct Departure {
  std::string name;
  std::string engine_id;
  LossCause cause = LossCause::kUnknown;
  friend bool operator==(const Departure&, const Departure&) = default;
};

// --- up: to the launcher
struct Registered {  // "I serve now." Sent until acknowledged, and again after a reconnect.
  WorkerEntry worker;
  int64_t pid = 0;
  friend bool operator==(const Registered&, const Registered&) = default;
};
struct HeartbeatSent {  // Every heartbeat_interval.
  std::string name;
  std::string engine_id;
  uint64_t sequence = 0;
  WorkerLoad load;
  friend bool operator==(const HeartbeatSent&, const HeartbeatSent&) = default;
};
struct Drained {  // Answer to Drain: nothing is alive here any more.
  std::string name;
  friend bool operator==(const Drained&, const Drained&) = default;
};

struct MembershipApplied {  // From routers: requests can be pinned to the workers of this version.
  std::string engine_id;    // Of the router.
  uint64_t version = 0;
  friend bool operator==(const MembershipApplied&, const MembershipApplied&) = default;
};

// --- down: to a worker or router
struct Acknowledge {  // Registered was taken.
  friend bool operator==(const Acknowledge&, const Acknowledge&) = default;
};
struct Membership {  // To routers: whenever it changes, and again until applied (member_list.h). A
                     // lower version than one seen is stale.
  uint64_t version = 0;
  uint64_t since = 0;  // 0: all of it follows. Else what has changed since this version.
  std::vector<WorkerEntry> workers;
  std::vector<WorkerEntry> routers;  // For clients that subscribe to them; the reader is one, too.
  std::vector<Departure> left;       // Of the same time. A name in `workers`, too, has a new
                                     // incarnation. Where all follows: only crashes and hangs.
  friend bool operator==(const Membership&, const Membership&) = default;
};
struct LoadReported {  // To routers: one worker's heartbeat, passed on.
  std::string name;
  std::string engine_id;
  WorkerLoad load;
  friend bool operator==(const LoadReported&, const LoadReported&) = default;
};
struct Drain {  // Stop accepting, finish what is alive until the deadline, say Drained.
  uint64_t deadline_ms = 0;  // From now.
  friend bool operator==(const Drain&, const Drain&) = default;
};
struct Shutdown {  // End at once, exit 0.
  friend bool operator==(const Shutdown&, const Shutdown&) = default;
};

using Message = std::variant<Registered, HeartbeatSent, Drained, Acknowledge, Membership,
                             LoadReported, Drain, Shutdown, MembershipApplied>;

}  // namespace pdjob::net
