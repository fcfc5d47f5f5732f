#include "launcher/simulator/sim_worker.h"

#include <sstream>
#include <string>
#include <utility>

#include <unistd.h>

#include "kvtransfer/open_transport.h"
#include "worker/core/fingerprint.h"

namespace pdjob::simulation {
namespace {

kvtransfer::EndpointAddress kv_address_of(const SimWorkerOptions& options) {
  return {.engine_id = options.spec.engine_id,
          .host = options.spec.engine_id,
          .port = 1,
          .unix_path = "@" + options.spec.engine_id,
          .host_id = options.spec.host};
}

std::string listener_name(const kvtransfer::EndpointAddress& address,
                          const kvtransfer::TransportTraits& transport) {
  return transport.unix_name != nullptr ? address.*transport.unix_name : address.host;
}

}  // namespace

// Counts the rows that prompts reuse.
class SimWorker::CountingCore final : public worker::WorkerCore {
 public:
  CountingCore(SimWorker& worker, std::unique_ptr<WorkerCore> core)
      : worker_(worker), core_(std::move(core)) {}

  void step(const worker::Event& event, Instant now,
            std::vector<worker::Effect>& effects) override {
    core_->step(event, now, effects);
    for (const worker::Effect& effect : effects) {
      if (const auto* reuse = std::get_if<worker::ReportReuse>(&effect)) {
        worker_.rows_reused_ += reuse->rows;
      }
    }
  }
  Instant next_wakeup() const override { return core_->next_wakeup(); }
  worker::CoreLoad load() const override { return core_->load(); }

