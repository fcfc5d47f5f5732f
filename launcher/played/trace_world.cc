#include "launcher/played/trace_world.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/check.h"
#include "decode/decode_worker.h"
#include "kvtransfer/link/link_keys.h"
#include "kvtransfer/open_transport.h"
#include "launcher/simulator/modelled_engine.h"
#include "launcher/simulator/sim_router.h"
#include "launcher/simulator/sim_worker.h"
#include "prefill/prefill_worker.h"

namespace pdjob::simulation {
namespace {

net::HttpAddress router_door() { return *net::parse_http_address(kRouterDoor); }
// A network of one machine room.
constexpr SimSockets::Wire kWire{
    .latency_max = std::chrono::microseconds(100), .buffer_bytes = size_t{1} << 20, .whole = true};
// The router knows its workers by then.
constexpr Duration kRouterReadyWithin = std::chrono::seconds(3);
// A launched job, beside the time that its workers take to start.
constexpr Duration kReadyWithin = std::chrono::minutes(1);

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
        scene_{.loop = loop_,
               .http = http_,
               .kv = kv_,
               .join =
                   [this](SimProcess& process, net::ControlClient::Handler& handler,
                          const net::ProcessSpec& spec) {
                     return launcher_->join(process, handler, spec);
                   }},
        link_authority_("simulated"),
        client_("client",
                {.loop = loop_, .seed = client_seed(), .streams = &http_, .host = "10.0.0.8"}),
        clients_(client_, run.trace.size()) {}

  TraceResult play();

 private:
  struct Worker {
    SimWorker* process = nullptr;
    net::Role role = net::Role::kBoth;
    Instant began{};
    Duration busy_at_sample{};
  };

  void start();
  void launch();
  std::unique_ptr<SimWorker> make_worker(const net::ProcessSpec& spec, std::function<void()> end);
  std::unique_ptr<SimRouter> make_router(const net::ProcessSpec& spec, std::function<void()> end);
  void note_end(const SimMember& member);
  void add_workers(net::Role role, uint32_t count);
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
  TraceResult result_;
  std::vector<Worker> workers_;  // That run.
  std::vector<std::unique_ptr<SimMember>> by_hand_;
  std::vector<router::StaticWorker> addresses_;  // Of workers by hand.
  std::optional<PlayedLauncher> launcher_;
  SimProcess client_;
  TraceClients clients_;
  size_t sent_ = 0;
  Instant begins_{};
};

std::unique_ptr<SimWorker> TraceWorld::make_worker(const net::ProcessSpec& spec,
                                                   std::function<void()> end) {
  const TraceJob& job = run_.job;
  const bool prefills = spec.role == net::Role::kPrefill;
  worker::CoreFactory make_core = prefills ? prefill::core_factory(job.prefill_config)
                                           : decode::core_factory(job.decode_config);
  if (run_.around) {
    make_core = run_.around(spec.engine_id, std::move(make_core));
  }
  auto worker = std::make_unique<SimWorker>(
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
      random_.next(), std::move(end));
  workers_.push_back({.process = worker.get(), .role = spec.role, .began = loop_.now()});
  return worker;
}

std::unique_ptr<SimRouter> TraceWorld::make_router(const net::ProcessSpec& spec,
                                                   std::function<void()> end) {
  return std::make_unique<SimRouter>(
      scene_,
      SimRouterOptions{
          .spec = spec, .config = run_.job.router, .door = router_door(), .workers = addresses_},
      random_.next(), std::move(end));
}

void TraceWorld::add_workers(net::Role role, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    const auto number = static_cast<uint16_t>(workers_.size() + 1);
    net::ProcessSpec spec;
    spec.name = std::string(net::to_string(role)) + "-" + std::to_string(i);
    spec.engine_id = spec.name;
    spec.role = role;
    spec.model = kTraceModel;
    spec.host = "10.0.1." + std::to_string(number);
    spec.port = static_cast<uint16_t>(9000 + number);
    spec.link_keys = encode(link_authority_.issue(spec.engine_id));
    addresses_.push_back({.role = role, .address = {spec.host, spec.port}});
    by_hand_.push_back(make_worker(spec, [] {}));
  }
}

