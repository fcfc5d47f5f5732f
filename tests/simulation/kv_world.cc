#include "tests/simulation/kv_world.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "kvtransfer/open_transport.h"
#include "tests/simulation/faulty_sockets.h"
#include "tests/simulation/kv_store_life.h"
#include "tests/simulation/kv_worker.h"
#include "tests/simulation/lying_peer.h"
#include "tests/support/fault_transport.h"

namespace pdjob::simulation {
namespace {

using kvtransfer::FaultKind;
using kvtransfer::FaultPlan;
using kvtransfer::TransportKind;
using std::chrono::milliseconds;

constexpr uint64_t kTransfers = 12;
constexpr uint64_t kLateTransfers = 3;  // When all faults have healed.
constexpr size_t kReceivers = 2;
constexpr Duration kLease = milliseconds(600);
constexpr Duration kConnectTimeout = milliseconds(100);
constexpr Duration kStarts = milliseconds(500);  // All transfers start within this time.
constexpr Duration kFaults = milliseconds(900);
constexpr Duration kHealed = milliseconds(3000);
constexpr Duration kFetchDeadline = milliseconds(800);
constexpr Duration kWaits = 2 * kLease;        // How long a queued transfer may wait for rows.
constexpr Duration kAll = milliseconds(6000);  // By then every lease and deadline has ended.
constexpr Duration kTcpGivesUp = milliseconds(800);
constexpr uint64_t kFaultsMax = 6;

constexpr uint64_t kHeldMax = 3;  // Prompts whose blocks a worker tells the store of.
constexpr uint64_t kWantedOfHeld = 2;
constexpr uint64_t kStoreFaultsMax = 3;
constexpr Duration kBlockMoves = milliseconds(200);  // If nothing fails.
constexpr uint32_t kPromptBlocksMax = 3;
constexpr uint64_t kBranches = 2;
constexpr std::array<uint32_t, 2> kBlockRows{24, 7};  // Of each model.

Duration below(Random& random, Duration bound) {
  return Duration(random.below(static_cast<uint64_t>(bound.count())));
}

// How likely things go wrong in a run.
struct Dials {
  double transport_fails = 0;
  double nccl_fails = 0, nccl_hangs = 0;
  Lies lies;
  bool lying() const { return lies.lost + lies.repeated > 0; }
};

Dials draw_dials(Random& random) {
  const auto dial = [&](double max) { return random.chance(0.25) ? max * random.unit() : 0; };
  return {.transport_fails = dial(0.3),
          .nccl_fails = dial(0.2),
          .nccl_hangs = dial(0.2),
          .lies = {.lost = dial(0.05), .repeated = dial(0.05)}};
}

TransportKind draw_transport(Random& random) {
  constexpr std::array kTransports = {TransportKind::kShm, TransportKind::kTcp,
                                      TransportKind::kNccl};
  return kTransports.at(random.below(kTransports.size()));
}

FaultPlan draw_fault(Random& random) {
  return {.kind = static_cast<FaultKind>(
              1 + random.below(static_cast<uint64_t>(FaultKind::kLoseArrival))),
          .range = static_cast<uint32_t>(random.below(3)),
          .bit = random.next()};
}

// Prompts are paths in a forest of blocks: numbers below kBranches begin, and each number has
// kBranches successors. Each tree has an owner.
constexpr uint64_t successor_of(uint64_t number, uint64_t branch) {
  return kBranches * (number + 1) + branch;
}

KvPrompt draw_prompt(Random& random) {
  const uint64_t model = random.below(kBlockRows.size());
  KvPrompt prompt{.rows = kBlockRows.at(model), .names = {}};
  uint64_t number = random.below(kBranches);
  prompt.owner = kvtransfer::BlockOwner{1 + number};
  for (uint64_t left = 1 + random.below(kPromptBlocksMax); left > 0; --left) {
    prompt.names.push_back({.high = model + 1, .low = number + 1});
    number = successor_of(number, random.chance(0.7) ? 0 : random.below(kBranches));
  }
  return prompt;
}

std::vector<uint64_t> owners_of_blocks() {
  uint64_t last = kBranches - 1;
  for (uint32_t depth = 1; depth < kPromptBlocksMax; ++depth) {
    last = successor_of(last, kBranches - 1);
  }
  std::vector<uint64_t> owners;
  for (uint64_t model = 0; model < kBlockRows.size(); ++model) {
    for (uint64_t number = 0; number <= last; ++number) {
      const BlockName name{.high = model + 1, .low = number + 1};
      owners.push_back(owner_of(name));
      owners.push_back(false_owner_of(name));
    }
  }
  return owners;
}

store::BlockStoreOptions draw_store(Random& random) {
  return {.memory_bytes = (1 + random.below(3)) * 4096,
          .disk_bytes = random.chance(0.5) ? (1 + random.below(6)) * 4096 : 0,
          .fetches_max = 2 + random.below(3),
          .queued_max = 4 + random.below(8),
          .offers_max = 2 + random.below(8),
          .offer_timeout = milliseconds(100 + random.below(400)),
          .fetch_timeout = milliseconds(50 + random.below(100)),
          .disk_rest = milliseconds(20)};
}

class KvWorld {
 public:
  explicit KvWorld(const KvRunOptions& options)
      : faultless_(options.seed % 4 == 0),
        store_faultless_(options.seed % 8 == 0),
        trace_(options.print),
        random_(mix(options.seed)),
        sockets_(loop_, random_.next()),
        dials_(faultless_ ? Dials{} : draw_dials(random_)),
        stops_at_work_(random_.chance(0.2)),
        fetchers_(random_.chance(0.3) ? kReceivers : 1),
        faults_end_(loop_.now() + kFaults),
        scene_{
            .loop = loop_,
            .sockets = sockets_,
            .trace = trace_,
            .invariants = invariants_,
            .config = {.transport = draw_transport(random_),
                       .lease = kLease,
                       .connect_timeout = kConnectTimeout,
                       .tcp = {.streams = 1 + static_cast<uint32_t>(random_.below(2))},
                       .nccl = {.links_max = 1 + static_cast<uint32_t>(random_.below(3)),
                                .init_timeout = milliseconds(300),
                                .slab_timeout = milliseconds(150),
                                .abort_timeout = milliseconds(100)}},
            .open_transport =
                kvtransfer::with_faults([this](TransferId /*id*/) { return plan_of_transfer(); }),
            .nccl = nccl_,
            .block_owners = owners_of_blocks(),
            .worker_gives = [this](const std::string& name) { may_stop(name); },
            .given_rows_change =
                [this] { return faults_last() && !store_faultless_ && blocks_random_.chance(0.1); },
            .blocks_fail = !store_faultless_,
            .bytes_change = dials_.transport_fails > 0},
        blocks_random_(mix(options.seed + 1)),
        store_options_(store_faultless_ ? store::BlockStoreOptions{.memory_bytes = 1 << 16}
                                        : draw_store(blocks_random_)),
        holder_receives_(blocks_random_.chance(0.5)),
        wanters_(blocks_random_.chance(0.1) ? 2 : 1),
        holders_lie_(!store_faultless_ && blocks_random_.chance(0.4)) {
    nccl_.fails = [this] { return faults_last() && random_.chance(dials_.nccl_fails); };
    nccl_.hangs = [this] { return faults_last() && random_.chance(dials_.nccl_hangs); };
    if (dials_.lying()) {
      sockets_.each_end_says([this] { return liar(); });
    }
    sender_ = start('P');
    for (auto& receiver : receivers_) {
      receiver = start('D');
    }
    store_ = start_store();
  }

