// PoolJob: what the keeper of a pool knows of one job: what was asked for, what it holds of which
// node, and which processes it has there. Values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/time.h"
#include "launcher/job/process.h"
#include "launcher/placement/demand.h"

namespace pdjob::launcher {

inline constexpr size_t kPoolJobsMax = 1000;        // That wait or run; beyond: refused.
inline constexpr size_t kPoolJobsKept = 100;        // That have ended; older ones are forgotten.
inline constexpr size_t kPoolSharesMax = 4096;      // Of a job.
inline constexpr size_t kPoolQueuesMax = 256;       // With a quota.
inline constexpr const char* kBatchDone = "done";   // Why a batch has ended.
inline constexpr int64_t kPriorityOfServing = 100;  // Of jobs that serve; of batches 0.

// What a job holds of a node, as long as any process of it may run there.
struct Share {
  std::string node;
  uint32_t cores = 0;
  uint64_t memory_bytes = 0;
  std::vector<std::string> gpus;  // Names as in CUDA_VISIBLE_DEVICES; these and no others.
  GpuParts gpu_parts = {};        // Of those of which it has no whole one.
  // Of the node. Another one takes its place only if it has the same.
  std::map<std::string, std::string> labels = {};

  friend bool operator==(const Share&, const Share&) = default;
};

// What somebody submitted.
struct PoolJobOrder {
  std::string name;
  std::string text;    // The job file.
  std::string source;  // The path of that. Relative ones begin in its folder, on whichever node.
  std::string queue = "default";
  int64_t priority = 0;  // The higher one is first.
  bool batch = false;    // Mode batch: it may be interrupted, and goes on later.
  std::string listen;    // Of its routers, HOST:PORT.
  uint16_t door = 0;     // The port of that; 0: any free one.
  // How long its workers stay warm when it is done; 0: they end. `workers`: whose can be its own, a
  // digest.
  Duration keep{};
  std::string workers;
  friend bool operator==(const PoolJobOrder&, const PoolJobOrder&) = default;
};

// A process of the job on a node of the pool: its launcher, or the agent of a share.
struct PoolProcess {
  std::string node;           // Empty: it has no place.
  Incarnation incarnation{};  // 0: none runs.
  bool ending = false;        // It was told to end.
  uint32_t failures = 0;      // Ends in a row that came too early.
  Instant begun{};            // Its last start.
  Instant due = kNever;       // Its next start or, of one that ends, when it is killed.
  friend bool operator==(const PoolProcess&, const PoolProcess&) = default;
};

inline bool runs(const PoolProcess& process) { return process.incarnation != Incarnation{}; }

struct HeldShare {
  uint64_t number = 0;  // Of the job's shares; never used again.
  Share share;
  PoolProcess agent;
  friend bool operator==(const HeldShare&, const HeldShare&) = default;
};

enum class PoolJobState {
  kQueued,   // It holds nothing.
  kRunning,  // It holds its shares. Whether it serves already is known to its launcher.
  kEnding,   // Its processes are told to end. It holds each share until that is empty.
  kWarm,  // It is done. It holds its shares, where its workers wait for the next job of its name.
  kEnded,
};
const char* to_string(PoolJobState state);

struct PoolJob {
  uint64_t id = 0;
  PoolJobOrder order;
  PoolJobState state = PoolJobState::kQueued;
  bool comes_back = false;  // Of one that ends: it waits again then.
  std::string why;          // It waits, runs with less, or has ended. For people.
  uint16_t port = 0;        // Where its launcher listens for its agents.
  PoolProcess launcher;
  std::vector<HeldShare> shares;
  uint64_t shares_made = 0;
  // For each start a new one, which its agents' key is made of. The next job of its name that takes
  // over the agents takes over this one, too.
  Incarnation start{};
  Instant warm_until = kNever;  // Of a warm one.

  uint64_t cores() const;
  uint64_t gpu_percent() const;
  friend bool operator==(const PoolJob&, const PoolJob&) = default;
};

// What all jobs of a queue may hold together; 0: as much as there is.
struct QueueQuota {
  std::string queue;
  uint64_t cores = 0;
  uint64_t gpus = 0;
  friend bool operator==(const QueueQuota&, const QueueQuota&) = default;
};

}  // namespace pdjob::launcher