void TraceWorld::start() {
  add_workers(net::Role::kPrefill, run_.job.prefill);
  add_workers(net::Role::kDecode, run_.job.decode);
  add_workers(net::Role::kBoth, run_.job.both);
  net::ProcessSpec spec;
  spec.name = "router-0";
  spec.engine_id = spec.name;
  spec.role = net::Role::kRouter;
  by_hand_.push_back(make_router(spec, [] {}));
  begins_ = loop_.now() + kRouterReadyWithin;
}

// The load begins when the job is ready.
void TraceWorld::launch() {
  const LaunchedJob& job = *run_.job.launched;
  launcher_.emplace(
      job,
      PlayedLauncher::World{
          .loop = loop_,
          .http = http_,
          .begin = [this](const net::ProcessSpec& spec,
                          std::function<void()> end) -> std::unique_ptr<SimMember> {
            if (spec.role == net::Role::kRouter) {
              return make_router(spec, std::move(end));
            }
            return make_worker(spec, std::move(end));
          },
          .ends = [this](const SimMember& member) { note_end(member); },
          .say =
              [this](const std::string& text) {
                result_.decisions.push_back({.at = loop_.now() - begins_, .text = text});
              }},
      random_.next());
  const Instant until = loop_.now() + job.start_time + kReadyWithin;
  while (!launcher_->ready() && launcher_->failure().empty() && loop_.run_next(until)) {
  }
  PDJOB_CHECK(launcher_->ready(), "a played job gets ready, but", launcher_->failure());
  begins_ = loop_.now();
  result_.decisions.clear();
}

void TraceWorld::note_end(const SimMember& member) {
  const auto found = std::ranges::find(workers_, &member, [](const Worker& worker) {
    return static_cast<const SimMember*>(worker.process);
  });
  if (found == workers_.end()) {
    return;
  }
  const kvtransfer::EndpointStats kv = found->process->kv_stats();
  const Duration starting = launcher_ ? run_.job.launched->start_time : Duration::zero();
  result_.workers.push_back({.role = found->role,
                             .lived = loop_.now() - std::max(found->began - starting, begins_),
                             .busy = found->process->busy(),
                             .kv_rows_sent = kv.bytes_sent / kModelledRowBytes,
                             .kv_transfers = kv.transfers_sent,
                             .rows_reused = found->process->rows_reused()});
  result_.rows_reused += found->process->rows_reused();
  workers_.erase(found);
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
  for (Worker& worker : workers_) {
    const auto role = static_cast<size_t>(std::ranges::find(kRoles, worker.role) - kRoles.begin());
    TraceSample::OfRole& sum = now.roles[role];
    const net::WorkerLoad load = worker.process->load();
    const Duration busy = worker.process->busy();
    sum.busy +=
        seconds(busy - std::exchange(worker.busy_at_sample, busy)) / seconds(run_.sample_every);
    sum.running += load.requests_running;
    sum.queued += load.requests_queued;
    sum.kv_rows_used += load.kv_rows_used;
    ++sum.workers;
  }
  for (TraceSample::OfRole& role : now.roles) {
    role.busy /= std::max(role.workers, 1U);
  }
  result_.samples.push_back(now);
  loop_.after(run_.sample_every, [this] { sample(); });
}

TraceResult TraceWorld::play() {
  run_.job.launched ? launch() : start();
  send_next();
  if (run_.sample_every > Duration::zero()) {
    loop_.at(begins_ + run_.sample_every, [this] { sample(); });
  }
  result_.arrivals =
      run_.trace.empty() ? Duration::zero() : scaled(run_.trace.back(), run_.scale).at;
  const Instant until = begins_ + result_.arrivals + run_.patience;
  while (!clients_.all_ended() && loop_.run_next(until)) {
  }
  result_.outcomes = clients_.outcomes();
  result_.lasted = loop_.now() - begins_;
  while (!workers_.empty()) {
    note_end(*workers_.front().process);
  }
  return std::move(result_);
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