  KvRunResult run() {
    for (uint64_t number = 1; number <= kTransfers; ++number) {
      plan_transfer({.high = 0, .low = number}, loop_.now() + below(random_, kStarts));
    }
    const uint64_t faults = faultless_ ? 0 : random_.below(kFaultsMax + 1);
    for (uint64_t i = 0; i < faults; ++i) {
      loop_.at(loop_.now() + below(random_, kFaults), [this] { make_fault(); });
    }
    plan_blocks();
    for (uint64_t number = 1; number <= kLateTransfers; ++number) {
      const TransferId id{.high = 0, .low = kTransfers + number};
      const Instant when = loop_.now() + kHealed;
      later(when, sender_, [=, this](KvWorker& prefill) { compute(prefill, id, 5, Random(0)); });
      fetch(when, id, number % fetchers_, 5, 50);
    }
    const Instant end = loop_.now() + kAll;
    while (!invariants_.broken() && loop_.run_next(end)) {
    }
    if (!invariants_.broken()) {
      check_end();
    }
    return {.violation = invariants_.violation(),
            .trace_hash = trace_.hash(),
            .trace_lines = trace_.lines(),
            .done = scene_.done,
            .failed = scene_.failed,
            .released_late = scene_.released_late,
            .blocks_kept = scene_.blocks_kept,
            .blocks_read = scene_.blocks_read,
            .blocks_loaded = scene_.blocks_loaded,
            .blocks_missing = scene_.blocks_missing,
            .blocks_failed = scene_.blocks_failed};
  }

