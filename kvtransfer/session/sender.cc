#include "kvtransfer/session/sender.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/limits.h"
#include "common/log.h"
#include "kvtransfer/link/deadline_timer.h"

namespace pdjob::kvtransfer {
namespace {

Status fits(const Region& source, const Grant& grant) {
  if (source.windows.size() != grant.windows.size()) {
    return Error{ErrorCode::kInvalidArgument,
                 "KV regions differ: " + std::to_string(source.windows.size()) + " windows here, " +
                     std::to_string(grant.windows.size()) + " granted"};
  }
  for (size_t i = 0; i < source.windows.size(); ++i) {
    if (source.windows[i].row_bytes != grant.windows[i].row_bytes) {
      return Error{ErrorCode::kInvalidArgument,
                   "KV regions differ: rows of window " + std::to_string(i) + " have " +
                       std::to_string(source.windows[i].row_bytes) + " bytes here, " +
                       std::to_string(grant.windows[i].row_bytes) + " granted"};
    }
  }
  return ok();
}

template <class Entries>
size_t count_of(const Entries& entries, LinkId link) {
  return static_cast<size_t>(std::ranges::count_if(
      entries, [link](const auto& entry) { return entry.second.link == link; }));
}

// True: another transfer has the same name.
template <class Entries>
bool has_namesake(const Entries& entries, const TransferId& id) {
  const auto first = entries.lower_bound(TransferId{.high = 0, .low = id.low});
  return first != entries.end() && first->first.low == id.low && first->first != id;
}

// Reveals nothing about the transfer that has the name.
Error unknown_transfer() {
  return {ErrorCode::kUnavailable,
          "there is no such KV transfer: its id is of another prompt or tenant"};
}

// A digest depends on the ranges: that of a block must be the same by every transport. In smaller
// ones, copying in pieces is a third slower (tests/bench/store_moves_bench.cc).
constexpr uint64_t kBlockRangeBytes = 1024 * limits::kKiB;
static_assert(kBlockRangeBytes <= limits::kTransferRangeBytes);

uint32_t rows_within(uint64_t bytes, uint64_t row_bytes) {
  return static_cast<uint32_t>(std::clamp<uint64_t>(bytes / row_bytes, 1, UINT32_MAX));
}

SendSession::Options session_options(const Region& source, Instant deadline,
                                     const EndpointContext& context) {
  const uint64_t row_bytes = bytes_per_row(source.windows);
  return {.row_bytes = row_bytes,
          .rows_max = source.rows_max,
          .rows_per_push = UINT32_MAX,  // The transport sets it.
          .deadline = deadline,
          .lease = context.config.lease,
          .stall_max = context.stall_max(row_bytes),
          .start_max = context.start_max() + context.stall_max(row_bytes)};
}

}  // namespace

struct Sender::Offer final : LinkWork {
  Offer(Sender& sender, TransferId transfer, Region region, Instant deadline, OfferTerms its_terms)
      : owner(sender),
        id(transfer),
        source(std::move(region)),
        terms(std::move(its_terms)),
        session(session_options(source, deadline, sender.context_)),
        timer(sender.context_.timers) {}

  Progress work(size_t bytes_max) override {
    if (!started) {
      if (!rows->can_start()) {
        owner.step(*this, SendSession::RangeWaits{});  // Ends no session.
        return Progress::kBlocked;
      }
      rows->start(source, range);
      started = true;
      owner.step(*this, SendSession::RangeStarted{});  // Ends no session.
    }
    const Result<Progress> progress = rows->advance(bytes_max);
    if (!progress) {
      owner.step(*this, SendSession::PushFailed{progress.error()});  // Destroys us.
      return Progress::kDone;
    }
    if (*progress == Progress::kDone) {
      owner.context_.counters.bytes_sent += bytes_per_row(source.windows) * range.count;
      owner.step(*this, SendSession::RangePushed{});  // May destroy us.
      return Progress::kDone;
    }
    return *progress;
  }

