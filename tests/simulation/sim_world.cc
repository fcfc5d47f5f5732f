#include "tests/simulation/sim_world.h"

#include <utility>

#include "decode/decode_worker.h"
#include "prefill/prefill_worker.h"

namespace pdjob::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Instant kStart{std::chrono::hours(1)};
constexpr Duration kFaultsDuration = seconds(3);
// How long after the last fault and arrival every request must have ended.
constexpr Duration kLivenessBound = seconds(20);
// How long after the last request's end everything must be cleaned up. Leases and silences have
// timed out by then.
constexpr Duration kCleanupBound = seconds(5);
constexpr Duration kHeartbeatTimeout = milliseconds(400);
constexpr Duration kLoadInterval = milliseconds(50);
// How long a crashed worker takes to restart.
constexpr Duration kRestartTime = milliseconds(100);

std::vector<Ask> workload_of(const WorkloadShape& shape, uint64_t seed) {
  return make_workload(shape, kStart, mix(seed + 1));
}

}  // namespace

RunResult simulate(const RunOptions& options) { return SimWorld(options).run(); }

SimWorld::Shape SimWorld::draw_shape(uint64_t seed) {
  Random random(mix(seed + 2));
  const auto draw = [&random](uint64_t low, uint64_t high) {
    return static_cast<uint32_t>(low + random.below(high - low + 1));
  };
  Shape shape;
  shape.engine = {.sequences = draw(3, 8), .rows_per_sequence = 80, .batch_tokens = draw(8, 64)};
  shape.prefill_engine = {
      .sequences = draw(1, 8), .rows_per_sequence = 80, .batch_tokens = draw(8, 64)};
  shape.prefill_workers = draw(1, 3);
  shape.decode_workers = draw(1, 3);
  shape.both_workers = random.chance(0.15) ? 1 : 0;
  shape.chunk_tokens = draw(4, 64);
  shape.shared_kv = random.chance(0.6);
  shape.two_hop = random.chance(0.35);
  if (shape.two_hop && random.chance(0.5)) {
    shape.router.protocol = router::Protocol::kNixlPush;  // Uses two hops at first.
  }
  shape.router.prefill_policy = static_cast<router::PolicyKind>(random.below(6));
  shape.router.decode_policy = static_cast<router::PolicyKind>(random.below(6));
  if (random.chance(0.3)) {
    shape.router.prefill_in_flight = static_cast<uint32_t>(1 + random.below(3));
    shape.router.decode_in_flight = static_cast<uint32_t>(random.below(4));
  }
  shape.router.measured_load = random.chance(0.3);
  shape.router.hedge_quantile = random.chance(0.3) ? 0.5 : 0;
  shape.router.fallback =
      random.chance(0.5) ? router::Fallback::kDecodeAlone : router::Fallback::kRefuse;
  shape.router.queue_timeout = seconds(2);
  shape.workload = {.asks = draw(10, 60),
                    .duration = milliseconds(random.chance(0.3) ? draw(1, 20) : draw(100, 3000)),
                    .prompt_tokens_max = draw(1, 70),
                    .max_tokens_max = draw(1, 30),
                    .choices_max = 3,
                    .leaving = random.chance(0.5) ? 0.2 : 0.0};
  if (!make_fault_plan(kStart, kFaultsDuration, seed).empty()) {
    shape.workload.poisoned = 0.05;
    shape.router.requests_max = random.chance(0.2) ? draw(2, 20) : 4096;
    shape.requests_queued = random.chance(0.2) ? draw(1, 4) : 256;
  }
  if (Random(mix(seed + 6)).chance(0.3)) {
    shape.workload.models = {"m", "n"};
  }
  Random beginnings(mix(seed + 7));
  shape.prefix_cache = beginnings.chance(0.9);
  shape.workload.families = static_cast<uint32_t>(beginnings.below(5));
  shape.router.models = shape.workload.models;
  shape.router.hears_losses = true;
  Random killers(mix(seed + 8));
  if (killers.chance(0.4)) {
    shape.workload.killer = killers.chance(0.5) ? Kills::kPrompt : Kills::kToken;
  }
  return shape;
}