 private:
  using Worker = std::shared_ptr<KvWorker>;
  using Store = std::unique_ptr<KvStoreLife>;

  Worker start(char role) {
    const bool slow = unlucky(0.2) || (stops_at_work_ && !faultless_);
    return std::make_shared<KvWorker>(scene_, role + std::to_string(++lives_), slow,
                                      random_.next());
  }

  Store start_store() {
    return std::make_unique<KvStoreLife>(scene_, "S" + std::to_string(++lives_),
                                         !faultless_ && blocks_random_.chance(0.2),
                                         blocks_random_.next(), store_options_, disk_);
  }

  bool faults_last() const { return loop_.now() < faults_end_; }
  bool unlucky(double chance) { return !faultless_ && random_.chance(chance); }

  // Runs `work` in the worker that is alive in `slot` at that time.
  template <class Work>
  void later(Instant when, Worker& slot, Work work) {
    loop_.at(when, [&slot, work] {
      KvWorker& worker = *slot;
      worker.process().post([&worker, work] { work(worker); });
    });
  }

  FaultPlan plan_of_transfer() {
    return faults_last() && random_.chance(dials_.transport_fails) ? draw_fault(random_)
                                                                   : FaultPlan{};
  }

  SimSockets::Filter liar() {
    return [peer = std::make_shared<LyingPeer>(dials_.lies, random_.next()),
            this](const std::string& bytes) { return peer->says(bytes, faults_last()); };
  }

  void plan_transfer(TransferId id, Instant start) {
    const auto rows = static_cast<uint32_t>(1 + random_.below(kKvRowsMax));
    const size_t to = random_.below(fetchers_);
    const Instant offered = start;
    const bool queues = random_.chance(0.3);
    if (queues) {
      later(start + below(random_, milliseconds(30)), receivers_[to], [=, this](KvWorker& decode) {
        decode.await(id, sender_->address(), loop_.now() + 2 * kWaits);
      });
      start += milliseconds(30) + below(random_, kWaits);
    }
    if (!unlucky(0.1)) {
      fetch(start + below(random_, milliseconds(30)), id, to, rows, 50);
    } else if (queues) {
      later(start, receivers_[to], [=](KvWorker& decode) { decode.cancel(id); });
    }
    if (unlucky(0.1)) {
      later(start + below(random_, milliseconds(100)), receivers_[to],
            [=](KvWorker& decode) { decode.cancel(id); });
      // The transfer may be fetched again at once. A lying peer is excluded: its answer to the
      // first fetch looks like one to the second.
      if (!dials_.lying() && unlucky(0.5)) {
        fetch(start + below(random_, milliseconds(150)), id, to, rows, 5);
      }
    }
    if (!unlucky(0.1)) {
      // The offer may come long before the fetch.
      later(offered + below(random_, milliseconds(30)), sender_,
            [=, this, seed = random_.next()](KvWorker& prefill) {
              compute(prefill, id, rows, Random(seed));
            });
    }
  }

  void compute(KvWorker& prefill, TransferId id, uint32_t rows, Random random) {
    prefill.offer(id);
    Instant when = loop_.now();
    for (uint32_t ready = 0; ready < rows;) {
      when += below(random, milliseconds(10));
      ready = std::min(rows, ready + 1 + static_cast<uint32_t>(random.below(12)));
      prefill.process().call_at(when, [=, this, &prefill] {
        prefill.rows_ready(id, ready);
        if (faults_last() && stops_at_work_ && unlucky(0.05)) {
          // Until the receiver gives up, or a moment longer.
          const Duration until = 2 * kConnectTimeout + below(random_, milliseconds(8));
          loop_.after(below(random_, milliseconds(2)), [=, this] { stop(sender_, until); });
        }
        if (ready == rows) {
          prefill.commit(id, rows);
        }
      });
    }
    if (faults_last() && !faultless_ && random.chance(0.1)) {
      prefill.process().call_at(loop_.now() + below(random, milliseconds(60)),
                                [=, &prefill] { prefill.withdraw(id); });
    }
  }

