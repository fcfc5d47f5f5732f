// Link: one connected socket between two endpoints. It runs the handshake (LinkHandshake), frames
// messages, and gives transports their stream. A fetching endpoint initiates, an offering one
// accepts; a link never changes sides. Transfers are unknown to it.
//
// Long work is LinkWork, done piece by piece between messages. So a big transfer or a slow peer
// cannot block the loop. Loop-bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/files/fd.h"
#include "common/result.h"
#include "kvtransfer/link/link_handshake.h"
#include "kvtransfer/link/link_id.h"
#include "kvtransfer/link/link_message.h"
#include "kvtransfer/link/link_socket.h"
#include "kvtransfer/link/transport.h"
#include "net/loop/event_loop.h"

namespace pdjob::kvtransfer {

class Link;

// A link calls it on its own turns, never from within a call to the link.
class LinkHandler {
 public:
  // The handshake is complete. An acceptor's error goes to the initiator instead of WELCOME.
  virtual Status on_opened(Link& link) = 0;
  // `shared` is the descriptor that came with a Grant; `tail` is the bytes that followed a Commit.
  virtual void on_message(Link& link, LinkMessage message, Fd shared,
                          std::vector<std::byte> tail) = 0;
  // The next three calls come to an initiator only.
  //
  // ROWS came. Returns where its payload goes; nullptr discards it.
  virtual PayloadSink* on_rows(Link& /*link*/, const Rows& /*rows*/) { return nullptr; }
  // The sink has taken the whole payload.
  virtual void on_payload_complete(Link& /*link*/, const Rows& /*rows*/) {}
  // The transport has rows of a transfer for RowReceiver::advance().
  virtual void on_rows_came(Link& /*link*/, TransferId /*id*/) {}
  // kClosed is the last call; it may destroy the link.
  virtual void on_lost(Link& link, LinkLoss loss, const Error& reason) = 0;

 protected:
  ~LinkHandler() = default;
};

class LinkWork {
 public:
  // Does at most `bytes_max` at once. After kDone it is called again only if it is added again.
  virtual Progress work(size_t bytes_max) = 0;

 protected:
  ~LinkWork() = default;
};

class Link final : public LinkStream, private net::FdHandler {
 public:
  enum class Side { kInitiator, kAcceptor };
  struct Options {
    LinkId id;
    Side side;
    TransportKind transport;
    const TransportOpener& open_transport;
    std::unique_ptr<LinkSocket> socket;  // Connecting or connected.
    LinkHandshake handshake;
    TransportDevices devices = {};
  };
  Link(net::Timers& timers, LinkHandler& handler, Options options);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link();

  LinkId id() const { return id_; }
  bool ready() const { return state_ == State::kReady && !failure_; }
  // The initiator's HELLO. An acceptor knows it from on_opened() on.
  const Hello& hello() const { return handshake_.hello(); }
  bool differs() const { return handshake_.differs(); }  // LinkHandshake::differs().
  bool encrypted() const { return socket_->encrypted(); }
  Transport& transport() { return *transport_; }

  // From now on the peer owes us a sign of life. silent_since() is kNever while it owes none.
  void expect_answer(Instant now);
  Instant silent_since() const { return silent_since_; }
  // Reads the bytes that have come. Call it before judging a peer silent: our own process may have
  // slept.
  void poll() { read_some(); }
  // A payload of rows, or a tail, that has begun but is incomplete.
  struct Unfinished {
    uint64_t number = 0;  // Counts payloads.
    uint64_t bytes = 0;   // Size of the whole payload.
    friend bool operator==(const Unfinished&, const Unfinished&) = default;
  };
  std::optional<Unfinished> unfinished_payload() const;

  void send(LinkMessage message) override { send(std::move(message), Fd(), {}); }
  void send(LinkMessage message, Fd shared, std::vector<std::byte> tail);
  // Only work may call these two.
  void begin_payload(uint64_t bytes) override;
  size_t write_payload(std::span<const iovec> pieces) override;
  void wake() override { schedule_turn(); }
  void rows_came(TransferId id) override { handler_.on_rows_came(*this, id); }

  // Work takes turns in the order in which it is added. Not owned.
  void add_work(LinkWork& work);
  // The rest of a payload that it began is sent as zeros, because its rows may have a new owner by
  // now.
  void remove_work(LinkWork& work);
  // Discards the bytes that still come for this sink.
  void drop_sink(PayloadSink& sink);

  // Ends the link; on_lost() follows in a later turn. If the peer writes our memory, the initiator
  // first only gives the link up and waits for the peer to close its end. If the peer's device does
  // the writing, it waits for a process that dies to be gone.
  void fail(Error reason) override;

 private:
  enum class State { kConnecting, kOpening, kReady, kDraining };
  struct Outgoing {
    std::string bytes;
    std::vector<std::byte> tail;
    Fd shared;
    size_t written = 0;
  };

  void on_ready(uint32_t epoll_events) override;
  void schedule_turn();
  void run_turn();
  void end(const Error& reason);
  bool may_be_written() const;
  bool finish_connect();
  bool alive() const { return !failure_; }

  void read_some();
  bool check_greeting();
  bool take_input();
  bool receive(size_t& budget);
  size_t receive_pieces(std::span<iovec> pieces);
  void take_payload(std::span<const std::byte> bytes);
  void payload_came(size_t bytes);
  void on_frame(const FrameHeader& header, std::span<const std::byte> body);
  void dispatch(LinkMessage message);
  void begin_rows(const Rows& rows);
  void begin_commit(const Commit& commit);
  void open(const LinkMessage& message);

  void write_some();
  bool flush(LinkSocket::Then then = LinkSocket::Then::kNothing);
  bool write_zeros();
  ssize_t write(const Outgoing& item, LinkSocket::Then then);
  void write_failed();

  const LinkId id_;
  const Side side_;
  net::Timers& timers_;
  LinkHandler& handler_;
  const std::unique_ptr<LinkSocket> socket_;
  LinkHandshake handshake_;
  std::unique_ptr<Transport> transport_;
  State state_ = State::kConnecting;
  std::optional<Error> failure_;  // Reported in the next turn; nothing moves until then.
  bool greeted_;                  // The peer's encryption is known to match ours.
  bool peer_closed_ = false;
  std::optional<net::TimerId> turn_;
  Instant silent_since_ = kNever;

  // In
  std::vector<std::byte> input_;
  size_t input_begin_ = 0;
  size_t input_end_ = 0;
  std::deque<Fd> shared_in_;
  uint64_t payloads_in_ = 0;
  uint64_t payload_in_left_ = 0;  // Bytes left of `rows_in_` or of the tail of `commit_in_`.
  Rows rows_in_;
  PayloadSink* sink_ = nullptr;
  std::optional<Commit> commit_in_;
  std::vector<std::byte> tail_in_;

  // Out
  std::deque<Outgoing> out_;
  std::deque<Outgoing> out_after_payload_;
  size_t out_bytes_ = 0;  // Bytes of the messages in both queues, without tails.
  uint64_t payload_out_left_ = 0;
  LinkWork* payload_owner_ = nullptr;
  // True while work runs: its messages leave together, such as the last ROWS with its COMMIT.
  bool working_ = false;
  std::deque<LinkWork*> work_;
};

}  // namespace pdjob::kvtransfer