SimWorld::SimWorld(const RunOptions& options)
    : options_(options),
      shape_(draw_shape(options.seed)),
      trace_(options.print),
      random_(mix(options.seed + 3)),
      plan_(make_fault_plan(kStart, kFaultsDuration, options.seed)),
      network_(loop_, mix(options.seed + 4)),
      links_(*this),
      clients_(invariants_, workload_of(shape_.workload, options.seed),
               shape_.engine.rows_per_sequence),
      router_(*this, shape_.router, mix(options.seed + 5)) {}

SimWorld::~SimWorld() = default;

// --- processes

SimWorker* SimWorld::find(Incarnation incarnation) {
  Slot* slot = slot_of(incarnation);
  return slot == nullptr ? nullptr : slot->worker.get();
}

SimWorld::Slot* SimWorld::slot_of(Incarnation incarnation) {
  for (Slot& slot : slots_) {
    if (slot.worker && slot.incarnation == incarnation) {
      return &slot;
    }
  }
  return nullptr;
}

void SimWorld::post(Instant when, Incarnation incarnation, std::function<void(SimWorker&)> task) {
  loop_.at(when, [this, incarnation, task = std::move(task)] {
    Slot* slot = slot_of(incarnation);
    if (slot != nullptr && slot->frozen) {
      slot->backlog.push_back(task);
    } else if (slot != nullptr) {
      task(*slot->worker);
    }
  });
}

void SimWorld::to_router(SimChannel& channel, std::function<void(SimRouter&)> message) {
  loop_.at(network_.arrival(channel), [this, message = std::move(message)] { message(router_); });
}

std::unique_ptr<worker::WorkerCore> SimWorld::make_core(net::Role role) const {
  const auto factory = role == net::Role::kPrefill
                           ? prefill::core_factory({.chunk_tokens = shape_.chunk_tokens,
                                                    .requests_queued = shape_.requests_queued,
                                                    .prefix_cache = shape_.prefix_cache})
                           : decode::core_factory({.local_chunk_tokens = shape_.chunk_tokens,
                                                   .requests_queued = shape_.requests_queued,
                                                   .prefix_cache = shape_.prefix_cache});
  auto core = factory(engine_size(role));
  return options_.sabotage ? options_.sabotage(std::move(core)) : std::move(core);
}

void SimWorld::start_job() {
  const auto add = [this](const std::string& model, const char* word, net::Role role,
                          uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      Slot& slot = slots_.emplace_back();
      slot.name = (model == "m" ? "" : model + "-") + word + std::to_string(i);
      slot.role = role;
      slot.model = model;
    }
  };
  for (const std::string& model : shape_.workload.models) {
    add(model, "p", net::Role::kPrefill, shape_.prefill_workers);
    add(model, "d", net::Role::kDecode, shape_.decode_workers);
    add(model, "b", net::Role::kBoth, shape_.both_workers);
  }
  for (Slot& slot : slots_) {
    start_worker(slot);
  }
  publish();
  report_loads();
}

void SimWorld::start_worker(Slot& slot) {
  slot.incarnation = Incarnation{++incarnations_made_};
  slot.worker = std::make_unique<SimWorker>(
      *this, slot.incarnation, slot.name + "#" + std::to_string(slot.incarnation.value), slot.role,
      make_core(slot.role), shape_.requests_queued);
  slot.visible = true;
}

// --- the launcher

void SimWorld::publish() {
  std::vector<net::WorkerEntry> entries;
  for (const Slot& slot : slots_) {
    if (slot.visible) {
      const bool concurrent = slot.role == net::Role::kPrefill && !shape_.two_hop;
      entries.push_back({.name = slot.name,
                         .engine_id = std::to_string(slot.incarnation.value),
                         .role = slot.role,
                         .host = "h",
                         .port = 1,
                         .model = slot.model,
                         .kv_address = concurrent ? "{}" : ""});
    }
  }
  to_router(to_router_, [entries, left = left_](SimRouter& router) {
    router.on_workers_changed(entries, left);
  });
}

