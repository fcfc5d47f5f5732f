#include "tests/simulation/sim_sender.h"

#include "tests/simulation/sim_worker.h"
#include "tests/simulation/sim_world.h"

namespace pdjob::simulation {
namespace {

constexpr uint32_t kRowsPerPush = 8;
constexpr Duration kRowDuration = std::chrono::microseconds(10);

}  // namespace

// --- what the worker wants

void SimSender::offer(TransferId id, SequenceId source, Instant deadline) {
  SendSession session({.row_bytes = sizeof(Row),
                       .rows_max = world_.engine_size(worker_.role()).rows_per_sequence,
                       .rows_per_push = kRowsPerPush,
                       .deadline = deadline,
                       .lease = SimWorld::kLease,
                       .stall_max = SimWorld::kStallMax});
  const bool is_new =
      offers_.emplace(id, Offer{.id = id, .source = source, .session = session}).second;
  world_.invariants().expect(is_new, "a transfer is offered once:", id);
  ended_.erase(id);
  arm(offers_.at(id));
  if (const auto wait = early_waits_.extract(id)) {
    step(id, SendSession::PeerWaits{wait.mapped().link, wait.mapped().until - world_.now()});
  }
  if (const auto waiting = waiting_.extract(id)) {
    worker_.offer_awaited(id, false);
    offers_.at(id).target = waiting.mapped().target;
    step(id, SendSession::Granted{waiting.mapped().link, waiting.mapped().rows});
  }
}

void SimSender::rows_ready(TransferId id, uint32_t ready) {
  step(id, SendSession::RowsReady{ready});
}

void SimSender::commit(TransferId id, uint32_t rows, uint64_t tail) {
  if (const auto found = offers_.find(id); found != offers_.end()) {
    found->second.tail = tail;
  }
  step(id, SendSession::CommitRequested{rows});
}

void SimSender::withdraw(TransferId id, const Error& reason) {
  step(id, SendSession::Withdrawn{reason});
}

// --- what links say

void SimSender::on_opened(LinkId link) {
  links_.insert(link);
  world_.links().to_receiver(link, [link](SimWorker& worker) { worker.receiver().on_ready(link); });
}

void SimSender::on_grant(LinkId link, TransferId id, SequenceId target, uint32_t rows) {
  if (!links_.contains(link)) {
    return;
  }
  if (const auto ended = ended_.find(id); ended != ended_.end()) {
    return abort(link, id, ended->second);
  }
  early_waits_.erase(id);
  const auto offer = offers_.find(id);
  if (offer == offers_.end()) {
    waiting_[id] = {.link = link, .target = target, .rows = rows};
    worker_.offer_awaited(id, true);
    return;
  }
  world_.invariants().expect(!offer->second.session.is_granted(),
                             "a transfer is granted once:", id);
  offer->second.target = target;
  step(id, SendSession::Granted{link, rows});
}

void SimSender::on_wait(LinkId link, TransferId id, Duration at_most) {
  if (!links_.contains(link)) {
    return;
  }
  if (offers_.contains(id)) {
    step(id, SendSession::PeerWaits{link, at_most});
  } else if (!ended_.contains(id) && !waiting_.contains(id)) {
    early_waits_[id] = {.link = link, .until = world_.now() + at_most};
  }
}

void SimSender::on_cancel(LinkId link, TransferId id, const Error& reason) {
  const auto offer = offers_.find(id);
  if (offer != offers_.end() && offer->second.session.link() == link) {
    return step(id, SendSession::PeerCancelled{link, reason});
  }
  early_waits_.erase(id);
  if (waiting_.erase(id) > 0) {
    worker_.offer_awaited(id, false);
  }
  world_.links().to_receiver(link,
                             [=](SimWorker& worker) { worker.receiver().on_cancelled(link, id); });
}

void SimSender::on_committed(LinkId link, TransferId id) {
  step(id, SendSession::PeerCommitted{link});
}

void SimSender::on_renew(LinkId link) {
  for (auto& [id, offer] : offers_) {
    step(id, SendSession::PeerRenewed{link});  // A renewal ends no session.
  }
  std::erase_if(early_waits_, [&](const auto& entry) {
    return entry.second.link == link && entry.second.until <= world_.now();
  });
  world_.links().to_receiver(link,
                             [link](SimWorker& worker) { worker.receiver().on_renewed(link); });
}

void SimSender::on_closed(LinkId link) {
  links_.erase(link);
  std::vector<TransferId> ids;
  for (const auto& [id, offer] : offers_) {
    ids.push_back(id);
  }
  for (const TransferId id : ids) {
    step(id, SendSession::LinkLost{link, {ErrorCode::kUnavailable, "the KV link closed"}});
  }
  std::erase_if(waiting_, [&](const auto& entry) {
    const bool gone = entry.second.link == link;
    if (gone) {
      worker_.offer_awaited(entry.first, false);
    }
    return gone;
  });
  std::erase_if(early_waits_, [&](const auto& entry) { return entry.second.link == link; });
  world_.links().close_at_sender(link);
}

// --- sessions

void SimSender::step(TransferId id, const SendSession::Event& event) {
  const auto found = offers_.find(id);
  if (found == offers_.end()) {
    return;
  }
  Offer& offer = found->second;
  std::vector<SendSession::Effect> effects;
  offer.session.step(event, world_.now(), effects);
  for (const SendSession::Effect& effect : effects) {
    std::visit([&](const auto& what) { apply(offer, what); }, effect);
  }
  if (offer.session.ended()) {
    offers_.erase(found);
  } else {
    arm(offer);
  }
}

void SimSender::apply(Offer& offer, const SendSession::Push& effect) {
  offer.push = ++pushes_;
  offer.range = effect.range;
  std::vector<SendSession::Effect> none;
  offer.session.step(SendSession::RangeStarted{}, world_.now(), none);
  const Duration duration = kRowDuration * effect.range.count + world_.network().delay() / 8;
  world_.post(world_.now() + duration, worker_.incarnation(),
              [id = offer.id, push = offer.push](SimWorker& worker) {
                worker.sender().finish_push(id, push);
              });
}

void SimSender::finish_push(TransferId id, uint64_t push) {
  const auto found = offers_.find(id);
  if (found == offers_.end() || found->second.push != push) {
    return;
  }
  Offer& offer = found->second;
  if (world_.fault(world_.dials().push_fails)) {
    return step(id, SendSession::PushFailed{{ErrorCode::kUnavailable, "a push failed"}});
  }
  const auto& source = worker_.engine().rows(offer.source);
  const auto first = source.begin() + offer.range.first;
  std::vector<Row> rows(first, first + offer.range.count);
  if (world_.fault(world_.dials().row_damaged)) {
    rows.back() ^= 1;
  }
  const LinkId link = offer.session.link();
  if (world_.shared_kv()) {
    if (SimWorker* target = world_.find(world_.links().receiver(link))) {
      target->write_rows(id, offer.target, offer.range.first, rows);
    }
    rows.clear();
  }
  world_.links().to_receiver(link, [=, range = offer.range](SimWorker& worker) {
    worker.receiver().on_rows(link, id, range, rows);
  });
  step(id, SendSession::RangePushed{});
}

void SimSender::apply(Offer& offer, const SendSession::SendCommit& effect) {
  const LinkId link = offer.session.link();
  const uint64_t digest = worker_.engine().digest(offer.source, effect.rows);
  world_.links().to_receiver(link, [=, id = offer.id, tail = offer.tail](SimWorker& worker) {
    worker.receiver().on_commit(link, id, effect.rows, digest, tail);
  });
}

void SimSender::apply(Offer& offer, const SendSession::SendAbort& effect) {
  abort(offer.session.link(), offer.id, effect.reason);
}

void SimSender::apply(Offer& offer, const SendSession::SendCancelled& /*effect*/) {
  const LinkId link = offer.session.link();
  world_.links().to_receiver(
      link, [link, id = offer.id](SimWorker& worker) { worker.receiver().on_cancelled(link, id); });
}

void SimSender::apply(Offer& offer, const SendSession::ReportDone& /*effect*/) {
  end(offer, {ErrorCode::kUnavailable, "the KV rows were already delivered"});
}

void SimSender::apply(Offer& offer, const SendSession::ReportFailed& effect) {
  end(offer, effect.reason);
}

void SimSender::end(Offer& offer, Error why) {
  ended_.insert_or_assign(offer.id, std::move(why));
  worker_.offer_ended(offer.id);
}

void SimSender::abort(LinkId link, TransferId id, const Error& reason) {
  world_.links().to_receiver(
      link, [=](SimWorker& worker) { worker.receiver().on_abort(link, id, reason); });
}

void SimSender::arm(Offer& offer) {
  const Instant due = offer.session.deadline();
  if (due >= offer.timer_due) {
    return;
  }
  offer.timer_due = due;
  world_.post(due, worker_.incarnation(), [id = offer.id, due](SimWorker& worker) {
    SimSender& self = worker.sender();
    const auto found = self.offers_.find(id);
    if (found != self.offers_.end() && found->second.timer_due == due) {
      found->second.timer_due = kNever;
      self.step(id, SendSession::TimePassed{});
    }
  });
}

}  // namespace pdjob::simulation
