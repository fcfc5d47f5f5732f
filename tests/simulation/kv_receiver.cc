#include "tests/simulation/kv_receiver.h"

#include <algorithm>

#include "tests/simulation/kv_sender.h"

namespace pdjob::simulation {

using kvtransfer::LinkLoss;

// --- what the worker wants

bool KvReceiver::fetch(TransferId id, KvSender& peer, uint32_t rows, Instant deadline) {
  const auto free =
      std::find_if(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.fetch == 0; });
  if (free == slots_.end() || fetches_.contains(id)) {
    return false;
  }
  waits_.erase(id);
  const LinkId link = link_to(peer);
  const uint64_t number = ++fetches_made_;
  free->fetch = number;
  const ReceiveSession session({.link = link,
                                .rows = rows,
                                .row_bytes = sizeof(uint64_t),
                                .peer_writes = world_.is_shm(),
                                .deadline = deadline,
                                .stall_max = kv::kStallMax});
  Fetch& made = fetches_
                    .emplace(id, Fetch{.id = id,
                                       .number = number,
                                       .slot = static_cast<size_t>(free - slots_.begin()),
                                       .rows = rows,
                                       .session = session})
                    .first->second;
  arm(made);
  post(deadline + kv::kSlack, [=, this] {
    const auto found = fetches_.find(id);
    world_.invariants().expect(
        found == fetches_.end() || found->second.number != number || found->second.reported,
        "a fetch ends by its deadline:", id);
  });
  if (peers_.at(link).ready) {
    step(id, ReceiveSession::LinkReady{link});
  }
  return true;
}

void KvReceiver::await(TransferId id, KvSender& peer, Instant until) {
  if (fetches_.contains(id)) {
    return;
  }
  waits_[id] = {.peer = &peer, .until = until, .link = link_to(peer)};
  say_wait(id, waits_.at(id));
}

void KvReceiver::say_wait(TransferId id, const Awaited& wait) {
  const auto peer = peers_.find(wait.link);
  if (peer != peers_.end() && peer->second.ready && !peer->second.given_up) {
    world_.to_sender(wait.link, "WAIT",
                     [link = wait.link, id, at_most = wait.until - world_.now()](KvSender& sender) {
                       sender.on_wait(link, id, at_most);
                     });
  }
}

// The receiver sends its WAITs again on the next link.
void KvReceiver::lose_waits(LinkId link) {
  for (const auto& [id, wait] : waits_) {
    if (wait.link == link) {
      post(world_.now() + kv::kRenewInterval, [this, id = id, link] {
        const auto found = waits_.find(id);
        if (found != waits_.end() && found->second.link == link) {
          found->second.link = link_to(*found->second.peer);
          say_wait(id, found->second);
        }
      });
    }
  }
}

void KvReceiver::cancel(TransferId id) {
  if (const auto wait = waits_.extract(id)) {
    const LinkId link = wait.mapped().link;
    world_.to_sender(link, "CANCEL", [=](KvSender& sender) { sender.on_cancel(link, id); });
  }
  step(id, ReceiveSession::CancelRequested{{ErrorCode::kCancelled, "cancelled"}});
}

LinkId KvReceiver::link_to(KvSender& peer) {
  for (const auto& [id, known] : peers_) {
    if (known.sender == &peer && !known.given_up) {
      return id;
    }
  }
  const LinkId link = world_.open_link(peer, *this);
  peers_[link] = {.sender = &peer};
  world_.to_sender(link, "OPEN", [=, this](KvSender& sender) { sender.on_opened(link, *this); });
  post(world_.now() + kv::kConnectTimeout, [=, this] {
    if (const auto found = peers_.find(link); found != peers_.end() && !found->second.ready) {
      fail(link, {ErrorCode::kUnavailable, "the link did not open in time"});
    }
  });
  return link;
}

// --- links

void KvReceiver::on_ready(LinkId link) {
  const auto found = peers_.find(link);
  if (found == peers_.end() || found->second.given_up || found->second.ready) {
    return;
  }
  found->second.ready = true;
  step_all_of(link, ReceiveSession::LinkReady{link});
  for (const auto& [id, wait] : waits_) {
    if (wait.link == link) {
      say_wait(id, wait);
    }
  }
  renew(link);
}

void KvReceiver::renew(LinkId link) {
  const auto found = peers_.find(link);
  if (found == peers_.end() || found->second.given_up) {
    return;
  }
  Peer& peer = found->second;
  if (peer.silent_since != kNever && world_.now() - peer.silent_since > kv::kSilenceMax) {
    return fail(link, {ErrorCode::kUnavailable, "the peer is silent"});
  }
  peer.silent_since = std::min(peer.silent_since, world_.now());
  world_.to_sender(link, "RENEW", [link](KvSender& sender) { sender.on_renew(link); });
  post(world_.now() + kv::kRenewInterval, [=, this] { renew(link); });
}