void SimWorld::report_loads() {
  for (const Slot& slot : slots_) {
    if (slot.worker && !slot.frozen) {
      const worker::CoreLoad load = slot.worker->load();
      const net::WorkerLoad reported{.requests_running = load.requests_running,
                                     .requests_queued = load.requests_queued,
                                     .tokens_queued = load.tokens_queued,
                                     .kv_rows_used = load.rows_used,
                                     .kv_rows_max = load.rows_max};
      to_router(to_router_,
                [name = slot.name, incarnation = slot.incarnation, reported](SimRouter& router) {
                  router.on_load(name, incarnation, reported);
                });
    }
  }
  loop_.after(kLoadInterval, [this] { report_loads(); });
}

// --- faults

void SimWorld::strike(const Fault& fault) {
  Slot& slot = slots_[fault.target % slots_.size()];
  switch (fault.kind) {
    case FaultKind::kKill:
      return kill(slot, fault.duration);
    case FaultKind::kFreeze:
      return freeze(slot, fault.duration);
    case FaultKind::kLinkBreaks:
      return break_link(fault.target);
    case FaultKind::kLegBreaks:
      return router_.break_leg(fault.target);
    case FaultKind::kStepFails:
      if (slot.worker) {
        slot.worker->fail_next_step();
      }
      return;
    case FaultKind::kSlow:
      if (slot.worker) {
        slot.worker->set_slowness(20);
        post(now() + fault.duration, slot.incarnation,
             [](SimWorker& worker) { worker.set_slowness(1); });
      }
      return;
  }
}

void SimWorld::crash(Incarnation incarnation, RequestId killer) {
  loop_.at(now(), [this, incarnation, killer] {
    if (Slot* slot = slot_of(incarnation)) {
      kill(*slot, kRestartTime, killer);
    }
  });
}

void SimWorld::kill(Slot& slot, Duration down, std::optional<RequestId> killer) {
  if (!slot.worker) {
    return;
  }
  trace(slot.name, killer ? "crashes" : "killed");
  SimChannel sockets;
  for (const router::LegId& leg : slot.worker->legs()) {
    to_router(sockets, [this, leg, killer, died = slot.incarnation](SimRouter& router) {
      if (router.on_broken(leg) && leg.request == killer) {
        clients_.on_kill(leg.request, died);
      }
    });
  }
  slot.worker.reset();
  slot.frozen = false;
  slot.backlog.clear();
  const auto notice = [this, &slot, died = slot.incarnation, killer] {
    left_.push_back({.name = slot.name,
                     .engine_id = std::to_string(died.value),
                     .cause = killer ? net::LossCause::kCrash : net::LossCause::kOutside});
    slot.visible = slot.visible && slot.incarnation != died;
    publish();
  };
  if (killer) {
    // The kernel first closes all connections of a process, then reports its end. So the router
    // sees what broke before it hears what other processes made of it.
    to_router(sockets, [this, died = slot.incarnation, notice](SimRouter& /*router*/) {
      links_.process_died(died);
      notice();
    });
  } else {
    links_.process_died(slot.incarnation);
    loop_.after(network_.delay(), notice);
  }
  loop_.after(down, [this, &slot] {
    trace(slot.name, "started again");
    start_worker(slot);
    publish();
  });
}

void SimWorld::freeze(Slot& slot, Duration duration) {
  if (!slot.worker || slot.frozen) {
    return;
  }
  trace(slot.name, "frozen");
  slot.frozen = true;
  const Incarnation incarnation = slot.incarnation;
  const auto still_frozen = [&slot, incarnation] {
    return slot.worker && slot.incarnation == incarnation && slot.frozen;
  };
  loop_.after(kHeartbeatTimeout, [this, &slot, still_frozen] {
    if (still_frozen()) {
      slot.visible = false;
      publish();
    }
  });
  loop_.after(duration, [this, &slot, still_frozen] {
    if (still_frozen()) {
      thaw(slot);
    }
  });
}

