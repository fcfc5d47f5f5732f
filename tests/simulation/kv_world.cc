#include "tests/simulation/kv_world.h"

#include <algorithm>

#include "tests/simulation/kv_receiver.h"
#include "tests/simulation/kv_sender.h"

namespace pdjob::simulation {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kTransfers = 12;
constexpr size_t kReceivers = 2;
constexpr Duration kStarts = milliseconds(500);  // All transfers start within this time.
constexpr Duration kFaults = milliseconds(900);
constexpr Duration kFetchDeadline = milliseconds(800);
constexpr Duration kWaits = 2 * kv::kLease;    // How long a queued transfer may wait for rows.
constexpr Duration kAll = milliseconds(5000);  // By then every lease and deadline has ended.
constexpr Duration kTcpGivesUp = milliseconds(800);
constexpr uint64_t kFaultsMax = 6;

Duration below(Random& random, Duration bound) {
  return Duration(random.below(static_cast<uint64_t>(bound.count())));
}

KvDials draw_dials(Random& random) {
  const auto dial = [&](double max) { return random.chance(0.25) ? max * random.unit() : 0; };
  return {.push_fails = dial(0.02),
          .push_stalls = dial(0.01),
          .row_damaged = dial(0.02),
          .message_lost = dial(0.05),
          .message_repeated = dial(0.05)};
}

}  // namespace

uint64_t kv::row_value(TransferId id, uint32_t row) { return mix(id.low << 32 | row); }

// --- processes

void KvProcess::post(Instant when, Task task) {
  world_.loop().at(when, [this, task = std::move(task)]() mutable {
    if (alive_ && stopped_) {
      held_.push_back(std::move(task));
    } else if (alive_) {
      task();
    }
  });
}

void KvProcess::trace(const std::string& what) { world_.trace().line(world_.now(), name_, what); }

void KvProcess::go_on() {
  stopped_ = false;
  for (; !held_.empty() && alive_; held_.pop_front()) {
    held_.front()();
  }
}

// --- links

LinkId KvWorld::open_link(KvSender& sender, KvReceiver& receiver) {
  const LinkId id{++links_made_};
  links_[id] = {.sender = &sender, .receiver = &receiver};
  if (!sender.alive()) {
    close_at_sender(id);  // The sender is dead.
  }
  return id;
}

void KvWorld::to_sender(LinkId id, const char* what,
                        const std::function<void(KvSender&)>& message) {
  const auto found = links_.find(id);
  if (found == links_.end() || found->second.muted || fault(dials_.message_lost)) {
    return;
  }
  KvSender* const sender = found->second.sender;
  for (int copies = fault(dials_.message_repeated) ? 2 : 1; copies > 0; --copies) {
    sender->post(network_.arrival(found->second.to_sender), [=] {
      sender->trace(what);
      message(*sender);
    });
  }
}

void KvWorld::to_receiver(LinkId id, const char* what,
                          const std::function<void(KvReceiver&)>& message) {
  const auto found = links_.find(id);
  if (found == links_.end() || found->second.muted || fault(dials_.message_lost)) {
    return;
  }
  KvReceiver* const receiver = found->second.receiver;
  for (int copies = fault(dials_.message_repeated) ? 2 : 1; copies > 0; --copies) {
    receiver->post(network_.arrival(found->second.to_receiver), [=] {
      receiver->trace(what);
      message(*receiver);
    });
  }
}

// The end of a connection is never lost or repeated.
void KvWorld::close_at_sender(LinkId id) {
  if (auto link = links_.extract(id); link && !link.mapped().muted) {
    KvReceiver* const receiver = link.mapped().receiver;
    receiver->post(network_.arrival(link.mapped().to_receiver), [=] { receiver->on_closed(id); });
  }
}

void KvWorld::close_at_receiver(LinkId id) {
  if (const auto found = links_.find(id); found != links_.end() && !found->second.muted) {
    KvSender* const sender = found->second.sender;
    sender->post(network_.arrival(found->second.to_sender),
                 [=] { sender->close(id, "the receiver closed it"); });
  }
}

// --- transfers

KvWorld::KvWorld(const KvRunOptions& options)
    : options_(options),
      trace_(options.print),
      random_(mix(options.seed)),
      network_(loop_, random_.next()),
      is_shm_(random_.chance(0.5)),
      dials_(faultless() ? KvDials{} : draw_dials(random_)),
      faults_end_(loop_.now() + kFaults) {
  senders_.push_back(std::make_unique<KvSender>(*this, "P" + std::to_string(++lives_)));
  for (size_t i = 0; i < kReceivers; ++i) {
    receivers_.push_back(std::make_unique<KvReceiver>(*this, "D" + std::to_string(++lives_)));
  }
}

KvWorld::~KvWorld() = default;

void KvWorld::plan_transfers() {
  for (uint64_t number = 1; number <= kTransfers; ++number) {
    plan_transfer({.high = 0, .low = number}, loop_.now() + below(random_, kStarts));
  }
}

