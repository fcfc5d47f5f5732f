#include "kvtransfer/link/link.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "common/limits.h"

namespace pdjob::kvtransfer {
namespace {

constexpr size_t kPiecesMax = 64;
constexpr size_t kWorksPerTurn = 16;
// Between two looks at a peer that dies.
constexpr Duration kLookAgain = std::chrono::milliseconds(2);

const std::array<std::byte, 64 * limits::kKiB>
    kZeros{};  // Abandoned payloads are filled up with these.

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

Error lost(const char* how) {
  return {ErrorCode::kUnavailable, std::string("KV link lost: ") + how};
}

}  // namespace

Link::Link(net::Timers& timers, LinkHandler& handler, Options options)
    : id_(options.id),
      side_(options.side),
      timers_(timers),
      handler_(handler),
      socket_(std::move(options.socket)),
      handshake_(std::move(options.handshake)),
      transport_(options.open_transport(
          options.transport, *this,
          side_ == Side::kInitiator ? TransportSide::kReceiver : TransportSide::kSender,
          options.devices)),
      greeted_(side_ == Side::kInitiator),
      input_(limits::kLinkMessageBytesMax + kFrameHeaderBytes) {
  if (const Status watched = socket_->watch(*this); !watched) {
    fail(watched.error());
  }
}

Link::~Link() {
  if (turn_) {
    timers_.cancel(*turn_);
  }
}

// --- turns

void Link::on_ready(uint32_t /*epoll_events*/) {
  if (state_ == State::kConnecting && !finish_connect()) {
    return;
  }
  read_some();
  write_some();
}

void Link::schedule_turn() {
  if (!turn_) {
    turn_ = timers_.call_at(timers_.now(), [this] { run_turn(); });
  }
}

void Link::run_turn() {
  turn_.reset();
  if (failure_) {
    end(*std::exchange(failure_, std::nullopt));  // May destroy us.
    return;
  }
  read_some();
  write_some();
}

void Link::fail(Error reason) {
  const bool given_up = state_ == State::kDraining && !peer_closed_;
  if (!failure_ && !given_up) {
    failure_ = std::move(reason);
    schedule_turn();
  }
}

void Link::end(const Error& reason) {
  if (!may_be_written()) {
    socket_->unwatch();
    handler_.on_lost(*this, LinkLoss::kClosed, reason);
    return;
  }
  const bool first = state_ == State::kReady;
  if (first) {
    state_ = State::kDraining;
    work_.clear();
    sink_ = nullptr;
    socket_->finish_writing();
  }
  if (socket_->peer_has_closed()) {
    socket_->unwatch();
    failure_ = reason;
    turn_ = timers_.call_at(timers_.now() + kLookAgain, [this] { run_turn(); });
  } else {
    schedule_turn();  // The loop does not report bytes again that have already come.
  }
  if (first) {
    handler_.on_lost(*this, LinkLoss::kGivenUp, reason);
  }
}

bool Link::may_be_written() const {
  const TransportCapabilities can = transport_->capabilities();
  if (side_ != Side::kInitiator || !can.writes_target) {
    return false;
  }
  const bool closed = socket_->peer_has_closed();
  return closed ? (state_ == State::kReady || state_ == State::kDraining) && can.device_writes &&
                      socket_->peer_is_dying()
                : state_ == State::kReady;
}

bool Link::finish_connect() {
  Status connected = socket_->connected();
  if (connected && side_ == Side::kInitiator && transport_->capabilities().device_writes) {
    connected = socket_->follow_peer();
  }
  if (!connected) {
    fail(connected.error());
    return false;
  }
  state_ = State::kOpening;
  if (side_ == Side::kInitiator) {
    send(handshake_.hello());
  }
  return true;
}

void Link::expect_answer(Instant now) {
  if (silent_since_ == kNever) {
    silent_since_ = now;
  }
}

std::optional<Link::Unfinished> Link::unfinished_payload() const {
  if (payload_in_left_ == 0) {
    return std::nullopt;
  }
  return Unfinished{.number = payloads_in_,
                    .bytes = commit_in_ ? tail_in_.size() : rows_in_.payload_bytes};
}

// --- in

void Link::read_some() {
  size_t budget = limits::kTransferTurnBytes;
  while (alive() && state_ != State::kConnecting && check_greeting()) {
    if (take_input()) {
      continue;
    }
    if (budget == 0) {
      return schedule_turn();
    }
    if (!receive(budget)) {
      return;
    }
  }
}

// An acceptor checks the first bytes: an encrypting end and a plain one cannot read each other's
// errors. False: too few bytes have come, or the peer was turned away.
bool Link::check_greeting() {
  if (greeted_) {
    return true;
  }
  const std::optional<LinkSocket::Greeting> greeting = socket_->greeting();
  if (!greeting) {
    return false;
  }
  greeted_ = (*greeting == LinkSocket::Greeting::kTls) == socket_->encrypted();
  if (!greeted_) {
    const Error why{ErrorCode::kUnsupported,
                    std::string("KV link: the sender ") +
                        (socket_->encrypted() ? "encrypts, the receiver does not"
                                              : "does not encrypt, the receiver does") +
                        ": kvtransfer.tcp.encrypt must be the same on both ends"};
    socket_->turn_away();
    send(Refuse{why});
    fail(why);
  }
  return greeted_;
}

// Uses buffered bytes. False: more must come first.
bool Link::take_input() {
  const std::span<const std::byte> buffered(input_.data() + input_begin_,
                                            input_end_ - input_begin_);
  if (state_ == State::kDraining) {
    input_begin_ = input_end_;
    return false;
  }
  if (payload_in_left_ > 0) {
    const size_t bytes = std::min<uint64_t>(payload_in_left_, buffered.size());
    input_begin_ += bytes;
    take_payload(buffered.first(bytes));
    return bytes > 0;
  }
  if (buffered.size() < kFrameHeaderBytes) {
    return false;
  }
  const Result<FrameHeader> header = decode_header(buffered.first<kFrameHeaderBytes>());
  if (!header) {
    fail(header.error());
    return false;
  }
  if (buffered.size() < kFrameHeaderBytes + header->body_bytes) {
    return false;
  }
  input_begin_ += kFrameHeaderBytes + header->body_bytes;
  on_frame(*header, buffered.subspan(kFrameHeaderBytes, header->body_bytes));
  return true;
}

// Reads once, straight into the final place. False: nothing more for now.
bool Link::receive(size_t& budget) {
  std::array<iovec, kPiecesMax> pieces;
  size_t count = 1;
  const bool into_payload = payload_in_left_ > 0 && state_ != State::kDraining;
  if (!into_payload) {
    std::copy(input_.data() + input_begin_, input_.data() + input_end_, input_.data());
    input_end_ -= std::exchange(input_begin_, 0);
    pieces[0] = {input_.data() + input_end_, input_.size() - input_end_};
  } else if (commit_in_) {
    pieces[0] = {tail_in_.data() + tail_in_.size() - payload_in_left_, payload_in_left_};
  } else if (sink_ != nullptr) {
    count = sink_->next_pieces(pieces, std::min<uint64_t>(payload_in_left_, budget));
  } else {
    // Discarded: nothing is buffered while a payload is read.
    pieces[0] = {input_.data(), std::min<uint64_t>(payload_in_left_, input_.size())};
  }
  const ssize_t received = socket_->read(std::span(pieces).first(count), shared_in_);
  if (received < 0 && would_block()) {
    return false;
  }
  if (received <= 0) {
    peer_closed_ = true;
    fail(received == 0 ? lost("the peer closed it") : socket_->error());
    return false;
  }
  silent_since_ = kNever;
  const auto bytes = static_cast<size_t>(received);
  budget -= std::min(budget, bytes);
  if (into_payload) {
    payload_came(bytes);
  } else {
    input_end_ += bytes;
  }
  return alive();
}

// Takes payload bytes that came along with a message.
void Link::take_payload(std::span<const std::byte> bytes) {
  while (!bytes.empty() && alive()) {
    size_t taken = bytes.size();
    if (commit_in_) {
      std::copy(bytes.begin(), bytes.end(),
                tail_in_.end() - static_cast<ptrdiff_t>(payload_in_left_));
    } else if (sink_ != nullptr) {
      std::array<iovec, 1> piece;
      sink_->next_pieces(piece, bytes.size());
      taken = piece[0].iov_len;
      std::memcpy(piece[0].iov_base, bytes.data(), taken);
    }
    bytes = bytes.subspan(taken);
    payload_came(taken);
  }
}

void Link::payload_came(size_t bytes) {
  payload_in_left_ -= bytes;
  if (commit_in_) {
    if (payload_in_left_ == 0) {
      const Commit commit = *std::exchange(commit_in_, std::nullopt);
      handler_.on_message(*this, commit, Fd(), std::exchange(tail_in_, {}));
    }
  } else if (sink_ != nullptr) {
    sink_->filled(bytes);
    if (payload_in_left_ == 0) {
      sink_ = nullptr;
      handler_.on_payload_complete(*this, rows_in_);
    }
  }
}

void Link::on_frame(const FrameHeader& header, std::span<const std::byte> body) {
  Result<LinkMessage> message = decode_body(header.type, body);
  if (!message) {
    return fail(message.error());
  }
  if (state_ == State::kOpening) {
    return open(*message);
  }
  dispatch(std::move(*message));
}

void Link::open(const LinkMessage& message) {
  std::vector<LinkMessage> replies;
  handshake_.bind(socket_->channel());
  const LinkHandshake::Outcome outcome = handshake_.step(message, replies);
  std::optional<Error> refused;
  if (outcome == LinkHandshake::Outcome::kFailed) {
    refused = handshake_.error();
  } else if (outcome == LinkHandshake::Outcome::kReady) {
    state_ = State::kReady;
    if (const Status opened = handler_.on_opened(*this); !opened) {
      refused = opened.error();
      replies = {Refuse{opened.error()}};
    }
  }
  for (LinkMessage& reply : replies) {
    send(std::move(reply));
  }
  if (refused) {
    fail(*std::move(refused));
  }
}

void Link::dispatch(LinkMessage message) {
  const MessageRole role = role_of(message);
  const bool expected = side_ == Side::kAcceptor ? role.from_receiver : role.from_sender;
  if (!expected || (role.between_transports && !transport_->on_message(message))) {
    return fail(
        {ErrorCode::kCorrupt, std::string("unexpected ") + name_of(message) + " on a KV link"});
  }
  if (role.between_transports) {
    return;
  }
  if (const auto* rows = std::get_if<Rows>(&message)) {
    return begin_rows(*rows);
  }
  if (const auto* commit = std::get_if<Commit>(&message); commit && commit->tail_bytes > 0) {
    return begin_commit(*commit);
  }
  Fd shared;
  if (std::holds_alternative<Grant>(message) && !shared_in_.empty()) {
    shared = std::move(shared_in_.front());
    shared_in_.pop_front();
  }
  handler_.on_message(*this, std::move(message), std::move(shared), {});
}

void Link::begin_rows(const Rows& rows) {
  if (rows.payload_bytes > limits::kTransferRangeBytes + limits::kTransferRowBytesMax) {
    return fail({ErrorCode::kCorrupt, "too many bytes under one ROWS on a KV link"});
  }
  ++payloads_in_;
  rows_in_ = rows;
  sink_ = handler_.on_rows(*this, rows);
  payload_in_left_ = rows.payload_bytes;
  PDJOB_CHECK(sink_ == nullptr || payload_in_left_ > 0);
}

void Link::begin_commit(const Commit& commit) {
  if (commit.tail_bytes > limits::kTransferTailBytesMax) {
    return fail({ErrorCode::kCorrupt, "too long a tail on a KV link"});
  }
  ++payloads_in_;
  commit_in_ = commit;
  tail_in_.resize(commit.tail_bytes);
  payload_in_left_ = commit.tail_bytes;
}

void Link::drop_sink(PayloadSink& sink) {
  if (sink_ == &sink) {
    sink_ = nullptr;
  }
}

// --- out

void Link::send(LinkMessage message, Fd shared, std::vector<std::byte> tail) {
  if (!alive() || state_ == State::kDraining) {
    return;
  }
  const auto* commit = std::get_if<Commit>(&message);
  PDJOB_CHECK(tail.size() == (commit != nullptr ? commit->tail_bytes : 0), tail.size());
  std::deque<Outgoing>& queue = payload_out_left_ > 0 ? out_after_payload_ : out_;
  const std::string bytes = encode(message);
  out_bytes_ += bytes.size();
  if (queue.empty() || !queue.back().tail.empty() || shared.valid()) {
    queue.push_back({.shared = std::move(shared)});
  }
  queue.back().bytes += bytes;
  queue.back().tail = std::move(tail);
  if (out_bytes_ > limits::kLinkQueueBytesMax) {
    fail(lost("the peer does not read"));
  } else if (payload_out_left_ == 0 && !working_) {
    flush();
  }
}

void Link::begin_payload(uint64_t bytes) {
  PDJOB_CHECK(payload_out_left_ == 0 && !work_.empty());
  payload_out_left_ = bytes;
  payload_owner_ = bytes > 0 ? work_.front() : nullptr;
}

size_t Link::write_payload(std::span<const iovec> pieces) {
  if (!flush(LinkSocket::Then::kMore)) {  // ROWS and its rows are one write to the receiver.
    return 0;
  }
  const ssize_t written = socket_->write(pieces, Fd(), LinkSocket::Then::kNothing);
  if (written < 0) {
    write_failed();
    return 0;
  }
  payload_out_left_ -= static_cast<uint64_t>(written);
  if (payload_out_left_ == 0) {
    payload_owner_ = nullptr;
    std::swap(out_, out_after_payload_);  // out_ was flushed.
  }
  return static_cast<size_t>(written);
}

void Link::add_work(LinkWork& work) {
  work_.push_back(&work);
  schedule_turn();
}

void Link::remove_work(LinkWork& work) {
  std::erase(work_, &work);
  if (payload_owner_ == &work) {
    payload_owner_ = nullptr;
    schedule_turn();
  }
}

void Link::write_some() {
  const bool open = state_ == State::kOpening || state_ == State::kReady;
  if (open && !socket_->flush()) {
    return write_failed();
  }
  for (size_t works = 0; alive() && open;) {
    if (payload_out_left_ > 0 && payload_owner_ == nullptr) {
      if (!write_zeros()) {
        return;
      }
      continue;
    }
    if ((payload_out_left_ == 0 && !flush()) || work_.empty()) {
      return;
    }
    if (works++ == kWorksPerTurn) {
      return schedule_turn();
    }
    LinkWork* const next = work_.front();
    working_ = true;
    const Progress progress = next->work(limits::kTransferTurnBytes);
    working_ = false;
    switch (progress) {
      case Progress::kBlocked:
        if (payload_out_left_ == 0) {
          flush();  // A message it sent before may unblock it.
        }
        return;
      case Progress::kOthersFirst:
        std::rotate(work_.begin(), work_.begin() + 1, work_.end());
        [[fallthrough]];
      case Progress::kMore:
        return schedule_turn();
      case Progress::kDone:
        // The work may have added itself again, or be gone.
        if (const auto entry = std::find(work_.begin(), work_.end(), next); entry != work_.end()) {
          work_.erase(entry);
        }
    }
  }
}

// False: blocked or failed.
bool Link::flush(LinkSocket::Then then) {
  while (!out_.empty() && alive()) {
    Outgoing& item = out_.front();
    const ssize_t written = write(item, then);
    if (written < 0) {
      write_failed();
      return false;
    }
    item.shared = Fd();
    item.written += static_cast<size_t>(written);
    if (item.written == item.bytes.size() + item.tail.size()) {
      out_bytes_ -= item.bytes.size();
      out_.pop_front();
    }
  }
  return alive();
}

ssize_t Link::write(const Outgoing& item, LinkSocket::Then then) {
  std::array<iovec, 2> pieces;
  const size_t head = std::min(item.written, item.bytes.size());
  const size_t tail = item.written - head;
  pieces[0] = {const_cast<char*>(item.bytes.data()) + head, item.bytes.size() - head};
  pieces[1] = {const_cast<std::byte*>(item.tail.data()) + tail, item.tail.size() - tail};
  return socket_->write(pieces, item.shared, then);
}

void Link::write_failed() {
  if (!would_block()) {
    fail(socket_->error());
  }
}

bool Link::write_zeros() {
  const iovec piece{const_cast<std::byte*>(kZeros.data()),
                    std::min<uint64_t>(payload_out_left_, kZeros.size())};
  return write_payload(std::span(&piece, 1)) > 0;
}

}  // namespace pdjob::kvtransfer
