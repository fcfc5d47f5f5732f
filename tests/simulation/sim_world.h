// SimWorld: one run of a whole job on virtual time, in one thread, from one seed. It has clients,
// the real Router core, real PrefillWorker and DecodeWorker cores, and real transfer sessions. The
// network, processes and engines fail. The invariants hold after every event.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/simulation/faults.h"
#include "tests/simulation/invariants.h"
#include "tests/simulation/sim_links.h"
#include "tests/simulation/sim_loop.h"
#include "tests/simulation/sim_router.h"
#include "tests/simulation/sim_trace.h"
#include "tests/simulation/sim_worker.h"
#include "tests/simulation/workload.h"

namespace pdjob::simulation {

// Wraps every core that the world makes, so that canaries can break it.
using Sabotage =
    std::function<std::unique_ptr<worker::WorkerCore>(std::unique_ptr<worker::WorkerCore>)>;

struct RunOptions {
  uint64_t seed = 0;
  SimTrace::Print print = SimTrace::Print::kNo;
  Sabotage sabotage;
};
struct RunResult {
  std::string violation;  // Empty if all invariants held.
  uint64_t trace_hash = 0;
  uint64_t trace_lines = 0;
  Clients::Counts counts;
  uint64_t pairs_suspected = 0;
  uint64_t streams_continued = 0;
  uint64_t rows_reused = 0;
};
RunResult simulate(const RunOptions& options);

class SimWorld {
 public:
  // The lease of offers. Requests queue for far longer, so a lease that were not renewed would
  // show.
  static constexpr Duration kLease = std::chrono::milliseconds(800);
  // How long rows may stall before their transfer fails.
  static constexpr Duration kStallMax = std::chrono::milliseconds(300);

  explicit SimWorld(const RunOptions& options);
  ~SimWorld();
  SimWorld(const SimWorld&) = delete;
  SimWorld& operator=(const SimWorld&) = delete;

  RunResult run();

  // The simulated processes' view of the world.
  SimLoop& loop() { return loop_; }
  Instant now() const { return loop_.now(); }
  SimNetwork& network() { return network_; }
  SimLinks& links() { return links_; }
  Clients& clients() { return clients_; }
  Invariants& invariants() { return invariants_; }
  const worker::EngineSize& engine_size(net::Role role) const {
    return role == net::Role::kPrefill ? shape_.prefill_engine : shape_.engine;
  }
  bool shared_kv() const { return shape_.shared_kv; }
  const FaultDials& dials() const { return plan_.dials; }
  bool fault(double chance) { return chance > 0 && now() < plan_.end && random_.chance(chance); }
  void count_reused(uint32_t rows) { rows_reused_ += rows; }
  void trace(const std::string& who, const std::string& what) { trace_.line(now(), who, what); }

  // Returns null if the worker is dead.
  SimWorker* find(Incarnation incarnation);
  // Runs `task` on the worker at `when`. A frozen worker runs it later; a dead one never does.
  void post(Instant when, Incarnation incarnation, std::function<void(SimWorker&)> task);
  // This request kills the worker as soon as the current task is done.
  void crash(Incarnation incarnation, RequestId killer);
  void to_router(SimChannel& channel, std::function<void(SimRouter&)> message);

 private:
  // The kind of job that the seed makes.
  struct Shape {
    worker::EngineSize prefill_engine;
    worker::EngineSize engine;  // The engine of the other roles.
    uint32_t prefill_workers = 1;
    uint32_t decode_workers = 1;
    uint32_t both_workers = 0;
    uint32_t chunk_tokens = 8;
    uint32_t requests_queued = 256;
    bool prefix_cache = true;
    bool shared_kv = true;
    bool two_hop = false;
    router::RouterConfig router;
    WorkloadShape workload;
  };
  // A worker's place in the job, across its incarnations.
  struct Slot {
    std::string name;
    net::Role role = net::Role::kPrefill;
    std::string model;
    Incarnation incarnation;
    std::unique_ptr<SimWorker> worker;  // Null if dead.
    bool visible = false;               // Whether the membership contains it.
    bool frozen = false;
    std::vector<std::function<void(SimWorker&)>> backlog;
  };
  static Shape draw_shape(uint64_t seed);

  Slot* slot_of(Incarnation incarnation);
  void start_job();
  void start_worker(Slot& slot);
  std::unique_ptr<worker::WorkerCore> make_core(net::Role role) const;
  void publish();
  void report_loads();

  void strike(const Fault& fault);
  void kill(Slot& slot, Duration down, std::optional<RequestId> killer = std::nullopt);
  void freeze(Slot& slot, Duration duration);
  void thaw(Slot& slot);
  void break_link(uint64_t draw);

  // Runs tasks until `when`, or until an invariant is broken.
  void run_until(Instant when);
  void finish();
  void expect_idle(const char* when);

  const RunOptions options_;
  const Shape shape_;
  SimLoop loop_;
  SimTrace trace_;
  Invariants invariants_;
  Random random_;
  const FaultPlan plan_;
  SimNetwork network_;
  SimLinks links_;
  Clients clients_;
  SimRouter router_;
  SimChannel to_router_;  // From the launcher.
  std::vector<Slot> slots_;
  std::vector<net::Departure> left_;  // All workers that ever died.
  uint64_t incarnations_made_ = 0;
  uint64_t rows_reused_ = 0;
};

}  // namespace pdjob::simulation
