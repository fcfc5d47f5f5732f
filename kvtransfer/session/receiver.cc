#include "kvtransfer/session/receiver.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fcntl.h>

#include "common/limits.h"
#include "common/log.h"
#include "kvtransfer/link/deadline_timer.h"

namespace pdjob::kvtransfer {

struct Receiver::Fetch final : LinkWork {
  Fetch(Receiver& receiver, TransferId transfer, Region region,
        const ReceiveSession::Options& options)
      : owner(receiver),
        id(transfer),
        target(std::move(region)),
        rows_granted(options.rows),
        session(options),
        timer(receiver.context_.timers) {}

  Progress work(size_t bytes_max) override {
    const Progress progress = rows->advance(bytes_max);
    queued = progress != Progress::kDone;
    owner.step(*this, ReceiveSession::RowsArrived{rows->rows_arrived(),
                                                  rows->digest()});  // May destroy us.
    return progress;
  }

  Receiver& owner;
  const TransferId id;
  const Region target;
  const uint32_t rows_granted;
  ReceiveSession session;
  DeadlineTimer timer;
  bool same_machine = false;
  std::unique_ptr<RowReceiver> rows;  // While it receives.
  PayloadSink* sink = nullptr;
  bool queued = false;       // Queued as work of its link.
  bool released = false;     // Our GPU no longer writes the target.
  bool told_unsafe = false;  // FetchReleased must follow.
  Instant granted_at{};
  Instant ready_at{};  // By the sender's clock, which equals ours on the same machine.
  std::vector<std::byte> tail;
};

Receiver::Receiver(EndpointContext& context) : context_(context), waits_(context, *this) {}

Receiver::~Receiver() = default;

// --- what the worker wants

void Receiver::await(TransferId id, const EndpointAddress& peer, Instant until) {
  waits_.begin(id, peer, until);
}

void Receiver::fetch(TransferId id, const EndpointAddress& peer, Region target, uint32_t rows,
                     Instant deadline) {
  if (fetches_.contains(id)) {
    log::error("kv: transfer " + id.to_string() + " is fetched twice; the second fetch is ignored");
    return;
  }
  if (fetches_.size() >= limits::kTransfersMax) {
    return refuse(id, {ErrorCode::kOverloaded, "too many KV transfers"});
  }
  if (const Status sound = check_region(target, rows, context_.device); !sound) {
    return refuse(id, sound.error());
  }
  const Result<const TransportTraits*> transport =
      choose(peer, target.device           ? TargetMemory::kGpu
                   : target.shared_fd >= 0 ? TargetMemory::kShared
                                           : TargetMemory::kPrivate);
  if (!transport) {
    return refuse(id, transport.error());
  }
  const Result<LinkId> link = link_to(peer, **transport);
  if (!link) {
    return refuse(id, link.error());
  }
  const TransportCapabilities capabilities = peers_.at(*link).link->transport().capabilities();
  const ReceiveSession::Options options{
      .link = *link,
      .rows = rows,
      .row_bytes = bytes_per_row(target.windows),
      .peer_writes = capabilities.writes_target,
      .writes_late = capabilities.writes_late && target.device.has_value(),
      .deadline = deadline,
      .stall_max = context_.stall_max(bytes_per_row(target.windows))};
  Fetch& made = *(fetches_[id] = std::make_unique<Fetch>(*this, id, std::move(target), options));
  made.same_machine = on_same_machine(peer);
  ++context_.counters.fetches_alive;
  waits_.fetched(id);
  arm(made);
  if (link_of(made).ready()) {
    step(made, ReceiveSession::LinkReady{*link});
  }
}

void Receiver::cancel(TransferId id) {
  if (Fetch* fetch = find(id)) {
    step(*fetch,
         ReceiveSession::CancelRequested{{ErrorCode::kCancelled, "the fetch was cancelled"}});
  } else {
    waits_.cancel(id);
  }
}

void Receiver::tell(const EndpointAddress& peer, BlockNews news) {
  const Result<LinkId> link = link_for_wait(peer);
  if (!link) {
    return;
  }
  Peer& known = peers_.at(*link);
  if (known.link->ready()) {
    known.link->send(std::move(news));
  } else if (known.news.size() < kNewsOfLinkMax) {
    known.news.push_back(std::move(news));
  }
}

void Receiver::count_alive(LinkId link, PairStats& pair) const {
  pair.transfers_alive += static_cast<uint64_t>(std::ranges::count_if(
      fetches_, [link](const auto& entry) { return entry.second->session.link() == link; }));
  pair.waits_alive += waits_.count(link);
}

void Receiver::refuse(TransferId id, const Error& why) {
  waits_.cancel(id);
  ++context_.counters.transfers_failed;
  context_.emit(FetchFailed{.id = id, .error = why, .region_safe = true});
}

// --- links

bool Receiver::on_same_machine(const EndpointAddress& peer) const {
  return !peer.host_id.empty() && peer.host_id == context_.host_id;
}

// Returns why the transport cannot be used; null: it can.
const char* Receiver::misfit(const TransportTraits& transport, const EndpointAddress& peer,
                             TargetMemory memory) const {
  if (transport.unix_name != nullptr && !on_same_machine(peer)) {
    return "the peer is on another machine";
  }
  if (transport.unix_name != nullptr && (peer.*transport.unix_name).empty()) {
    return "the peer does not offer it";
  }
  if (transport.target && transport.target != memory) {
    return transport.target == TargetMemory::kGpu ? "the target is not in a GPU's memory"
                                                  : "the target is not shared memory";
  }
  return nullptr;
}

Result<const TransportTraits*> Receiver::choose(const EndpointAddress& peer,
                                                TargetMemory memory) const {
  const char* reason = nullptr;
  for (const TransportTraits& each : context_.transports) {
    reason = misfit(each, peer, memory);
    if (reason == nullptr) {
      return &each;
    }
  }
  return Error{ErrorCode::kUnsupported, std::string("kvtransfer.transport is ") +
                                            to_string(context_.config.transport) + ", but " +
                                            reason};
}

Result<LinkId> Receiver::link_to(const EndpointAddress& peer, const TransportTraits& transport) {
  const uint8_t stream = least_busy_stream(peer, transport);
  const auto known = links_by_peer_.find({peer.engine_id, transport.kind, stream});
  return known != links_by_peer_.end() ? known->second : connect(peer, transport, stream);
}

// Picks the link that the fetch will probably use. If the fetch uses another link, that link holds
// the offer.
Result<LinkId> Receiver::link_for_wait(const EndpointAddress& peer) {
  PDJOB_TRY(const TransportTraits* transport,
            choose(peer, context_.device ? TargetMemory::kGpu : TargetMemory::kShared));
  return link_to(peer, *transport);
}

Link* Receiver::find_ready(LinkId id) {
  const auto found = peers_.find(id);
  return found != peers_.end() && found->second.link->ready() ? found->second.link.get() : nullptr;
}

// A new stream is opened only when all open ones are busy.
uint8_t Receiver::least_busy_stream(const EndpointAddress& peer,
                                    const TransportTraits& transport) const {
  uint8_t best = 0;
  uint64_t fewest = UINT64_MAX;
  for (uint8_t stream = 0; stream < transport.streams && fewest > 0; ++stream) {
    const auto known = links_by_peer_.find({peer.engine_id, transport.kind, stream});
    const bool open = known != links_by_peer_.end();
    if (!open && stream > 0 && peers_.size() >= limits::kLinksMax) {
      continue;  // At the limit: use the open streams.
    }
    if (const uint64_t awaited = open ? bytes_awaited(known->second) : 0; awaited < fewest) {
      best = stream;
      fewest = awaited;
    }
  }
  return best;
}

uint64_t Receiver::bytes_awaited(LinkId id) const {
  uint64_t bytes = 0;
  for (const auto& [transfer, fetch] : fetches_) {
    if (fetch->session.link() == id) {
      const uint32_t arrived = fetch->rows ? fetch->rows->rows_arrived() : 0;
      bytes += bytes_per_row(fetch->target.windows) * (fetch->rows_granted - arrived);
    }
  }
  return bytes;
}

Result<LinkId> Receiver::connect(const EndpointAddress& address, const TransportTraits& transport,
                                 uint8_t stream) {
  if (peers_.size() >= limits::kLinksMax) {
    return Error{ErrorCode::kOverloaded, "too many KV links"};
  }
  PDJOB_TRY(std::unique_ptr<LinkSocket> socket, context_.network.connect(address, transport));
  const LinkId id = context_.next_link_id();
  const Hello hello{.transport = transport.kind,
                    .epoch = ++epoch_,
                    .engine_id = context_.identity.engine_id,
                    .peer_engine_id = address.engine_id,
                    .nonce = random_nonce(),
                    .stream = stream};
  Peer& peer = peers_[id];
  LinkHandler& handler = *this;
  peer.link =
      std::make_unique<Link>(context_.timers, handler,
                             Link::Options{.id = id,
                                           .side = Link::Side::kInitiator,
                                           .transport = transport.kind,
                                           .open_transport = context_.open_transport,
                                           .socket = std::move(socket),
                                           .handshake = LinkHandshake(context_.identity, hello),
                                           .devices = context_.devices});
  peer.timer =
      context_.timers.call_at(context_.timers.now() + context_.config.connect_timeout, [this, id] {
        peers_.at(id).link->fail(
            {ErrorCode::kUnavailable, "the peer did not open a KV link in time"});
      });
  links_by_peer_[{address.engine_id, transport.kind, stream}] = id;
  context_.pairs.link_made(id, {address.engine_id, transport.kind, Direction::kReceives},
                           hello.epoch, context_.timers.exact_now());
  ++context_.counters.links;
  return id;
}

Status Receiver::on_opened(Link& link) {
  context_.timers.cancel(peers_.at(link.id()).timer);
  renew_later(link.id());
  context_.pairs.link_opened(
      link.id(), link.encrypted() ? PairTable::Privacy::kEncrypted : PairTable::Privacy::kPlain);
  for (BlockNews& news : std::exchange(peers_.at(link.id()).news, {})) {
    link.send(std::move(news));
  }
  step_all_of(link.id(), ReceiveSession::LinkReady{link.id()});
  waits_.on_link_ready(link);
  return ok();
}

void Receiver::renew_later(LinkId id) {
  peers_.at(id).timer =
      context_.timers.call_at(context_.timers.now() + renew_interval(), [this, id] { renew(id); });
}

Duration Receiver::renew_interval() const {
  return std::min(context_.config.lease / 3, context_.config.connect_timeout / 2);
}

void Receiver::renew(LinkId id) {
  Link& link = *peers_.at(id).link;
  const auto silent = [&] {
    return link.silent_since() != kNever &&
           context_.timers.now() - link.silent_since() > context_.silence_max();
  };
  if (silent()) {
    link.poll();
  }
  if (silent()) {
    context_.pairs.stalled(id, StallCause::kSilence);
    link.fail({ErrorCode::kUnavailable, "KV link lost: the peer is silent"});
  } else if (payload_has_stopped(peers_.at(id))) {
    context_.pairs.stalled(id, StallCause::kPayload);
    link.fail({ErrorCode::kUnavailable, "KV link lost: rows stopped in the middle"});
  } else {
    link.send(Renew{});
    link.expect_answer(context_.timers.now());
  }
  renew_later(id);
}

// Later messages are readable only after the payload, so a stopped payload blocks the link. Its
// time is counted in our own renewals: a clock would blame the peer if our process slept.
bool Receiver::payload_has_stopped(Peer& peer) {
  const std::optional<Link::Unfinished> payload = peer.link->unfinished_payload();
  peer.payload_waits = payload && payload == peer.payload ? peer.payload_waits + 1 : 0;
  peer.payload = payload;
  return payload && peer.payload_waits * renew_interval() >= context_.stall_max(payload->bytes);
}

void Receiver::on_lost(Link& link, LinkLoss loss, const Error& reason) {
  const LinkId id = link.id();
  // Clients see this error only when no other way is left.
  log::warn("kv: the link to " + link.hello().peer_engine_id + " ended: " + reason.message);
  std::erase_if(links_by_peer_, [&](const auto& entry) { return entry.second == id; });
  context_.timers.cancel(peers_.at(id).timer);
  step_all_of(id, ReceiveSession::LinkLost{id, loss, reason});
  waits_.on_link_lost(id);
  context_.pairs.link_lost(id, context_.timers.exact_now());
  if (loss == LinkLoss::kClosed) {
    peers_.erase(id);
    --context_.counters.links;
  }
}

// --- what links say

PayloadSink* Receiver::on_rows(Link& link, const Rows& rows) {
  Fetch* fetch = find(rows.id, link);
  if (fetch == nullptr) {
    return nullptr;  // The transfer was cancelled meanwhile.
  }
  const bool on_link = link.transport().capabilities().rows_on_link;
  if (rows.payload_bytes != (on_link ? bytes_per_row(fetch->target.windows) * rows.count : 0)) {
    link.fail({ErrorCode::kCorrupt, "ROWS with a wrong number of bytes on a KV link"});
    return nullptr;
  }
  const RowRange range{.first = rows.first, .count = rows.count};
  step(*fetch, ReceiveSession::RowsAnnounced{link.id(), range});
  fetch = find(rows.id, link);
  if (fetch == nullptr || fetch->session.state() != ReceiveSession::State::kReceiving) {
    return nullptr;
  }
  fetch->sink = fetch->rows->announced(range);
  return fetch->sink;
}

void Receiver::on_rows_came(Link& link, TransferId id) {
  Fetch* fetch = find(id, link);
  if (fetch != nullptr && !fetch->queued) {
    fetch->queued = true;
    link.add_work(*fetch);
  }
}

void Receiver::on_payload_complete(Link& link, const Rows& rows) {
  if (Fetch* fetch = find(rows.id, link)) {
    step(*fetch, ReceiveSession::RowsArrived{fetch->rows->rows_arrived(), fetch->rows->digest()});
  }
}

void Receiver::on_message(Link& link, LinkMessage message, Fd /*shared*/,
                          std::vector<std::byte> tail) {
  if (const auto* commit = std::get_if<Commit>(&message)) {
    if (Fetch* fetch = find(commit->id, link)) {
      fetch->tail = std::move(tail);
      // Clamped to a plausible time: the peer may send any number.
      fetch->ready_at = std::clamp(Instant(Duration(static_cast<int64_t>(commit->ready_at_ns))),
                                   fetch->granted_at, context_.timers.exact_now());
      step(*fetch, ReceiveSession::CommitReceived{.link = link.id(),
                                                  .rows = commit->rows,
                                                  .bytes = commit->bytes,
                                                  .digest = commit->digest});
    }
  } else if (const auto* cancelled = std::get_if<Cancelled>(&message)) {
    // In any other state it answers the CANCEL of an earlier fetch of the same transfer.
    if (Fetch* fetch = find(cancelled->id, link);
        fetch != nullptr && fetch->session.state() == ReceiveSession::State::kCancelling) {
      step(*fetch,
           ReceiveSession::PeerStopped{link.id(), {ErrorCode::kCancelled, "as it was asked to"}});
    }
  } else if (const auto* abort = std::get_if<Abort>(&message)) {
    if (Fetch* fetch = find(abort->id, link)) {
      step(*fetch, ReceiveSession::PeerStopped{link.id(), abort->error});
    }
  }
}

// --- sessions

void Receiver::step(Fetch& fetch, const ReceiveSession::Event& event) {
  std::vector<ReceiveSession::Effect> effects;
  // The turn's start time would be stale: a turn may hash for a millisecond.
  fetch.session.step(event, context_.timers.exact_now(), effects);
  for (const ReceiveSession::Effect& effect : effects) {
    std::visit([&](const auto& what) { apply(fetch, what); }, effect);
  }
  if (fetch.session.ended()) {
    retire(fetch);
  } else if (fetch.released) {
    step(fetch, ReceiveSession::WritesEnded{});
  } else {
    arm(fetch);
  }
}

void Receiver::arm(Fetch& fetch) {
  fetch.timer.arm(fetch.session.next_wakeup(),
                  [this, id = fetch.id] { step(*find(id), TimePassed{}); });
}

void Receiver::step_all_of(LinkId link, const ReceiveSession::Event& event) {
  std::vector<TransferId> ids;
  for (const auto& [id, fetch] : fetches_) {
    if (fetch->session.link() == link) {
      ids.push_back(id);
    }
  }
  for (const TransferId id : ids) {
    if (Fetch* fetch = find(id)) {
      step(*fetch, event);
    }
  }
}

void Receiver::apply(Fetch& fetch, const ReceiveSession::SendGrant& /*effect*/) {
  Link& link = link_of(fetch);
  Grant grant{.id = fetch.id, .rows = fetch.rows_granted};
  for (const Window& window : fetch.target.windows) {
    grant.windows.push_back({.row_bytes = window.row_bytes, .shared_offset = window.shared_offset});
  }
  Fd shared;
  if (link.transport().capabilities().writes_target) {
    grant.shared_bytes = fetch.target.shared_bytes;
    grant.shared_id = fetch.target.shared_id;
    // Our own duplicate: it stays valid until it is sent, even if the target is freed.
    shared = Fd(::fcntl(fetch.target.shared_fd, F_DUPFD_CLOEXEC, 0));
    if (!shared.valid()) {
      // The sender gives each descriptor to the first grant that waits for one. A grant without a
      // descriptor would get the next grant's memory and be written there.
      return step(fetch,
                  ReceiveSession::CancelRequested{
                      {ErrorCode::kOverloaded, "no file descriptor is left for a KV grant"}});
    }
  }
  fetch.rows = link.transport().open_receiver(grant, fetch.target);
  fetch.granted_at = context_.timers.exact_now();
  link.send(std::move(grant), std::move(shared), {});
}

void Receiver::apply(Fetch& fetch, const ReceiveSession::SendCommitted& /*effect*/) {
  link_of(fetch).send(Committed{fetch.id});
}

void Receiver::apply(Fetch& fetch, const ReceiveSession::SendCancel& effect) {
  link_of(fetch).send(Cancel{fetch.id, effect.reason});
}

void Receiver::apply(Fetch& fetch, const ReceiveSession::FailLink& effect) {
  if (effect.reason.code == ErrorCode::kTimeout) {
    context_.pairs.stalled(fetch.session.link(), StallCause::kCancel);
  } else {
    log::warn("kv: " + effect.reason.message + ", from " + link_of(fetch).hello().peer_engine_id +
              ": its link is made anew");
  }
  // A fetch that comes before the link has ended must not use it either.
  std::erase_if(links_by_peer_,
                [&](const auto& entry) { return entry.second == fetch.session.link(); });
  link_of(fetch).fail(effect.reason);
}

void Receiver::apply(Fetch& fetch, const ReceiveSession::ReportDone& effect) {
  const Instant now = context_.timers.exact_now();
  --context_.counters.fetches_alive;
  ++context_.counters.transfers_received;
  context_.counters.bytes_received += effect.bytes;
  context_.pairs.done(fetch.session.link(), effect.bytes, now - fetch.granted_at);
  context_.emit(FetchDone{.id = fetch.id,
                          .rows = effect.rows,
                          .bytes = effect.bytes,
                          .duration = now - fetch.granted_at,
                          .visible = fetch.same_machine ? now - fetch.ready_at : Duration(0),
                          .transport = link_of(fetch).transport().capabilities().name,
                          .digest = effect.digest,
                          .tail = std::move(fetch.tail)});
}

void Receiver::apply(Fetch& fetch, const ReceiveSession::ReportFailed& effect) {
  stop_receiving(fetch);
  ++context_.counters.transfers_failed;
  if (fetch.session.state() == ReceiveSession::State::kReleasing) {
    await_release(fetch);
  }
  const bool safe = effect.region_safe || fetch.released;
  fetch.told_unsafe = !safe;
  if (safe) {
    --context_.counters.fetches_alive;
  }
  if (effect.cause == FailureCause::kDigest || effect.cause == FailureCause::kBrokenPromise) {
    ++context_.counters.digest_errors;
  } else if (effect.cause == FailureCause::kStalled) {
    context_.pairs.stalled(fetch.session.link(), StallCause::kArrival);
  }
  const bool suspect =
      context_.pairs.failed(fetch.session.link(), effect.cause, context_.timers.exact_now());
  context_.emit(FetchFailed{
      .id = fetch.id, .error = effect.reason, .region_safe = safe, .pair_suspect = suspect});
}

// The release mostly comes at once, within a step; that step then continues with it.
void Receiver::await_release(Fetch& fetch) {
  link_of(fetch).transport().when_released(fetch.id, [this, id = fetch.id] {
    Fetch& held = *find(id);
    held.released = true;
    if (held.told_unsafe) {
      step(held, ReceiveSession::WritesEnded{});
    }
  });
}

void Receiver::apply(Fetch& fetch, const ReceiveSession::ReportReleased& /*effect*/) {
  if (fetch.told_unsafe) {
    --context_.counters.fetches_alive;
    context_.emit(FetchReleased{fetch.id});
  }
}

// From here on we touch the target only in the ways that when_released() waits for.
void Receiver::stop_receiving(Fetch& fetch) {
  if (fetch.rows == nullptr) {
    return;
  }
  Link& link = link_of(fetch);
  link.remove_work(fetch);
  if (fetch.sink != nullptr) {
    link.drop_sink(*fetch.sink);
    fetch.sink = nullptr;
  }
  fetch.rows.reset();  // Waits until the GPU has finished reading.
}

void Receiver::retire(Fetch& fetch) {
  stop_receiving(fetch);
  fetches_.erase(TransferId(fetch.id));
}

Receiver::Fetch* Receiver::find(TransferId id) {
  const auto found = fetches_.find(id);
  return found == fetches_.end() ? nullptr : found->second.get();
}

Receiver::Fetch* Receiver::find(TransferId id, const Link& link) {
  Fetch* fetch = find(id);
  return fetch != nullptr && fetch->session.link() == link.id() ? fetch : nullptr;
}

Link& Receiver::link_of(const Fetch& fetch) { return *peers_.at(fetch.session.link()).link; }

}  // namespace pdjob::kvtransfer