  Sender& owner;
  const TransferId id;
  const Region source;
  const OfferTerms terms;
  SendSession session;
  DeadlineTimer timer;
  std::unique_ptr<RowSender> rows;  // Set from the grant on.
  RowRange range;                   // The range being pushed.
  bool started = false;
  std::vector<std::byte> tail;
  Instant ready_at{};
  Instant granted_at{};
  std::optional<Error> broken;  // Of its terms: it must fail.
  bool damaged = false;         // That term is the digest.
};

Sender::Sender(EndpointContext& context) : context_(context) {}

Sender::~Sender() = default;

void Sender::accept(std::unique_ptr<LinkSocket> socket, TransportKind transport) {
  end_oldest_unopened();
  const LinkId id = context_.next_link_id();
  unopened_.push_back(id);
  Peer& peer = peers_[id];
  LinkHandler& handler = *this;
  peer.link = std::make_unique<Link>(
      context_.timers, handler,
      Link::Options{.id = id,
                    .side = Link::Side::kAcceptor,
                    .transport = transport,
                    .open_transport = context_.open_transport,
                    .socket = std::move(socket),
                    .handshake = LinkHandshake(context_.identity, transport, random_nonce()),
                    .devices = context_.devices});
  peer.opening =
      context_.timers.call_at(context_.timers.now() + context_.config.connect_timeout, [this, id] {
        if (Link* link = find(id); link != nullptr && !link->ready()) {
          link->fail({ErrorCode::kTimeout, "a KV link did not open in time"});
        }
      });
  ++context_.counters.links;
}

// A holder of the token occupies its place only briefly. Strangers cannot block it for long: open
// links are counted separately.
void Sender::end_oldest_unopened() {
  if (unopened_.size() < kUnopenedLinksMax) {
    return;
  }
  if (context_.timers.now() >= warns_again_at_) {
    log::warn("kv: too many links are being opened, the oldest of them end");
    warns_again_at_ = context_.timers.now() + std::chrono::minutes(1);
  }
  find(unopened_.front())->fail({ErrorCode::kOverloaded, "too many KV links are being opened"});
  unopened_.pop_front();
}

// --- what the worker wants

void Sender::offer(TransferId id, Region source, Instant deadline, OfferTerms terms) {
  if (offers_.contains(id)) {
    log::error("kv: transfer " + id.to_string() + " is offered twice; the second offer is ignored");
    return;
  }
  const Status sound = check_region(source, 0, context_.device);
  if (!sound || offers_.size() >= limits::kTransfersMax) {
    ++context_.counters.transfers_failed;
    context_.emit(OfferFailed{
        id, sound ? Error{ErrorCode::kOverloaded, "too many KV transfers"} : sound.error()});
    return;
  }
  Offer& made = *(offers_[id] = std::make_unique<Offer>(*this, id, std::move(source), deadline,
                                                        std::move(terms)));
  ++context_.counters.offers_alive;
  if (ended_.erase(id) > 0) {
    std::erase(ended_order_, id);
  }
  refuse_impostors(id);
  arm(made);
  if (auto wait = early_waits_.extract(id)) {
    step(made, SendSession::PeerWaits{wait.mapped().link,
                                      wait.mapped().until - context_.timers.exact_now()});
  }
  if (auto waiting = waiting_.extract(id)) {
    context_.emit(OfferAwaited{.id = id, .awaited = false});
    WaitingGrant& first = waiting.mapped();
    grant(made, first.link, first.grant, std::move(first.rows));
  }
}

void Sender::refuse(TransferId id, const Error& reason) {
  remember(id, reason);
  if (const auto waiting = waiting_.extract(id)) {
    find(waiting.mapped().link)->send(Abort{id, reason});
    context_.emit(OfferAwaited{.id = id, .awaited = false});
  }
}

// Refuses early grants with the right name and a wrong proof: their offer will never come.
void Sender::refuse_impostors(TransferId id) {
  for (auto entry = waiting_.lower_bound(TransferId{.high = 0, .low = id.low});
       entry != waiting_.end() && entry->first.low == id.low;) {
    if (entry->first == id) {
      ++entry;
      continue;
    }
    find(entry->second.link)->send(Abort{entry->first, unknown_transfer()});
    context_.emit(OfferAwaited{.id = entry->first, .awaited = false});
    entry = waiting_.erase(entry);
  }
}

void Sender::rows_ready(TransferId id, uint32_t ready) {
  if (Offer* offer = find(id)) {
    step(*offer, SendSession::RowsReady{ready});
  }
}

void Sender::commit(TransferId id, uint32_t rows, std::vector<std::byte> tail, Instant ready_at) {
  Offer* offer = find(id);
  if (offer == nullptr) {
    return;
  }
  if (tail.size() > limits::kTransferTailBytesMax) {
    return step(*offer, SendSession::Withdrawn{{ErrorCode::kInvalidArgument,
                                                "the tail of a KV transfer is too long"}});
  }
  offer->tail = std::move(tail);
  offer->ready_at = ready_at;
  step(*offer, SendSession::CommitRequested{rows});
}

void Sender::withdraw(TransferId id, Error reason) {
  if (Offer* offer = find(id)) {
    step(*offer, SendSession::Withdrawn{std::move(reason)});
  }
}

void Sender::count_alive(LinkId link, PairStats& pair) const {
  for (const auto& [id, offer] : offers_) {
    if (offer->session.link() == link) {
      ++(offer->session.is_granted() ? pair.transfers_alive : pair.waits_alive);
    }
  }
  pair.transfers_alive += count_of(waiting_, link);
  pair.waits_alive += count_of(early_waits_, link);
}

// --- what links say

Status Sender::on_opened(Link& link) {
  std::erase(unopened_, link.id());
  const Hello& hello = link.hello();
  const LinkKey key{hello.engine_id, hello.transport, hello.stream};
  if (links_by_engine_.size() >= limits::kLinksMax && !links_by_engine_.contains(key)) {
    return Error{ErrorCode::kOverloaded, "too many KV links"};
  }
  LinkId& known = links_by_engine_[key];
  if (Link* older = find(known); older != nullptr && older != &link) {
    if (hello.epoch <= older->hello().epoch) {
      return Error{ErrorCode::kUnavailable,
                   "KV link: epoch " + std::to_string(hello.epoch) + " is stale"};
    }
    older->fail({ErrorCode::kUnavailable, "KV link replaced by a newer one"});
  }
  known = link.id();
  context_.pairs.link_made(link.id(), {hello.engine_id, hello.transport, Direction::kSends},
                           hello.epoch, context_.timers.exact_now());
  context_.pairs.link_opened(
      link.id(), link.encrypted() ? PairTable::Privacy::kEncrypted : PairTable::Privacy::kPlain);
  return ok();
}

void Sender::on_message(Link& link, LinkMessage message, Fd shared,
                        std::vector<std::byte> /*tail*/) {
  if (auto* grant = std::get_if<Grant>(&message)) {
    on_grant(link, std::move(*grant), std::move(shared));
  } else if (const auto* cancel = std::get_if<Cancel>(&message)) {
    on_cancel(link, *cancel);
  } else if (const auto* committed = std::get_if<Committed>(&message)) {
    if (Offer* offer = find(committed->id)) {
      step(*offer, SendSession::PeerCommitted{link.id()});
    }
  } else if (std::holds_alternative<Renew>(message)) {
    on_renew(link);
  } else if (const auto* wait = std::get_if<Wait>(&message)) {
    on_wait(link, *wait);
  } else if (auto* news = std::get_if<BlockNews>(&message)) {
    on_blocks(link, std::move(*news));
  }
}

void Sender::on_blocks(Link& link, BlockNews news) {
  const std::string& peer = link.hello().engine_id;
  if (news.kind == BlockNews::Kind::kHeld && news.holder.engine_id != peer) {
    return link.fail({ErrorCode::kCorrupt, "a peer spoke of blocks that another one holds"});
  }
  context_.emit(BlocksTold{.peer = peer, .news = std::move(news)});
}

void Sender::on_renew(Link& link) {
  for (const auto& [id, offer] : offers_) {
    step(*offer, SendSession::PeerRenewed{link.id()});  // Ends no session.
  }
  // A link renews as long as it lives, so waits for offers that never come expire here.
  std::erase_if(early_waits_, [&](const auto& entry) {
    return entry.second.link == link.id() && entry.second.until <= context_.timers.exact_now();
  });
  link.send(Renewed{});
}

void Sender::on_wait(Link& link, const Wait& wait) {
  const auto at_most =
      std::min<Duration>(std::chrono::milliseconds(wait.at_most_ms), limits::kTransferWaitMax);
  if (Offer* offer = find(wait.id)) {
    return step(*offer, SendSession::PeerWaits{link.id(), at_most});  // Ends no session.
  }
  // An ended transfer is reported to its fetch. Beyond the bound the wait is dropped, and the offer
  // has only its lease.
  const bool useful = !ended_.contains(wait.id) && !waiting_.contains(wait.id);
  if (useful && (early_waits_.contains(wait.id) || early_waits_.size() < limits::kTransfersMax)) {
    early_waits_.insert_or_assign(wait.id,
                                  EarlyWait{link.id(), context_.timers.exact_now() + at_most});
  }
}

void Sender::on_grant(Link& link, Grant granted, Fd shared) {
  const auto refuse = [&](Error why) { link.send(Abort{granted.id, std::move(why)}); };
  if (const auto ended = ended_.find(granted.id); ended != ended_.end()) {
    return refuse(ended->second);
  }
  early_waits_.erase(granted.id);  // The awaited grant has come.
  Offer* offer = find(granted.id);
  if (offer == nullptr && (has_namesake(offers_, granted.id) || has_namesake(ended_, granted.id))) {
    return refuse(unknown_transfer());
  }
  const auto waiting = waiting_.find(granted.id);
  if ((offer != nullptr && offer->session.is_granted()) || waiting != waiting_.end()) {
    const LinkId holder = offer != nullptr ? offer->session.link() : waiting->second.link;
    if (holder == link.id()) {
      return link.fail({ErrorCode::kCorrupt, "a KV transfer was granted twice"});
    }
    return refuse({ErrorCode::kInvalidArgument, "the KV transfer goes to another receiver"});
  }
  if (offer == nullptr && (waiting_.size() >= limits::kTransfersMax ||
                           count_of(waiting_, link.id()) >= kWaitingGrantsOfLinkMax)) {
    return refuse({ErrorCode::kOverloaded, "too many KV transfers"});
  }
  Result<std::unique_ptr<RowSender>> rows =
      link.transport().open_sender(granted, std::move(shared));
  if (!rows) {
    refuse(rows.error());
    return end_wait(offer, link, rows.error());
  }
  if (offer != nullptr) {
    grant(*offer, link.id(), granted, *std::move(rows));
  } else {
    const TransferId id = granted.id;
    waiting_.emplace(id, WaitingGrant{link.id(), std::move(granted), *std::move(rows)});
    context_.emit(OfferAwaited{.id = id});
  }
}

void Sender::grant(Offer& offer, LinkId link, const Grant& granted,
                   std::unique_ptr<RowSender> rows) {
  if (const Status fit = fits(offer.source, granted); !fit) {
    find(link)->send(Abort{offer.id, fit.error()});
    return end_wait(&offer, *find(link), fit.error());
  }
  offer.rows = std::move(rows);
  offer.granted_at = context_.timers.exact_now();
  const bool is_block = offer.terms.changed != nullptr || offer.terms.digest;
  const uint64_t range_bytes =
      is_block ? kBlockRangeBytes : find(link)->transport().capabilities().range_bytes;
  step(offer, SendSession::Granted{link, granted.rows,
                                   rows_within(range_bytes, bytes_per_row(offer.source.windows))});
}

// Ends the wait of a receiver that came but cannot be served: it will not come again.
void Sender::end_wait(Offer* offer, const Link& link, const Error& why) {
  if (offer != nullptr && offer->session.link() == link.id()) {
    step(*offer, SendSession::PeerCancelled{link.id(), why});
  }
}

void Sender::on_cancel(Link& link, const Cancel& cancel) {
  if (Offer* offer = find(cancel.id); offer != nullptr && offer->session.link() == link.id()) {
    return step(*offer, SendSession::PeerCancelled{link.id(), cancel.error});
  }
  if (const auto wait = early_waits_.find(cancel.id);
      wait != early_waits_.end() && wait->second.link == link.id()) {
    early_waits_.erase(wait);
  }
  if (const auto waiting = waiting_.find(cancel.id);
      waiting != waiting_.end() && waiting->second.link == link.id()) {
    waiting_.erase(waiting);
    context_.emit(OfferAwaited{.id = cancel.id, .awaited = false});
  }
  link.send(Cancelled{cancel.id});
}

void Sender::on_lost(Link& link, LinkLoss /*loss*/, const Error& reason) {
  const LinkId id = link.id();
  std::vector<TransferId> lost;
  for (const auto& [transfer, offer] : offers_) {
    lost.push_back(transfer);
  }
  for (const TransferId transfer : lost) {
    if (Offer* offer = find(transfer)) {
      step(*offer, SendSession::LinkLost{id, reason});
    }
  }
  std::erase_if(waiting_, [&](const auto& entry) {
    const bool gone = entry.second.link == id;
    if (gone) {
      context_.emit(OfferAwaited{.id = entry.first, .awaited = false});
    }
    return gone;
  });
  std::erase_if(early_waits_, [&](const auto& entry) { return entry.second.link == id; });
  if (link.differs()) {
    ++context_.counters.fingerprints_refused;
    log::warn("kv: a link was refused: " + reason.message);
  }
  context_.pairs.link_lost(id, context_.timers.exact_now());
  std::erase_if(links_by_engine_, [&](const auto& entry) { return entry.second == id; });
  std::erase(unopened_, id);
  context_.timers.cancel(peers_.at(id).opening);
  peers_.erase(id);
  --context_.counters.links;
}

// --- sessions

void Sender::step(Offer& offer, const SendSession::Event& event) {
  std::vector<SendSession::Effect> effects;
  // The turn's start time would be stale: a turn may copy for a millisecond.
  offer.session.step(event, context_.timers.exact_now(), effects);
  for (const SendSession::Effect& effect : effects) {
    std::visit([&](const auto& what) { apply(offer, what); }, effect);
  }
  if (auto broken = std::exchange(offer.broken, std::nullopt)) {
    return step(offer, SendSession::Withdrawn{*std::move(broken)});
  }
  if (offer.session.ended()) {
    retire(offer);
  } else {
    arm(offer);
  }
}

void Sender::apply(Offer& offer, const SendSession::Push& effect) {
  offer.range = effect.range;
  offer.started = false;
  find(offer.session.link())->add_work(offer);
}

void Sender::apply(Offer& offer, const SendSession::SendCommit& effect) {
  if (offer.terms.changed != nullptr && offer.terms.changed->load()) {
    offer.broken = {ErrorCode::kUnavailable, "the KV rows were needed for another prompt"};
    return;
  }
  if (offer.terms.digest && *offer.terms.digest != offer.rows->digest()) {
    offer.broken = {ErrorCode::kCorrupt, "the KV rows are damaged"};
    offer.damaged = true;
    return;
  }
  const Commit commit{
      .id = offer.id,
      .rows = effect.rows,
      .bytes = effect.bytes,
      .digest = offer.rows->digest(),
      .ready_at_ns = static_cast<uint64_t>(offer.ready_at.time_since_epoch().count()),
      .tail_bytes = static_cast<uint32_t>(offer.tail.size())};
  find(offer.session.link())->send(commit, Fd(), std::move(offer.tail));
}

void Sender::apply(Offer& offer, const SendSession::SendAbort& effect) {
  stop_pushing(offer);
  find(offer.session.link())->send(Abort{offer.id, effect.reason});
}

void Sender::apply(Offer& offer, const SendSession::SendCancelled& /*effect*/) {
  stop_pushing(offer);
  find(offer.session.link())->send(Cancelled{offer.id});
}

void Sender::apply(Offer& offer, const SendSession::ReportDone& effect) {
  stop_pushing(offer);
  ++context_.counters.transfers_sent;
  context_.pairs.done(offer.session.link(), effect.bytes,
                      context_.timers.exact_now() - offer.granted_at);
  remember(offer.id, {ErrorCode::kUnavailable, "the KV rows were already delivered"});
  tell_end(offer, OfferDone{offer.id, effect.bytes});
}

void Sender::apply(Offer& offer, const SendSession::ReportFailed& effect) {
  stop_pushing(offer);
  ++context_.counters.transfers_failed;
  context_.pairs.failed(offer.session.link(), effect.cause, context_.timers.exact_now());
  if (effect.cause == FailureCause::kStalled) {
    context_.pairs.stalled(offer.session.link(), StallCause::kPush);
  }
  remember(offer.id, effect.reason);
  tell_end(offer, OfferFailed{offer.id, effect.reason, offer.damaged});
}

// The event allows the worker to free the rows. For rows in GPU memory it waits until the GPU has
// packed its last slab from them.
void Sender::tell_end(const Offer& offer, EndpointEvent event) {
  const auto tell = [&context = context_, event = std::move(event)] {
    --context.counters.offers_alive;
    context.emit(event);
  };
  Link* const link = find(offer.session.link());
  if (link != nullptr && offer.source.device) {
    link->transport().when_released(offer.id, tell);
  } else {
    tell();
  }
}

void Sender::stop_pushing(Offer& offer) {
  if (offer.rows) {
    find(offer.session.link())->remove_work(offer);
    offer.rows.reset();
  }
}

void Sender::arm(Offer& offer) {
  offer.timer.arm(offer.session.next_wakeup(),
                  [this, id = offer.id] { step(*find(id), TimePassed{}); });
}

void Sender::retire(Offer& offer) { offers_.erase(TransferId(offer.id)); }

void Sender::remember(TransferId id, Error why) {
  ended_.insert_or_assign(id, std::move(why));
  ended_order_.push_back(id);
  if (ended_order_.size() > limits::kTransfersMax) {
    ended_.erase(ended_order_.front());
    ended_order_.pop_front();
  }
}

Sender::Offer* Sender::find(TransferId id) {
  const auto found = offers_.find(id);
  return found == offers_.end() ? nullptr : found->second.get();
}

Link* Sender::find(LinkId id) {
  const auto found = peers_.find(id);
  return found == peers_.end() ? nullptr : found->second.link.get();
}

}  // namespace pdjob::kvtransfer