void KvReceiver::on_renewed(LinkId link) {
  if (const auto found = peers_.find(link); found != peers_.end()) {
    found->second.silent_since = kNever;
  }
}

void KvReceiver::fail(LinkId link, const Error& why) {
  const auto found = peers_.find(link);
  if (found == peers_.end() || found->second.given_up) {
    return;
  }
  trace("link " + std::to_string(link.value) + " fails: " + why.message);
  const bool may_be_written = found->second.ready && world_.is_shm();
  if (may_be_written) {
    found->second.given_up = true;
  } else {
    peers_.erase(found);
  }
  world_.close_at_receiver(link);
  step_all_of(link, ReceiveSession::LinkLost{
                        link, may_be_written ? LinkLoss::kGivenUp : LinkLoss::kClosed, why});
  lose_waits(link);
}

void KvReceiver::on_closed(LinkId link) {
  if (peers_.erase(link) > 0) {
    step_all_of(link, ReceiveSession::LinkLost{
                          link, LinkLoss::kClosed, {ErrorCode::kUnavailable, "the link closed"}});
    lose_waits(link);
  }
}

std::vector<LinkId> KvReceiver::links() const {
  std::vector<LinkId> ids;
  for (const auto& [id, peer] : peers_) {
    ids.push_back(id);
  }
  return ids;
}

// --- what links say of one transfer

void KvReceiver::on_rows(LinkId link, TransferId id, RowRange range) {
  step_if(find(id, link), ReceiveSession::RowsAnnounced{link, range});
  Fetch* fetch = find(id, link);
  if (fetch == nullptr || fetch->session.state() != ReceiveSession::State::kReceiving) {
    return;
  }
  fetch->announced.push_back(range);
  post(world_.now() + kv::kStallMax + kv::kSlack, [=, this, number = fetch->number] {
    const Fetch* late = find(id, link);
    world_.invariants().expect(late == nullptr || late->number != number ||
                                   late->announced.empty() || late->announced.front() != range,
                               "announced rows that stopped are given up:", id);
  });
  if (world_.is_shm()) {
    post(world_.now() + world_.network().delay() / 8,
         [=, this, number = fetch->number] { hash_next(link, id, number); });
  }
}

void KvReceiver::on_payload(LinkId link, TransferId id, RowRange range,
                            const std::vector<uint64_t>& rows) {
  Fetch* fetch = find(id, link);
  if (fetch == nullptr || fetch->announced.empty() || fetch->announced.front() != range) {
    return;  // Cancelled in the meantime.
  }
  for (uint32_t i = 0; i < range.count; ++i) {
    write(fetch->slot, fetch->number, range.first + i, rows[i]);
  }
  hash_next(link, id, fetch->number);
}

void KvReceiver::hash_next(LinkId link, TransferId id, uint64_t number) {
  Fetch* fetch = find(id, link);
  if (fetch == nullptr || fetch->number != number || fetch->reported) {
    return;
  }
  const RowRange range = fetch->announced.front();
  fetch->announced.pop_front();
  for (uint32_t row = range.first; row < range.first + range.count; ++row) {
    fetch->digest = kv::add_to_digest(fetch->digest, slots_[fetch->slot].rows[row]);
  }
  step(id, ReceiveSession::RowsArrived{range.first + range.count, fetch->digest});
}

void KvReceiver::on_commit(LinkId link, TransferId id, uint32_t rows, uint64_t digest) {
  step_if(find(id, link),
          ReceiveSession::CommitReceived{
              .link = link, .rows = rows, .bytes = rows * sizeof(uint64_t), .digest = digest});
}

void KvReceiver::on_cancelled(LinkId link, TransferId id) {
  Fetch* fetch = find(id, link);
  if (fetch != nullptr && fetch->session.state() == ReceiveSession::State::kCancelling) {
    step(id, ReceiveSession::PeerStopped{link, {ErrorCode::kCancelled, "as it was asked to"}});
  }
}

void KvReceiver::on_abort(LinkId link, TransferId id, const Error& why) {
  step_if(find(id, link), ReceiveSession::PeerStopped{link, why});
}

void KvReceiver::write(size_t slot, uint64_t fetch, uint32_t row, uint64_t value) {
  if (!alive()) {
    return;  // The memory of a dead process has no reader.
  }
  world_.invariants().expect(slots_[slot].fetch == fetch,
                             "rows that were given on are not written, but those of fetch", fetch,
                             "at", name());
  slots_[slot].rows[row] = value;
}

bool KvReceiver::idle() const {
  return fetches_.empty() && std::all_of(slots_.begin(), slots_.end(),
                                         [](const Slot& slot) { return slot.fetch == 0; });
}

// --- sessions

void KvReceiver::step_if(const Fetch* fetch, const ReceiveSession::Event& event) {
  if (fetch != nullptr) {
    step(fetch->id, event);
  }
}