  // Without a deadline only stalls and lost links can end it.
  void fetch(Instant when, TransferId id, size_t receiver, uint32_t rows, int attempts) {
    later(when, receivers_[receiver], [=, this](KvWorker& decode) {
      const Instant deadline =
          id.low % 4 == 0 ? loop_.now() + 4 * kFetchDeadline : loop_.now() + kFetchDeadline;
      if (decode.fetch(id, sender_->address(), rows, deadline)) {
        return;
      }
      if (attempts > 1) {
        fetch(loop_.now() + milliseconds(5), id, receiver, rows, attempts - 1);
      } else {
        decode.cancel(id);
      }
    });
  }

  // --- blocks

  // One worker holds blocks. In most runs only it wants some, because opening a link takes as long
  // as many transfers.
  Worker& holder() { return holder_receives_ ? receivers_.back() : sender_; }
  Worker& wanter() {
    return wanters_ == 2 && blocks_random_.chance(0.5) ? receivers_.front() : holder();
  }

  void plan_blocks() {
    for (uint64_t left = 1 + blocks_random_.below(kHeldMax); left > 0; --left) {
      plan_prompt(draw_prompt(blocks_random_), loop_.now() + below(blocks_random_, kFaults));
    }
    if (!store_faultless_) {
      for (uint64_t left = blocks_random_.below(4); left > 0; --left) {
        later(loop_.now() + below(blocks_random_, kFaults), holder(),
              [](KvWorker& worker) { worker.blocks().compute_over(); });
      }
      if (blocks_random_.chance(0.2)) {
        later(loop_.now() + below(blocks_random_, kFaults), wanter(),
              [](KvWorker& worker) { worker.blocks().cancel(); });
      }
      for (uint64_t left = blocks_random_.below(kStoreFaultsMax + 1); left > 0; --left) {
        loop_.at(loop_.now() + below(blocks_random_, kFaults), [this] { make_store_fault(); });
      }
    }
    if (store_faultless_ || blocks_random_.chance(0.3)) {
      plan_late_blocks();
    }
  }

  void plan_prompt(const KvPrompt& prompt, Instant when) {
    const KvLie lie = holders_lie_ && blocks_random_.chance(0.6)
                          ? static_cast<KvLie>(1 + blocks_random_.below(kKvLies))
                          : KvLie::kNone;
    if (is_about_content(lie)) {
      scene_.false_names.insert(prompt.names.begin(), prompt.names.end());
    }
    later(when, holder(),
          [=, this](KvWorker& worker) { worker.blocks().hold(prompt, lie, store_->address()); });
    for (uint64_t left = kWantedOfHeld; left > 0; --left) {
      // Sometimes two loads take the same blocks at the same time.
      if (store_faultless_ || blocks_random_.chance(0.7)) {
        when += store_faultless_ ? kBlockMoves : below(blocks_random_, kBlockMoves);
      }
      KvPrompt wanted = prompt;
      if (holders_lie_ && blocks_random_.chance(0.2)) {  // No block has this name and this shape.
        wanted.rows = prompt.rows == kBlockRows[0] ? kBlockRows[1] : kBlockRows[0];
      }
      want(wanted, when, store_faultless_ ? KvBlockUser::MayMiss::kNo : KvBlockUser::MayMiss::kYes,
           wanter());
    }
  }

  void want(const KvPrompt& prompt, Instant when, KvBlockUser::MayMiss may_miss, Worker& worker) {
    later(when, worker, [=, this](KvWorker& here) {
      here.blocks().want(prompt, may_miss, store_->address(), kFetchDeadline / 2);
    });
  }

  // After the faults, the store keeps and gives again. It may still wait for blocks of a liar.
  void plan_late_blocks() {
    loop_.at(loop_.now() + kHealed - kBlockMoves, [this] {
      if (store_drains_) {
        restart_store();
      }
    });
    const KvPrompt prompt{.rows = kBlockRows[0],
                          .names = {{.high = 10, .low = 1}, {.high = 10, .low = 2}}};
    const Instant when = loop_.now() + kHealed;
    later(when, holder(), [=, this](KvWorker& worker) {
      worker.blocks().hold(prompt, KvLie::kNone, store_->address());
    });
    want(prompt, when + kBlockMoves,
         misled() || holders_lie_ ? KvBlockUser::MayMiss::kYes : KvBlockUser::MayMiss::kNo,
         wanter());
  }

  // Until the store gives it up, or a moment longer.
  void may_stop(const std::string& name) {
    if (!faults_last() || !stops_at_work_ || faultless_ || !blocks_random_.chance(0.3)) {
      return;
    }
    for (const Worker& worker : {sender_, receivers_.back()}) {
      if (worker->address().engine_id == name) {
        const Duration until = 2 * kConnectTimeout + below(blocks_random_, milliseconds(60));
        loop_.after(below(blocks_random_, milliseconds(2)),
                    [this, until, giver = std::weak_ptr(worker)] {
                      if (const Worker here = giver.lock()) {
                        stop(here, until);
                      }
                    });
      }
    }
  }