void SimWorld::thaw(Slot& slot) {
  trace(slot.name, "goes on");
  slot.frozen = false;
  // One by one: each task may kill the process.
  for (auto& task : std::exchange(slot.backlog, {})) {
    post(now(), slot.incarnation, std::move(task));
  }
  slot.visible = true;
  publish();
}

void SimWorld::break_link(uint64_t draw) {
  const std::vector<LinkId> all = links_.all();
  if (!all.empty()) {
    const LinkId link = all[draw % all.size()];
    trace("link", "breaks: " + std::to_string(link.value));
    post(now(), links_.receiver(link), [link](SimWorker& worker) {
      worker.receiver().fail(link, {ErrorCode::kUnavailable, "the KV link broke"});
    });
  }
}

// --- the run

RunResult SimWorld::run() {
  start_job();
  for (const Ask& ask : workload_of(shape_.workload, options_.seed)) {
    loop_.at(ask.arrives, [this, ask] { router_.arrive(ask); });
    if (ask.leaves != kNever) {
      loop_.at(ask.leaves, [this, id = ask.id] { router_.client_left(id); });
    }
  }
  for (const Fault& fault : plan_.faults) {
    loop_.at(fault.when, [this, fault] { strike(fault); });
  }
  // The last fault may have lasted until now.
  run_until(plan_.end + seconds(2));
  finish();
  return {.violation = invariants_.violation(),
          .trace_hash = trace_.hash(),
          .trace_lines = trace_.lines(),
          .counts = clients_.counts(),
          .pairs_suspected = router_.pairs_suspected(),
          .streams_continued = router_.streams_continued(),
          .rows_reused = rows_reused_};
}

void SimWorld::run_until(Instant when) {
  while (!invariants_.broken() && loop_.run_next(when)) {
  }
}

void SimWorld::finish() {
  for (const Instant end = now() + kLivenessBound;
       clients_.waiting_count() > 0 && now() < end && !invariants_.broken();) {
    run_until(now() + milliseconds(100));
    loop_.at(now() + milliseconds(100), [] {});
  }
  invariants_.expect(
      clients_.waiting_count() == 0,
      "every request has its end soon after the last fault, but not:", clients_.list_waiting());
  const Clients::Counts& counts = clients_.counts();
  const bool faultless = plan_.empty() && shape_.workload.killer == Kills::kNobody;
  invariants_.expect(!faultless || counts.failed + counts.refused + counts.aborted == 0,
                     "without faults every request is served, but not", counts.failed,
                     counts.refused, counts.aborted);
  run_until(now() + kCleanupBound);
  expect_idle("after the last request");
  // Every sequence must be free now: a request that needs all of them must succeed.
  for (Slot& slot : slots_) {
    const Ask probe{.id = RequestId{1'000'000},
                    .prompt = {.tokens = 1, .max_tokens = 2, .choices = shape_.engine.sequences}};
    post(now(), slot.incarnation, [probe](SimWorker& worker) {
      worker.on_leg({.leg = {.request = probe.id}, .ask = probe});
    });
    post(now() + seconds(1), slot.incarnation, [](SimWorker& worker) { worker.drain(); });
  }
  router_.drain();
  run_until(now() + seconds(2));
  expect_idle("after a request for all sequences");
  for (const Slot& slot : slots_) {
    invariants_.expect(slot.worker && slot.worker->drained(),
                       "an idle worker is drained at once, but not", slot.name);
  }
  invariants_.expect(router_.drained(), "an idle router is drained at once");
}

void SimWorld::expect_idle(const char* when) {
  for (const Slot& slot : slots_) {
    invariants_.expect(slot.worker && slot.worker->idle(), "nothing is left", when, "but at",
                       slot.name);
  }
  invariants_.expect(router_.idle(), "nothing is left", when, "but at the router");
}

}  // namespace pdjob::simulation