void KvWorld::plan_transfer(TransferId id, Instant start) {
  const auto unlucky = [&](double chance) { return !faultless() && random_.chance(chance); };
  const auto rows = static_cast<uint32_t>(random_.below(kv::kRowsMax + 1));
  const size_t to = random_.below(kReceivers);
  const Instant offered = start;
  const bool queues = random_.chance(0.3);
  if (queues) {
    loop_.at(start + below(random_, milliseconds(30)), [=, this] { await(id, to); });
    start += milliseconds(30) + below(random_, kWaits);
  }
  if (!unlucky(0.1)) {
    loop_.at(start + below(random_, milliseconds(30)), [=, this] { fetch(id, to, rows, 50); });
  } else if (queues) {
    loop_.at(start, [=, this] { receivers_[to]->cancel(id); });
  }
  if (unlucky(0.1)) {
    loop_.at(start + below(random_, milliseconds(100)), [=, this] { receivers_[to]->cancel(id); });
    // The transfer may be fetched again at once. A lying peer is excluded: its answer to the first
    // fetch looks like one to the second.
    if (!dials_.peers_lie() && unlucky(0.5)) {
      loop_.at(start + below(random_, milliseconds(150)), [=, this] { fetch(id, to, rows, 5); });
    }
  }
  if (unlucky(0.1)) {
    return;  // This transfer is never offered.
  }
  // The offer may come long before the fetch.
  loop_.at(offered + below(random_, milliseconds(30)), [=, this, seed = random_.next()] {
    KvSender& sender = *senders_.back();
    Random random(seed);
    sender.post(now(), [=, &sender] { sender.offer(id); });
    Instant when = now();
    for (uint32_t ready = 0; ready < rows;) {
      when += below(random, milliseconds(10));
      ready = std::min(rows, ready + 1 + static_cast<uint32_t>(random.below(12)));
      sender.post(when, [=, &sender] { sender.rows_ready(id, ready); });
    }
    if (!faultless() && random.chance(0.1)) {
      sender.post(now() + below(random, milliseconds(60)), [=, &sender] { sender.withdraw(id); });
    }
    sender.post(when, [=, &sender] { sender.commit(id, rows); });
  });
}

void KvWorld::await(TransferId id, size_t receiver) {
  KvReceiver& process = *receivers_[receiver];
  process.post(now(),
               [=, this, &process] { process.await(id, *senders_.back(), now() + 2 * kWaits); });
}

void KvWorld::fetch(TransferId id, size_t receiver, uint32_t rows, int attempts) {
  KvReceiver& process = *receivers_[receiver];
  process.post(now(), [=, this, &process] {
    const Instant deadline = now() + kFetchDeadline;
    if (!process.fetch(id, *senders_.back(), rows, deadline) && attempts > 1) {
      loop_.after(milliseconds(5), [=, this] { fetch(id, receiver, rows, attempts - 1); });
    }
  });
}

// --- faults

void KvWorld::plan_faults() {
  const Instant start = loop_.now();
  for (uint64_t left = random_.below(kFaultsMax + 1); left > 0; --left) {
    loop_.at(start + below(random_, kFaults), [this] { make_fault(); });
  }
}

void KvWorld::make_fault() {
  const size_t index = random_.below(kReceivers);
  switch (random_.below(6)) {
    case 0:
      return kill_sender();
    case 1:
      return kill_receiver(index);
    case 2:
      return stop(*senders_.back());
    case 3:
      return stop(*receivers_[index]);
    default:
      return break_link();
  }
}

void KvWorld::kill_sender() {
  KvSender& dead = *senders_.back();
  dead.trace("dies");
  dead.die();
  for (const LinkId link : dead.links()) {
    close_at_sender(link);
  }
  senders_.push_back(std::make_unique<KvSender>(*this, "P" + std::to_string(++lives_)));
}

void KvWorld::kill_receiver(size_t index) {
  receivers_[index]->trace("dies");
  receivers_[index]->die();
  for (const LinkId link : receivers_[index]->links()) {
    close_at_receiver(link);
  }
  dead_receivers_.push_back(std::move(receivers_[index]));
  receivers_[index] = std::make_unique<KvReceiver>(*this, "D" + std::to_string(++lives_));
}

void KvWorld::stop(KvProcess& process) {
  process.trace("stops");
  process.stop();
  loop_.after(milliseconds(1) + below(random_, milliseconds(600)), [&process] {
    process.trace("goes on");
    process.go_on();
  });
}

void KvWorld::break_link() {
  if (links_.empty()) {
    return;
  }
  const auto chosen =
      std::next(links_.begin(), static_cast<std::ptrdiff_t>(random_.below(links_.size())));
  const LinkId id = chosen->first;
  KvLink& link = chosen->second;
  KvSender* const sender = link.sender;
  KvReceiver* const receiver = link.receiver;
  const Error why{ErrorCode::kUnavailable, "it broke"};
  switch (random_.below(3)) {
    case 0:
      return sender->post(now(), [=] { sender->close(id, "it broke"); });
    case 1:
      return receiver->post(now(), [=] { receiver->fail(id, why); });
    default:
      if (!is_shm_) {
        link.muted = true;
        sender->post(now() + kTcpGivesUp, [=] { sender->close(id, "tcp gave it up"); });
        receiver->post(now() + kTcpGivesUp, [=] { receiver->fail(id, why); });
      }
  }
}

// --- a run

void KvWorld::check_end() {
  invariants_.expect(senders_.back()->idle() || dials_.message_lost > 0,
                     "every offer and every grant ends");
  for (const auto& receiver : receivers_) {
    invariants_.expect(receiver->idle(), "every fetch ends and gives its rows on, at",
                       receiver->name());
  }
  invariants_.expect(!faultless() || result_.done == kTransfers,
                     "where nothing fails all is done, but only", result_.done);
}

KvRunResult KvWorld::run() {
  plan_transfers();
  if (!faultless()) {
    plan_faults();
  }
  const Instant end = loop_.now() + kAll;
  while (!invariants_.broken() && loop_.run_next(end)) {
  }
  check_end();
  result_.violation = invariants_.violation();
  result_.trace_hash = trace_.hash();
  result_.trace_lines = trace_.lines();
  return result_;
}

KvRunResult simulate_kv(const KvRunOptions& options) { return KvWorld(options).run(); }

}  // namespace pdjob::simulation
