#include "tests/simulation/sim_receiver.h"

#include "tests/simulation/sim_worker.h"
#include "tests/simulation/sim_world.h"

namespace pdjob::simulation {
namespace {

constexpr Duration kConnectTimeout = std::chrono::milliseconds(150);
constexpr Duration kRenewInterval = kConnectTimeout / 2;
constexpr Duration kSilenceMax = 2 * kConnectTimeout;

}  // namespace

// --- what the worker wants

void SimReceiver::fetch(TransferId id, Incarnation peer, SequenceId target, uint32_t rows,
                        Instant deadline) {
  const LinkId link = link_to(peer);
  const ReceiveSession session({.link = link,
                                .rows = rows,
                                .row_bytes = sizeof(Row),
                                .peer_writes = world_.shared_kv(),
                                .deadline = deadline,
                                .stall_max = SimWorld::kStallMax});
  const bool is_new =
      fetches_.emplace(id, Fetch{.id = id, .target = target, .rows = rows, .session = session})
          .second;
  world_.invariants().expect(is_new, "a transfer is fetched once:", id);
  waits_.erase(id);
  arm(fetches_.at(id));
  if (peers_.at(link).ready) {
    step(id, ReceiveSession::LinkReady{link});
  }
}

void SimReceiver::await(TransferId id, Incarnation peer, Instant until) {
  const LinkId link = link_to(peer);
  const bool is_new = waits_.emplace(id, Awaited{peer, until, link}).second;
  world_.invariants().expect(is_new && !fetches_.contains(id), "a transfer is awaited once:", id);
  say_wait(id, waits_.at(id));
}

void SimReceiver::say_wait(TransferId id, const Awaited& wait) {
  const auto peer = peers_.find(wait.link);
  if (peer != peers_.end() && peer->second.ready && !peer->second.given_up) {
    world_.links().to_sender(
        wait.link, [link = wait.link, id, at_most = wait.until - world_.now()](SimWorker& worker) {
          worker.sender().on_wait(link, id, at_most);
        });
  }
}

// The receiver sends its WAITs again on the next link.
void SimReceiver::lose_waits(LinkId link) {
  for (const auto& [id, wait] : waits_) {
    if (wait.link == link) {
      world_.post(world_.now() + kRenewInterval, worker_.incarnation(),
                  [id = id, link](SimWorker& worker) {
                    SimReceiver& self = worker.receiver();
                    const auto found = self.waits_.find(id);
                    if (found != self.waits_.end() && found->second.link == link) {
                      found->second.link = self.link_to(found->second.peer);
                      self.say_wait(id, found->second);
                    }
                  });
    }
  }
}

void SimReceiver::cancel(TransferId id) {
  if (const auto wait = waits_.extract(id)) {
    const LinkId link = wait.mapped().link;
    world_.links().to_sender(link, [=](SimWorker& worker) {
      worker.sender().on_cancel(link, id, {ErrorCode::kCancelled, "the wait ended"});
    });
  }
  step(id, ReceiveSession::CancelRequested{{ErrorCode::kCancelled, "the fetch was cancelled"}});
}

LinkId SimReceiver::link_to(Incarnation peer) {
  for (const auto& [id, known] : peers_) {
    if (known.sender == peer && !known.given_up) {
      return id;
    }
  }
  const LinkId link = world_.links().open(peer, worker_.incarnation());
  peers_[link] = {.sender = peer};
  world_.links().to_sender(link, [link](SimWorker& worker) { worker.sender().on_opened(link); });
  world_.post(world_.now() + kConnectTimeout, worker_.incarnation(), [link](SimWorker& worker) {
    SimReceiver& self = worker.receiver();
    if (const auto found = self.peers_.find(link);
        found != self.peers_.end() && !found->second.ready) {
      self.fail(link, {ErrorCode::kUnavailable, "the peer did not open a KV link in time"});
    }
  });
  return link;
}

// --- links

void SimReceiver::on_ready(LinkId link) {
  const auto found = peers_.find(link);
  if (found == peers_.end() || found->second.given_up) {
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

void SimReceiver::renew(LinkId link) {
  const auto found = peers_.find(link);
  if (found == peers_.end() || found->second.given_up) {
    return;
  }
  Peer& peer = found->second;
  if (peer.silent_since != kNever && world_.now() - peer.silent_since > kSilenceMax) {
    return fail(link, {ErrorCode::kUnavailable, "the peer is silent"});
  }
  peer.silent_since = std::min(peer.silent_since, world_.now());
  world_.links().to_sender(link, [link](SimWorker& worker) { worker.sender().on_renew(link); });
  world_.post(world_.now() + kRenewInterval, worker_.incarnation(),
              [link](SimWorker& worker) { worker.receiver().renew(link); });
}

void SimReceiver::on_renewed(LinkId link) {
  if (const auto found = peers_.find(link); found != peers_.end()) {
    found->second.silent_since = kNever;
  }
}

void SimReceiver::fail(LinkId link, const Error& reason) {
  const auto found = peers_.find(link);
  if (found == peers_.end() || found->second.given_up) {
    return;
  }
  if (found->second.ready && world_.shared_kv()) {
    found->second.given_up = true;
    world_.links().give_up_at_receiver(link);
    step_all_of(link, ReceiveSession::LinkLost{link, kvtransfer::LinkLoss::kGivenUp, reason});
    lose_waits(link);
    return;
  }
  peers_.erase(found);
  world_.links().close_at_receiver(link);
  step_all_of(link, ReceiveSession::LinkLost{link, kvtransfer::LinkLoss::kClosed, reason});
  lose_waits(link);
}

void SimReceiver::on_closed(LinkId link) {
  if (peers_.erase(link) > 0) {
    step_all_of(link, ReceiveSession::LinkLost{link,
                                               kvtransfer::LinkLoss::kClosed,
                                               {ErrorCode::kUnavailable, "the KV link closed"}});
    lose_waits(link);
  }
}

// --- what links say of one transfer

void SimReceiver::on_rows(LinkId link, TransferId id, kvtransfer::RowRange range,
                          const std::vector<Row>& rows) {
  step(id, ReceiveSession::RowsAnnounced{link, range});
  const auto found = fetches_.find(id);
  if (found == fetches_.end() ||
      found->second.session.state() != ReceiveSession::State::kReceiving) {
    return;
  }
  if (!rows.empty()) {
    worker_.write_rows(id, found->second.target, range.first, rows);
  }
  world_.post(world_.network().hand_over(hashing_), worker_.incarnation(), [=](SimWorker& worker) {
    SimReceiver& self = worker.receiver();
    if (const auto fetch = self.fetches_.find(id);
        fetch != self.fetches_.end() && fetch->second.session.link() == link) {
      const uint32_t arrived = range.first + range.count;
      self.step(id, ReceiveSession::RowsArrived{
                        arrived, worker.engine().digest(fetch->second.target, arrived)});
    }
  });
}

void SimReceiver::on_commit(LinkId link, TransferId id, uint32_t rows, uint64_t digest,
                            uint64_t tail) {
  if (const auto found = fetches_.find(id); found != fetches_.end()) {
    found->second.tail = tail;
    step(id, ReceiveSession::CommitReceived{
                 .link = link, .rows = rows, .bytes = rows * sizeof(Row), .digest = digest});
  }
}

void SimReceiver::on_cancelled(LinkId link, TransferId id) {
  step(id,
       ReceiveSession::PeerStopped{link, {ErrorCode::kUnavailable, "the sender stopped unasked"}});
}

void SimReceiver::on_abort(LinkId link, TransferId id, const Error& reason) {
  step(id, ReceiveSession::PeerStopped{link, reason});
}

// --- sessions

void SimReceiver::step(TransferId id, const ReceiveSession::Event& event) {
  const auto found = fetches_.find(id);
  if (found == fetches_.end()) {
    return;
  }
  Fetch& fetch = found->second;
  std::vector<ReceiveSession::Effect> effects;
  fetch.session.step(event, world_.now(), effects);
  for (const ReceiveSession::Effect& effect : effects) {
    std::visit([&](const auto& what) { apply(fetch, what); }, effect);
  }
  if (fetch.session.ended()) {
    fetches_.erase(found);
  } else {
    arm(fetch);
  }
}

void SimReceiver::arm(Fetch& fetch) {
  const Instant due = fetch.session.deadline();
  if (due >= fetch.timer_due) {
    return;
  }
  fetch.timer_due = due;
  world_.post(due, worker_.incarnation(), [id = fetch.id, due](SimWorker& worker) {
    SimReceiver& self = worker.receiver();
    const auto found = self.fetches_.find(id);
    if (found != self.fetches_.end() && found->second.timer_due == due) {
      found->second.timer_due = kNever;
      self.step(id, ReceiveSession::TimePassed{});
    }
  });
}

void SimReceiver::step_all_of(LinkId link, const ReceiveSession::Event& event) {
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

void SimReceiver::apply(Fetch& fetch, const ReceiveSession::SendGrant& /*effect*/) {
  const LinkId link = fetch.session.link();
  world_.links().to_sender(
      link, [=, id = fetch.id, target = fetch.target, rows = fetch.rows](SimWorker& worker) {
        worker.sender().on_grant(link, id, target, rows);
      });
}

void SimReceiver::apply(Fetch& fetch, const ReceiveSession::SendCommitted& /*effect*/) {
  const LinkId link = fetch.session.link();
  world_.links().to_sender(
      link, [link, id = fetch.id](SimWorker& worker) { worker.sender().on_committed(link, id); });
}

void SimReceiver::apply(Fetch& fetch, const ReceiveSession::SendCancel& effect) {
  const LinkId link = fetch.session.link();
  world_.links().to_sender(link, [link, id = fetch.id, reason = effect.reason](SimWorker& worker) {
    worker.sender().on_cancel(link, id, reason);
  });
}

void SimReceiver::apply(Fetch& fetch, const ReceiveSession::FailLink& effect) {
  // Deferred: the session is in the middle of a step.
  world_.post(world_.now(), worker_.incarnation(),
              [link = fetch.session.link(), reason = effect.reason](SimWorker& worker) {
                worker.receiver().fail(link, reason);
              });
}

void SimReceiver::apply(Fetch& fetch, const ReceiveSession::ReportDone& /*effect*/) {
  worker_.fetch_done(fetch.id, fetch.tail);
}

void SimReceiver::apply(Fetch& fetch, const ReceiveSession::ReportFailed& effect) {
  bool suspect = false;
  if (effect.cause == kvtransfer::FailureCause::kDigest) {
    const auto peer = peers_.find(fetch.session.link());
    suspect = peer != peers_.end() && ++digest_errors_[peer->second.sender] > 1;
  }
  worker_.fetch_failed(
      fetch.id,
      {.error = effect.reason, .region_safe = effect.region_safe, .pair_suspect = suspect});
}

void SimReceiver::apply(Fetch& fetch, const ReceiveSession::ReportReleased& /*effect*/) {
  worker_.fetch_released(fetch.id);
}

}  // namespace pdjob::simulation
