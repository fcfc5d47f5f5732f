#include "tests/simulation/trace_world.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "decode/decode_worker.h"
#include "kvtransfer/link/link_keys.h"
#include "kvtransfer/open_transport.h"
#include "prefill/prefill_worker.h"
#include "tests/simulation/sim_control.h"
#include "tests/simulation/sim_router.h"
#include "tests/simulation/sim_worker.h"

namespace pdjob::simulation {
namespace {

const net::HttpAddress kDoor{"10.0.0.1", 8000};
// A network of one machine room.
constexpr SimSockets::Wire kWire{.latency_max = std::chrono::microseconds(100),
                                 .buffer_bytes = size_t{1} << 20};
// The router knows its workers by then.
constexpr Duration kRouterReadyWithin = std::chrono::seconds(3);

SimSockets::Wire kv_wire(Duration row_time) {
  SimSockets::Wire wire = kWire;
  wire.per_byte = row_time / kSimKvRowBytes;
  return wire;
}

class TraceWorld {
 public:
  explicit TraceWorld(const TraceRun& run)
      : run_(run),
        random_(mix(run.seed)),
        http_(loop_, random_.next(), kWire),
        kv_(loop_, random_.next(), kv_wire(run.job.kv_row_time)),
        control_(loop_, cuts_, random_.next()),
        scene_{.loop = loop_,
               .http = http_,
               .kv = kv_,
               .control = control_,
               .invariants = invariants_,
               .trace = [](const std::string& /*who*/, const std::string& /*what*/) {}},
        link_authority_("simulated"),
        client_("client",
                {.loop = loop_, .seed = random_.next(), .streams = &http_, .host = "10.0.0.8"}),
        clients_(client_, run.trace.size()) {}

  TraceResult play();

 private:
  void add_workers(net::Role role, uint32_t count);
  void add_router();
  void send_next();

  const TraceRun& run_;
  SimLoop loop_;
  Random random_;
  Invariants invariants_;
  SimCuts cuts_;
  SimSockets http_;
  SimSockets kv_;
  SimControl control_;
  const SimScene scene_;
  const kvtransfer::LinkAuthority link_authority_;
  std::vector<std::unique_ptr<SimWorker>> workers_;
  std::vector<router::StaticWorker> addresses_;
  std::unique_ptr<SimRouter> router_;
  SimProcess client_;
  TraceClients clients_;
  size_t sent_ = 0;
  Instant begins_{};
};

void TraceWorld::add_workers(net::Role role, uint32_t count) {
  const TraceJob& job = run_.job;
  for (uint32_t i = 0; i < count; ++i) {
    const auto number = static_cast<uint16_t>(workers_.size() + 1);
    net::ProcessSpec spec;
    spec.name = std::string(net::to_string(role)) + "-" + std::to_string(i);
    spec.engine_id = spec.name;
    spec.role = role;
    spec.model = "m";
    spec.host = "10.0.1." + std::to_string(number);
    spec.port = static_cast<uint16_t>(9000 + number);
    spec.link_keys = encode(link_authority_.issue(spec.engine_id));
    addresses_.push_back({.role = role, .address = {spec.host, spec.port}});
    workers_.push_back(std::make_unique<SimWorker>(
        scene_,
        SimWorkerOptions{
            .spec = spec,
            .engine = job.engine,
            .step_time = job.step_time,
            .reads_rows = false,
            .requests_queued = role == net::Role::kPrefill ? job.prefill_config.requests_queued
                                                           : job.decode_config.requests_queued,
            .queue_timeout = std::chrono::hours(1000),
            .shared_kv = false,
            .make_core = role == net::Role::kPrefill ? prefill::core_factory(job.prefill_config)
                                                     : decode::core_factory(job.decode_config),
            .sabotage = {},
            .kv = {.transport = kvtransfer::TransportKind::kTcp},
            .open_transport = kvtransfer::open_transport,
            .faults = {.step_fails = [] { return false; },
                       .reserve_fails = [] { return false; },
                       .crash = [] {},
                       .now = [this] { return loop_.now(); }}},
        random_.next(), [] {}));
  }
}

void TraceWorld::add_router() {
  net::ProcessSpec spec;
  spec.name = "router-0";
  spec.engine_id = spec.name;
  spec.role = net::Role::kRouter;
  router_ = std::make_unique<SimRouter>(
      scene_,
      SimRouterOptions{
          .spec = spec, .config = run_.job.router, .door = kDoor, .workers = addresses_},
      random_.next(), [] {});
}

// One after the other, so that few tasks wait.
void TraceWorld::send_next() {
  if (sent_ == run_.trace.size()) {
    return;
  }
  const TraceRequest next = scaled(run_.trace[sent_], run_.scale);
  loop_.at(begins_ + next.at, [this, next] {
    clients_.send(sent_++, next, run_.scale, kDoor);
    send_next();
  });
}

TraceResult TraceWorld::play() {
  add_workers(net::Role::kPrefill, run_.job.prefill);
  add_workers(net::Role::kDecode, run_.job.decode);
  add_workers(net::Role::kBoth, run_.job.both);
  add_router();
  begins_ = loop_.now() + kRouterReadyWithin;
  send_next();
  const Duration arrivals =
      run_.trace.empty() ? Duration::zero() : scaled(run_.trace.back(), run_.scale).at;
  const Instant until = begins_ + arrivals + run_.patience;
  while (!invariants_.broken() && !clients_.all_ended() && loop_.run_next(until)) {
  }
  TraceResult result{
      .violation = invariants_.violation(), .outcomes = clients_.outcomes(), .arrivals = arrivals};
  for (const auto& worker : workers_) {
    result.rows_reused += worker->rows_reused();
  }
  return result;
}

}  // namespace

TraceResult play(const TraceRun& run) { return TraceWorld(run).play(); }

Goodput goodput_of(const TraceResult& result, const Slo& slo) {
  const double time = seconds(result.arrivals);
  if (time <= 0) {
    return {};
  }
  const auto good = std::ranges::count_if(
      result.outcomes, [&](const TraceOutcome& outcome) { return slo.holds(outcome); });
  return {.offered = static_cast<double>(result.outcomes.size()) / time,
          .good = static_cast<double>(good) / time};
}

}  // namespace pdjob::simulation