  void make_store_fault() {
    switch (blocks_random_.below(8)) {
      case 0:
        return kill_store();
      case 1:
        store_drains_ = true;
        return store_->drain();
      case 2:
        store_->trace("stops");
        store_->process().stop();
        return loop_.after(below(blocks_random_, milliseconds(600)),
                           [this, life = store_->address().engine_id] {
                             if (store_->address().engine_id == life) {
                               store_->trace("goes on");
                               store_->process().go_on();
                             }
                           });
      default:
        scene_.bytes_change = true;
        return store_->change_bit(blocks_random_);
    }
  }

  // Workers know its address until there is another one.
  void kill_store() {
    store_->trace("dies");
    store_->die();
    if (blocks_random_.chance(0.3)) {
      disk_.cut_power();
      scene_.bytes_change = true;
    }
    loop_.after(below(blocks_random_, milliseconds(100)),
                [this, life = store_->address().engine_id] {
                  if (store_->address().engine_id == life) {
                    restart_store();
                  }
                });
  }

  void restart_store() {
    store_->die();
    store_drains_ = false;
    store_ = start_store();
  }

  // --- faults

  // A peer that lied about closing a communicator keeps waiting for it, at its own cost.
  bool misled() const { return dials_.lying() && scene_.config.transport == TransportKind::kNccl; }

  void make_fault() {
    Worker& receiver = receivers_[random_.below(kReceivers)];
    switch (random_.below(6)) {
      case 0:
        return restart(sender_, 'P');
      case 1:
        return restart(receiver, 'D');
      case 2:
        return stop(sender_);
      case 3:
        return stop(receiver);
      case 4:
        trace_.line(loop_.now(), "", sockets_.reset_one() ? "a link breaks" : "no link to break");
        return;
      default:
        trace_.line(loop_.now(), "",
                    sockets_.mute_one(kTcpGivesUp) ? "a link goes dead" : "no link to go dead");
    }
  }

  void restart(Worker& worker, char role) {
    worker->trace("dies");
    worker->die();
    worker = start(role);
  }

  void stop(const Worker& worker) {
    stop(worker, milliseconds(1) + below(random_, milliseconds(600)));
  }

  void stop(const Worker& worker, Duration until) {
    worker->trace("stops");
    worker->process().stop();
    loop_.after(until, [stopped = std::weak_ptr(worker)] {
      if (const Worker here = stopped.lock()) {
        here->trace("goes on");
        here->process().go_on();
      }
    });
  }

  void check_end() {
    sender_->check_idle(dials_.lying());
    for (const Worker& receiver : receivers_) {
      receiver->check_idle(dials_.lying());
    }
    store_->check_idle();
    invariants_.expect(!faultless_ || scene_.done == kTransfers + kLateTransfers,
                       "where nothing fails all is done, but only", scene_.done);
    for (uint64_t number = 1; number <= kLateTransfers; ++number) {
      const TransferId id{.high = 0, .low = kTransfers + number};
      invariants_.expect(misled() || scene_.fetched.contains(id),
                         "after the faults all is done again, but not", id);
    }
  }

  const bool faultless_;
  const bool store_faultless_;  // Nothing fails.
  SimTrace trace_;
  Invariants invariants_;
  SimLoop loop_;
  Random random_;
  FaultySockets sockets_;
  const Dials dials_;
  // The sender is slow, and stopped while it has rows to send: when it goes on, it may write to
  // rows that are no longer its own.
  const bool stops_at_work_;
  const size_t fetchers_;  // The other receivers only exchange blocks.
  const Instant faults_end_;
  SimNccl nccl_{random_.next()};
  KvScene scene_;
  Random blocks_random_;
  const store::BlockStoreOptions store_options_;
  SimKvDisk disk_{blocks_random_.next(), store_faultless_ ? 0 : 0.1};
  const bool holder_receives_;
  const int wanters_;
  const bool holders_lie_;
  bool store_drains_ = false;
  uint64_t lives_ = 0;
  Worker sender_;
  std::array<Worker, kReceivers> receivers_;
  Store store_;
};

}  // namespace

KvRunResult simulate_kv(const KvRunOptions& options) { return KvWorld(options).run(); }

}  // namespace pdjob::simulation
