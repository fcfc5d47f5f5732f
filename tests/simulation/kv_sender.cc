#include "tests/simulation/kv_sender.h"

#include "tests/simulation/kv_receiver.h"

namespace pdjob::simulation {

// --- what the worker wants

void KvSender::offer(TransferId id) {
  SendSession session({.row_bytes = sizeof(uint64_t),
                       .rows_max = kv::kRowsMax,
                       .rows_per_push = kv::kRowsPerPush,
                       .deadline = world_.now() + kv::kLease,
                       .lease = kv::kLease,
                       .stall_max = kv::kStallMax});
  Offer& made = offers_.emplace(id, Offer{.id = id, .session = session}).first->second;
  arm(made);
  if (const auto wait = early_waits_.extract(id)) {
    step(id, SendSession::PeerWaits{wait.mapped().link, wait.mapped().until - world_.now()});
  }
  if (const auto waiting = waiting_.extract(id)) {
    made.grant = waiting.mapped().grant;
    step(id, SendSession::Granted{waiting.mapped().link, made.grant.rows});
  }
}

// --- links

void KvSender::on_opened(LinkId link, KvReceiver& receiver) {
  for (const auto& [id, other] : receivers_) {
    if (other == &receiver && id > link) {
      return world_.close_at_sender(link);  // This link is older than another one.
    }
  }
  for (const LinkId older : links()) {
    if (receivers_.at(older) == &receiver && older != link) {
      close(older, "replaced by a newer one");
    }
  }
  receivers_[link] = &receiver;
  works_[link];
  world_.to_receiver(link, "READY", [link](KvReceiver& peer) { peer.on_ready(link); });
}

void KvSender::close(LinkId link, const char* why) {
  if (receivers_.erase(link) == 0) {
    return;
  }
  trace("link " + std::to_string(link.value) + " ends: " + why);
  works_.erase(link);
  push_under_way_.erase(link);
  std::vector<TransferId> ids;
  for (const auto& [id, offer] : offers_) {
    ids.push_back(id);
  }
  for (const TransferId id : ids) {
    step(id, SendSession::LinkLost{link, {ErrorCode::kUnavailable, why}});
  }
  std::erase_if(waiting_, [&](const auto& entry) { return entry.second.link == link; });
  std::erase_if(early_waits_, [&](const auto& entry) { return entry.second.link == link; });
  world_.close_at_sender(link);
}

std::vector<LinkId> KvSender::links() const {
  std::vector<LinkId> ids;
  for (const auto& [id, receiver] : receivers_) {
    ids.push_back(id);
  }
  return ids;
}

// --- what links say of one transfer

void KvSender::on_grant(LinkId link, TransferId id, const KvGrant& grant) {
  if (!receivers_.contains(link)) {
    return;
  }
  if (const auto ended = ended_.find(id); ended != ended_.end()) {
    return abort(link, id, ended->second);
  }
  early_waits_.erase(id);
  const auto offer = offers_.find(id);
  const auto waiting = waiting_.find(id);
  const bool granted = offer != offers_.end() && offer->second.session.is_granted();
  if (granted || waiting != waiting_.end()) {
    const LinkId holder = granted ? offer->second.session.link() : waiting->second.link;
    return holder == link
               ? close(link, "granted twice")
               : abort(link, id, {ErrorCode::kInvalidArgument, "goes to another receiver"});
  }
  if (offer == offers_.end()) {
    waiting_[id] = {.link = link, .grant = grant};
    return;
  }
  offer->second.grant = grant;
  step(id, SendSession::Granted{link, grant.rows});
}

void KvSender::on_wait(LinkId link, TransferId id, Duration at_most) {
  if (!receivers_.contains(link)) {
    return;
  }
  if (offers_.contains(id)) {
    step(id, SendSession::PeerWaits{link, at_most});
  } else if (!ended_.contains(id) && !waiting_.contains(id)) {
    early_waits_[id] = {.link = link, .until = world_.now() + at_most};
  }
}

void KvSender::on_cancel(LinkId link, TransferId id) {
  const auto wait = early_waits_.find(id);
  if (wait != early_waits_.end() && wait->second.link == link) {
    early_waits_.erase(wait);
  }
  const auto offer = offers_.find(id);
  if (offer != offers_.end() && offer->second.session.link() == link) {
    return step(id, SendSession::PeerCancelled{link, {ErrorCode::kCancelled, "cancelled"}});
  }
  if (const auto waiting = waiting_.find(id);
      waiting != waiting_.end() && waiting->second.link == link) {
    waiting_.erase(waiting);
  }
  world_.to_receiver(link, "CANCELLED",
                     [=](KvReceiver& receiver) { receiver.on_cancelled(link, id); });
}

void KvSender::on_renew(LinkId link) {
  for (auto& [id, offer] : offers_) {
    step(id, SendSession::PeerRenewed{link});  // A renewal ends no session.
  }
  std::erase_if(early_waits_, [&](const auto& entry) {
    return entry.second.link == link && entry.second.until <= world_.now();
  });
  world_.to_receiver(link, "RENEWED", [link](KvReceiver& receiver) { receiver.on_renewed(link); });
}

// --- sessions

void KvSender::step(TransferId id, SendSession::Event event) {
  const auto found = offers_.find(id);
  const KvSabotage& sabotage = world_.sabotage();
  if (found == offers_.end() || (sabotage.send_event && !sabotage.send_event(event))) {
    return;
  }
  Offer& offer = found->second;
  Effects effects;
  offer.session.step(event, world_.now(), effects);
  if (sabotage.send_effects) {
    sabotage.send_effects(effects);
  }
  for (const SendSession::Effect& effect : effects) {
    std::visit([&](const auto& what) { apply(offer, what); }, effect);
  }
  if (offer.session.ended()) {
    world_.invariants().expect(offer.reported, "an offer is told how it ended:", id);
    offers_.erase(found);
  } else {
    arm(offer);
  }
}

void KvSender::arm(Offer& offer) {
  const Instant due = offer.session.deadline();
  if (due >= offer.timer_due) {
    return;
  }
  offer.timer_due = due;
  post(due, [this, id = offer.id, due] {
    const auto found = offers_.find(id);
    if (found != offers_.end() && found->second.timer_due == due) {
      found->second.timer_due = kNever;
      step(id, SendSession::TimePassed{});
    }
  });
}

void KvSender::apply(Offer& offer, const SendSession::SendCommit& effect) {
  uint64_t digest = 0;
  for (uint32_t row = 0; row < effect.rows; ++row) {
    digest = kv::add_to_digest(digest, kv::row_value(offer.id, row));
  }
  const LinkId link = offer.session.link();
  post(world_.now() + kv::kLease + kv::kSlack, [=, this, id = offer.id] {
    world_.invariants().expect(!offers_.contains(id), "a committed offer ends with its lease:", id);
  });
  world_.to_receiver(link, "COMMIT", [=, id = offer.id](KvReceiver& receiver) {
    receiver.on_commit(link, id, effect.rows, digest);
  });
}

void KvSender::apply(Offer& offer, const SendSession::SendAbort& effect) {
  stop_pushing(offer);
  abort(offer.session.link(), offer.id, effect.reason);
}

void KvSender::apply(Offer& offer, const SendSession::SendCancelled& /*effect*/) {
  stop_pushing(offer);
  const LinkId link = offer.session.link();
  world_.to_receiver(link, "CANCELLED", [link, id = offer.id](KvReceiver& receiver) {
    receiver.on_cancelled(link, id);
  });
}

void KvSender::apply(Offer& offer, const SendSession::ReportDone& /*effect*/) {
  end(offer, {ErrorCode::kUnavailable, "delivered"});
}

void KvSender::apply(Offer& offer, const SendSession::ReportFailed& effect) {
  end(offer, effect.reason);
}

void KvSender::end(Offer& offer, const Error& how) {
  world_.invariants().expect(!offer.reported, "an offer ends once:", offer.id);
  offer.reported = true;
  stop_pushing(offer);
  ended_.insert_or_assign(offer.id, how);
  trace("offer " + std::to_string(offer.id.low) + " ends: " + how.message);
}

void KvSender::abort(LinkId link, TransferId id, const Error& why) {
  world_.to_receiver(link, "ABORT",
                     [=](KvReceiver& receiver) { receiver.on_abort(link, id, why); });
}

// --- rows

void KvSender::apply(Offer& offer, const SendSession::Push& effect) {
  offer.range = effect.range;
  const auto works = works_.find(offer.session.link());
  if (works != works_.end()) {
    works->second.push_back(offer.id);
    start_next(offer.session.link());
  }
}

void KvSender::start_next(LinkId link) {
  const auto works = works_.find(link);
  if (works == works_.end() || works->second.empty() || push_under_way_.contains(link)) {
    return;
  }
  const TransferId id = works->second.front();
  const uint64_t push = push_under_way_[link] = ++pushes_;
  Offer& offer = offers_.at(id);
  offer.moved.clear();
  step(id, SendSession::RangeStarted{});
  post(world_.now() + kv::kStallMax + kv::kSlack, [=, this] {
    const auto under_way = push_under_way_.find(link);
    world_.invariants().expect(under_way == push_under_way_.end() || under_way->second != push,
                               "a range that stopped is given up:", id);
  });
  if (!world_.is_shm()) {
    announce(offer);
  }
  post(world_.now() + world_.network().delay() / 16, [=, this] { move_row(link, id, push); });
}

void KvSender::move_row(LinkId link, TransferId id, uint64_t push) {
  const auto under_way = push_under_way_.find(link);
  if (under_way == push_under_way_.end() || under_way->second != push) {
    return;
  }
  Offer& offer = offers_.at(id);
  if (world_.fault(world_.dials().push_stalls)) {
    return;  // The push stalls until somebody ends it.
  }
  if (world_.fault(world_.dials().push_fails)) {
    return step(id, SendSession::PushFailed{{ErrorCode::kInternal, "a push failed"}});
  }
  const uint32_t row = offer.range.first + static_cast<uint32_t>(offer.moved.size());
  uint64_t value = kv::row_value(id, row);
  value ^= world_.fault(world_.dials().row_damaged) ? 1 : 0;
  offer.moved.push_back(value);
  if (world_.is_shm()) {
    offer.grant.receiver->write(offer.grant.slot, offer.grant.fetch, row, value);
  }
  if (offer.moved.size() < offer.range.count) {
    return post(world_.now() + world_.network().delay() / 16,
                [=, this] { move_row(link, id, push); });
  }
  if (world_.is_shm()) {
    announce(offer);
  } else {
    send_payload(offer);
  }
  works_.at(link).pop_front();
  push_under_way_.erase(link);
  step(id, SendSession::RangePushed{});
  start_next(link);
}

void KvSender::announce(const Offer& offer) {
  const LinkId link = offer.session.link();
  world_.to_receiver(link, "ROWS",
                     [link, id = offer.id, range = offer.range](KvReceiver& receiver) {
                       receiver.on_rows(link, id, range);
                     });
}

void KvSender::send_payload(const Offer& offer) {
  const LinkId link = offer.session.link();
  world_.to_receiver(link, "payload",
                     [link, id = offer.id, range = offer.range, rows = offer.moved](
                         KvReceiver& receiver) { receiver.on_payload(link, id, range, rows); });
}

void KvSender::stop_pushing(Offer& offer) {
  const LinkId link = offer.session.link();
  const auto works = works_.find(link);
  if (offer.grant.receiver == nullptr || works == works_.end() || works->second.empty()) {
    return;
  }
  if (works->second.front() == offer.id && push_under_way_.erase(link) > 0 && !world_.is_shm()) {
    offer.moved.resize(offer.range.count);  // A payload that has begun must reach its full length.
    send_payload(offer);
  }
  std::erase(works->second, offer.id);
  start_next(link);
}

}  // namespace pdjob::simulation