 private:
  SimWorker& worker_;
  const std::unique_ptr<WorkerCore> core_;
};

SimWorker::SimWorker(const SimScene& scene, SimWorkerOptions options,
                     std::unique_ptr<SimEngine> engine, uint64_t seed, std::function<void()> end)
    : scene_(scene),
      options_(std::move(options)),
      process_(
          options_.spec.engine_id,
          {.loop = scene.loop, .seed = seed, .streams = &scene.http, .host = options_.spec.host}),
      engine_thread_(process_.make_thread()),
      kv_thread_(process_.make_thread()),
      engine_(std::move(engine)),
      engine_loop_(*engine_,
                   [&] {
                     const engine::EngineConfig& built = engine_->config();
                     return std::make_unique<CountingCore>(
                         *this, options_.make_core({.sequences = built.sequences,
                                                    .rows_per_sequence = built.tokens_per_sequence,
                                                    .batch_tokens = built.batch_tokens}));
                   }(),
                   {.kv_lease = options_.kv.lease,
                    .now = [this] { return engine_now(); },
                    .sink = [this](worker::OutputBatch batch) { take_outputs(std::move(batch)); },
                    .transfer_seed = seed}),
      kv_address_(kv_address_of(options_)),
      endpoint_({.timers = *kv_thread_,
                 .network = *this,
                 .config = options_.kv,
                 .transports = *kvtransfer::transports_of(options_.kv, std::nullopt),
                 .identity = {.engine_id = options_.spec.engine_id,
                              .keys = *kvtransfer::parse_link_keys(options_.spec.link_keys),
                              .fingerprint = worker::link_fingerprint(engine_->facts())},
                 .host_id = kv_address_.host_id,
                 .emit = [this](kvtransfer::EndpointEvent event) { command(std::move(event)); },
                 .open_transport = options_.open_transport}) {
  const auto transports = *kvtransfer::transports_of(options_.kv, std::nullopt);
  for (const kvtransfer::TransportTraits& each : transports) {
    scene_.kv.listen(listener_name(kv_address_, each), *kv_thread_,
                     [this, kind = each.kind](SimSockets::Socket socket) {
                       endpoint_.sender().accept(std::move(socket), kind);
                     });
  }
  engine_loop_.attach(*this);
  api_ = std::make_unique<worker::OpenaiApi>(
      worker::OpenaiApiOptions{.name = options_.spec.name,
                               .role = options_.spec.role,
                               .kv = kv_address_,
                               .key = options_.spec.key,
                               .queue_timeout = options_.queue_timeout},
      *engine_, static_cast<worker::EngineQueue&>(*this), metrics_, [](const auto& /*answer*/) {});
  server_ = *net::HttpServer::open(process_, *api_,
                                   {.host = options_.spec.host, .port = options_.spec.port});
  api_->attach(*server_, process_);
  member_.emplace(
      worker::WorkerMember::Parts{.api = *api_,
                                  .server = *server_,
                                  .drain_engine = [this] { command(worker::DrainAsked{}); },
                                  .end = std::move(end),
                                  .change_role = {},  // A new start.
                                  .prepare = [this](const auto& order) { prepare(order); }});
  net::WorkerEntry entry = api_->entry(options_.spec.host, server_->port());
  entry.engine_id = options_.spec.engine_id;
  entry.weight_version = options_.spec.weights.version;
  if (!options_.spec.weights.version.empty()) {
    entry.model_digest = options_.spec.weights.digest;
  }
  if (options_.two_hop) {
    entry.kv_address.clear();
  }
  auto in_job = join_job(scene_, process_, *member_, options_.spec);
  in_job_ = in_job.get();
  member_->serve(std::move(in_job), std::move(entry));
}

std::unique_ptr<net::JobMember> join_job(const SimScene& scene, SimProcess& process,
                                         net::JobMember::Handler& handler,
                                         const net::ProcessSpec& spec) {
  auto member =
      std::make_unique<net::JobMember>(process, handler, spec.name, std::chrono::seconds(5));
  member->watch_cores([&process] { return RunDelays{{getpid(), process.waited()}}; });
  if (!spec.control.empty()) {
    member->attach(scene.join(process, *member, spec));
  }
  return member;
}

// As by kill -9: the kernel closes its sockets.
SimWorker::~SimWorker() {
  process_.die();
  scene_.http.forget(process_);
  scene_.kv.forget(*kv_thread_);
}

// Weights are only a name here. Each order takes its time, and its repetitions do, too.
void SimWorker::prepare(const net::PrepareWeights& order) {
  if (order.path.empty()) {
    return;
  }
  process_.call_at(process_.now() + std::chrono::milliseconds(200), [this, order] {
    member_->tell(net::WeightsPrepared{.engine_id = options_.spec.engine_id,
                                       .order = order.order,
                                       .path = order.path,
                                       .digest = "digest of " + order.path});
  });
}

void SimWorker::terminate() {
  process_.post([this] { in_job_->stop(); });
}

std::string SimWorker::busy_with() const {
  std::ostringstream out;
  const kvtransfer::EndpointStats stats = endpoint_.stats();
  const net::WorkerLoad load = api_->load();
  const auto name = [&](uint64_t count, const char* what) {
    if (count > 0) {
      out << ' ' << count << ' ' << what;
    }
  };
  name(stats.offers_alive, "offers");
  name(stats.fetches_alive, "fetches");
  name(stats.waits_alive, "waits");
  name(server_->replies_alive(), "exchanges");
  name(load.requests_running, "requests running");
  name(load.requests_queued, "requests queued");
  name(load.kv_rows_used, "rows used");
  return out.str();
}

// --- the engine thread

Instant SimWorker::engine_now() {
  if (!in_turn_) {
    return scene_.loop.now();
  }
  const Duration taken = engine_->take_time();
  busy_ += taken;
  busy_until_ += taken;
  return busy_until_;
}

worker::Standstill SimWorker::standstill() const {
  const Instant since = engine_->hangs_since();
  return {.lasted = since == kNever ? Duration::zero() : scene_.loop.now() - since};
}

Status SimWorker::submit(worker::GenerationRequest request) {
  command(worker::bound(std::move(request)));
  return ok();
}

void SimWorker::command(worker::EngineCommand command) {
  inbox_.push_back(std::move(command));
  wake(scene_.loop.now());
}

void SimWorker::wake(Instant when) {
  when = std::max(when, busy_until_);
  if (when == kNever || (wakes_ != kNever && wakes_ <= when)) {
    return;
  }
  wakes_ = when;
  engine_thread_->call_at(when, [this, when] {
    if (wakes_ == when) {
      turn();
    }
  });
}

void SimWorker::turn() {
  wakes_ = kNever;
  in_turn_ = true;
  busy_until_ = scene_.loop.now();
  auto commands = std::exchange(inbox_, {});
  const Instant due = engine_loop_.turn(commands);
  engine_now();
  in_turn_ = false;
  wake(inbox_.empty() ? due : Instant::min());
}

void SimWorker::take_outputs(worker::OutputBatch batch) {
  process_.post_at(engine_now(),
                   [this, batch = std::move(batch)]() mutable { member_->take(std::move(batch)); });
}

// --- the KV thread

void SimWorker::offer(TransferId id, kvtransfer::Region source, Instant deadline,
                      kvtransfer::OfferTerms terms) {
  to_kv([=, this] { endpoint_.sender().offer(id, source, deadline, terms); });
}

void SimWorker::refuse(TransferId id, Error reason) {
  to_kv([=, this] { endpoint_.sender().refuse(id, reason); });
}

void SimWorker::tell(kvtransfer::EndpointAddress peer, kvtransfer::BlockNews news) {
  to_kv([=, this] { endpoint_.receiver().tell(peer, news); });
}

void SimWorker::rows_ready(TransferId id, uint32_t ready) {
  to_kv([=, this] { endpoint_.sender().rows_ready(id, ready); });
}

void SimWorker::commit(TransferId id, uint32_t rows, std::vector<std::byte> tail) {
  end_of_offer([=, this] { endpoint_.sender().commit(id, rows, tail, kv_thread_->now()); });
}

void SimWorker::withdraw(TransferId id, Error reason) {
  end_of_offer([=, this] { endpoint_.sender().withdraw(id, reason); });
}

// Other transfers do not wait for it.
void SimWorker::end_of_offer(std::function<void()> call) {
  if (options_.commit_delay == Duration::zero()) {
    to_kv(std::move(call));
  } else {
    kv_thread_->call_at(engine_now() + options_.commit_delay, std::move(call));
  }
}

void SimWorker::await(TransferId id, kvtransfer::EndpointAddress peer, Instant until) {
  to_kv([=, this] { endpoint_.receiver().await(id, peer, until); });
}

void SimWorker::fetch(TransferId id, kvtransfer::EndpointAddress peer, kvtransfer::Region target,
                      uint32_t rows, Instant deadline) {
  if (options_.misdirect) {
    options_.misdirect(peer);
  }
  to_kv([=, this] { endpoint_.receiver().fetch(id, peer, target, rows, deadline); });
}

void SimWorker::cancel(TransferId id) {
  to_kv([=, this] { endpoint_.receiver().cancel(id); });
}

Result<std::unique_ptr<kvtransfer::LinkSocket>> SimWorker::connect(
    const kvtransfer::EndpointAddress& peer, const kvtransfer::TransportTraits& transport) {
  return scene_.kv.connect(
      listener_name(peer, transport), *kv_thread_,
      transport.unix_name != nullptr ? SimSockets::Reach::kMachine : SimSockets::Reach::kNetwork);
}

}  // namespace pdjob::simulation
