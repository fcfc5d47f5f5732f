#include "launcher/simulator/trace_world.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "decode/decode_worker.h"
#include "kvtransfer/link/link_keys.h"
#include "kvtransfer/open_transport.h"
#include "launcher/simulator/modelled_engine.h"
#include "launcher/simulator/sim_router.h"
#include "launcher/simulator/sim_worker.h"
#include "prefill/prefill_worker.h"

namespace pdjob::simulation {
namespace {

net::HttpAddress router_door() { return {"10.0.0.1", 8000}; }
// A network of one machine room.
constexpr SimSockets::Wire kWire{
    .latency_max = std::chrono::microseconds(100), .buffer_bytes = size_t{1} << 20, .whole = true};
// The router knows its workers by then.
constexpr Duration kRouterReadyWithin = std::chrono::seconds(3);

SimSockets::Wire kv_wire(StepTime::Time row_time) {
  SimSockets::Wire wire = kWire;
  wire.per_byte = row_time / kModelledRowBytes;
  return wire;
}

class TraceWorld {
 public:
  explicit TraceWorld(const TraceRun& run)
      : run_(run),
        random_(mix(run.seed)),
        http_(loop_, kWire, Random(random_.next())),
        kv_(loop_, kv_wire(run.job.kv_row_time), Random(random_.next())),
        scene_{.loop = loop_, .http = http_, .kv = kv_, .join = {}},
        link_authority_("simulated"),
        client_("client",
                {.loop = loop_, .seed = client_seed(), .streams = &http_, .host = "10.0.0.8"}),
        clients_(client_, run.trace.size()) {}

  TraceResult play();

 private:
  void add_workers(net::Role role, uint32_t count);
  void add_router();
  void send_next();
  void sample();
  // One draw is left out, so that recorded figures keep their seeds.
  uint64_t client_seed() {
    random_.next();
    return random_.next();
  }

  const TraceRun& run_;
  SimLoop loop_;
  Random random_;
  SimSockets http_;
  SimSockets kv_;
  const SimScene scene_;
  const kvtransfer::LinkAuthority link_authority_;
  std::vector<std::unique_ptr<SimWorker>> workers_;
  std::vector<net::Role> roles_;          // Of these.
  std::vector<Duration> busy_at_sample_;  // The same.
  std::vector<TraceSample> samples_;
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
    const bool prefills = role == net::Role::kPrefill;
    worker::CoreFactory make_core = prefills ? prefill::core_factory(job.prefill_config)
                                             : decode::core_factory(job.decode_config);
    if (run_.around) {
      make_core = run_.around(spec.engine_id, std::move(make_core));
    }
    roles_.push_back(role);
    workers_.push_back(std::make_unique<SimWorker>(
        scene_,
        SimWorkerOptions{.spec = spec,
                         .queue_timeout = job.worker_queue_timeout,
                         .make_core = std::move(make_core),
                         .commit_delay = job.kv_transfer_time,
                         .kv = {.transport = kvtransfer::TransportKind::kTcp},
                         .open_transport = kvtransfer::open_transport},
        std::make_unique<ModelledEngine>(ModelledEngine::Options{
            .size = prefills ? job.prefill_engine.value_or(job.engine) : job.engine,
            .model = spec.model,
            .step_time = job.step_time}),
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
          .spec = spec, .config = run_.job.router, .door = router_door(), .workers = addresses_},
      random_.next(), [] {});
}

// One after the other, so that few tasks wait.
void TraceWorld::send_next() {
  if (sent_ == run_.trace.size()) {
    return;
  }
  const TraceRequest next = scaled(run_.trace[sent_], run_.scale);
  loop_.at(begins_ + next.at + run_.job.request_time, [this, next] {
    clients_.send(sent_++, next, run_.scale, router_door(), begins_ + next.at);
    send_next();
  });
}

void TraceWorld::sample() {
  constexpr std::array kRoles{net::Role::kPrefill, net::Role::kDecode, net::Role::kBoth};
  TraceSample now{.at = loop_.now() - begins_};
  std::array<uint32_t, kRoles.size()> counts{};
  busy_at_sample_.resize(workers_.size());
  for (size_t i = 0; i < workers_.size(); ++i) {
    const auto role = static_cast<size_t>(std::ranges::find(kRoles, roles_[i]) - kRoles.begin());
    TraceSample::OfRole& sum = now.roles[role];
    const net::WorkerLoad load = workers_[i]->load();
    const Duration busy = workers_[i]->busy();
    sum.busy +=
        seconds(busy - std::exchange(busy_at_sample_[i], busy)) / seconds(run_.sample_every);
    sum.running += load.requests_running;
    sum.queued += load.requests_queued;
    sum.kv_rows_used += load.kv_rows_used;
    ++counts[role];
  }
  for (size_t role = 0; role < kRoles.size(); ++role) {
    now.roles[role].busy /= std::max(counts[role], 1U);
  }
  samples_.push_back(now);
  loop_.after(run_.sample_every, [this] { sample(); });
}

TraceResult TraceWorld::play() {
  add_workers(net::Role::kPrefill, run_.job.prefill);
  add_workers(net::Role::kDecode, run_.job.decode);
  add_workers(net::Role::kBoth, run_.job.both);
  add_router();
  begins_ = loop_.now() + kRouterReadyWithin;
  send_next();
  if (run_.sample_every > Duration::zero()) {
    loop_.at(begins_ + run_.sample_every, [this] { sample(); });
  }
  const Duration arrivals =
      run_.trace.empty() ? Duration::zero() : scaled(run_.trace.back(), run_.scale).at;
  const Instant until = begins_ + arrivals + run_.patience;
  while (!clients_.all_ended() && loop_.run_next(until)) {
  }
  TraceResult result{.outcomes = clients_.outcomes(),
                     .samples = std::move(samples_),
                     .arrivals = arrivals,
                     .lasted = loop_.now() - begins_};
  for (size_t i = 0; i < workers_.size(); ++i) {
    const kvtransfer::EndpointStats kv = workers_[i]->kv_stats();
    result.workers.push_back({.role = roles_[i],
                              .busy = workers_[i]->busy(),
                              .kv_rows_sent = kv.bytes_sent / kModelledRowBytes,
                              .kv_transfers = kv.transfers_sent,
                              .rows_reused = workers_[i]->rows_reused()});
    result.rows_reused += workers_[i]->rows_reused();
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