void KvReceiver::step(TransferId id, ReceiveSession::Event event) {
  const auto found = fetches_.find(id);
  const KvSabotage& sabotage = world_.sabotage();
  if (found == fetches_.end() || (sabotage.receive_event && !sabotage.receive_event(event))) {
    return;
  }
  Fetch& fetch = found->second;
  std::vector<ReceiveSession::Effect> effects;
  fetch.session.step(event, world_.now(), effects);
  if (sabotage.receive_effects) {
    sabotage.receive_effects(effects);
  }
  for (const ReceiveSession::Effect& effect : effects) {
    std::visit([&](const auto& what) { apply(fetch, what); }, effect);
  }
  if (fetch.session.ended()) {
    world_.invariants().expect(fetch.reported, "a fetch is told how it ended:", id);
    fetches_.erase(found);
  } else {
    arm(fetch);
  }
}

void KvReceiver::step_all_of(LinkId link, const ReceiveSession::Event& event) {
  std::vector<TransferId> ids;
  for (const auto& [id, fetch] : fetches_) {
    if (fetch.session.link() == link) {
      ids.push_back(id);
    }
  }
  for (const TransferId id : ids) {
    step(id, event);
  }
}

void KvReceiver::arm(Fetch& fetch) {
  const Instant due = fetch.session.deadline();
  if (due >= fetch.timer_due) {
    return;
  }
  fetch.timer_due = due;
  post(due, [this, id = fetch.id, number = fetch.number, due] {
    const auto found = fetches_.find(id);
    if (found != fetches_.end() && found->second.number == number &&
        found->second.timer_due == due) {
      found->second.timer_due = kNever;
      step(id, ReceiveSession::TimePassed{});
    }
  });
}

KvReceiver::Fetch* KvReceiver::find(TransferId id, LinkId link) {
  const auto found = fetches_.find(id);
  const bool ours = found != fetches_.end() && found->second.session.link() == link;
  return ours ? &found->second : nullptr;
}

void KvReceiver::apply(Fetch& fetch, const ReceiveSession::SendGrant& /*effect*/) {
  const LinkId link = fetch.session.link();
  const KvGrant grant{
      .receiver = this, .slot = fetch.slot, .fetch = fetch.number, .rows = fetch.rows};
  world_.to_sender(link, "GRANT",
                   [=, id = fetch.id](KvSender& sender) { sender.on_grant(link, id, grant); });
}

void KvReceiver::apply(Fetch& fetch, const ReceiveSession::SendCommitted& /*effect*/) {
  const LinkId link = fetch.session.link();
  world_.to_sender(link, "COMMITTED",
                   [link, id = fetch.id](KvSender& sender) { sender.on_committed(link, id); });
}

void KvReceiver::apply(Fetch& fetch, const ReceiveSession::SendCancel& /*effect*/) {
  const LinkId link = fetch.session.link();
  world_.to_sender(link, "CANCEL",
                   [link, id = fetch.id](KvSender& sender) { sender.on_cancel(link, id); });
}

void KvReceiver::apply(Fetch& fetch, const ReceiveSession::FailLink& effect) {
  post(world_.now(), [this, link = fetch.session.link(), why = effect.reason] { fail(link, why); });
}

void KvReceiver::apply(Fetch& fetch, const ReceiveSession::ReportDone& effect) {
  report(fetch, "done");
  ++world_.result().done;
  const Slot& slot = slots_[fetch.slot];
  for (uint32_t row = 0; row < effect.rows; ++row) {
    world_.invariants().expect(slot.rows[row] == kv::row_value(fetch.id, row),
                               "committed rows are the sender's:", fetch.id);
  }
  give_on(fetch);
}

void KvReceiver::apply(Fetch& fetch, const ReceiveSession::ReportFailed& effect) {
  report(fetch, effect.reason.message);
  ++world_.result().failed;
  if (effect.region_safe) {
    give_on(fetch);
  }
}

void KvReceiver::apply(Fetch& fetch, const ReceiveSession::ReportReleased& /*effect*/) {
  world_.invariants().expect(fetch.reported, "only what failed is released:", fetch.id);
  ++world_.result().released_late;
  give_on(fetch);
}

void KvReceiver::report(Fetch& fetch, const std::string& what) {
  world_.invariants().expect(!fetch.reported, "a fetch ends once:", fetch.id);
  fetch.reported = true;
  fetch.announced.clear();
  trace("fetch " + std::to_string(fetch.id.low) + " ends: " + what);
}

void KvReceiver::give_on(const Fetch& fetch) {
  Slot& slot = slots_[fetch.slot];
  world_.invariants().expect(slot.fetch == fetch.number, "rows are given on once:", fetch.id);
  slot.fetch = 0;
  // The rows belong to another fetch now.
  std::fill(slot.rows.begin(), slot.rows.end(), mix(fetch.number));
}

}  // namespace pdjob::simulation
