#include "net/loop/tcp_relay.h"

#include <cerrno>
#include <string_view>
#include <utility>

#include <sys/epoll.h>

#include "common/limits.h"
#include "common/os/descriptors.h"

namespace pdjob::net {
namespace {

constexpr Duration kSweepInterval = std::chrono::milliseconds(250);
constexpr int kReceivesInARow = 16;  // On one connection, before others get their turn.

}  // namespace

// The connection of one client, and the one to its server.
class TcpRelay::Pipe {
 public:
  Pipe(TcpRelay& relay, std::unique_ptr<Stream> client, Instant wait_until)
      : wait_until_(wait_until), relay_(relay), client_(*this), server_(*this) {
    client_.stream = std::move(client);
  }
  ~Pipe() {
    relay_.loop_.cancel(again_);
    close();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  bool watch_client() { return client_.stream->watch(client_).has_value(); }

  // False: refused at once.
  bool connect(const SocketAddress& address) {
    auto stream = relay_.loop_.connect(address);
    if (!stream) {
      return false;
    }
    server_.stream = std::move(*stream);
    state_ = State::kConnecting;
    return server_.stream->watch(server_).has_value();
  }

  void disconnect() {
    server_.stream.reset();
    state_ = State::kWaiting;
  }

  void close() {
    disconnect();
    client_.stream.reset();
    state_ = State::kClosed;
  }

  bool waiting() const { return state_ == State::kWaiting; }
  bool closed() const { return state_ == State::kClosed; }
  Instant wait_until() const { return wait_until_; }

  std::list<Pipe*>::iterator place;  // In open_, unless it is closed.

 private:
  enum class State { kWaiting, kConnecting, kOpen, kClosed };

  struct Side final : FdHandler {
    explicit Side(Pipe& its) : pipe(its) {}
    void on_ready(uint32_t events) override { pipe.on_ready(*this, events); }

    Pipe& pipe;
    std::unique_ptr<Stream> stream;
    SendQueue out;           // To this side.
    bool in_ended = false;   // This side sends no more.
    bool out_ended = false;  // This side was told that no more bytes come.
  };

  void on_ready(Side& side, uint32_t events) {
    if (state_ == State::kConnecting && &side == &server_) {
      if (server_.stream->connect_error() != 0) {
        return relay_.refused(*this);
      }
      state_ = (events & EPOLLOUT) != 0 ? State::kOpen : state_;
    }
    if (state_ == State::kOpen) {
      pump();
    } else if (&side == &client_ && (events & (EPOLLHUP | EPOLLERR)) != 0) {
      relay_.drop(*this);
    }
  }

  void pump() {
    const bool alive = client_.out.flush(*client_.stream) && server_.out.flush(*server_.stream) &&
                       move(client_, server_) && move(server_, client_);
    if (!alive || (client_.out_ended && server_.out_ended)) {
      relay_.drop(*this);
    }
  }

  // False: the connection is broken.
  bool move(Side& from, Side& to) {
    for (int received = 0; !from.in_ended && to.out.empty(); ++received) {
      if (received == kReceivesInARow) {
        pump_again();
        return true;
      }
      const ssize_t got = from.stream->read(relay_.buffer_);
      if (got < 0) {
        return got == -EAGAIN;
      }
      from.in_ended = got == 0;
      relay_.open_.splice(relay_.open_.end(), relay_.open_, place);
      const std::string_view bytes(relay_.buffer_.data(), static_cast<size_t>(got));
      if (!to.out.send(*to.stream, {&bytes, 1})) {
        return false;
      }
    }
    if (from.in_ended && to.out.empty() && !std::exchange(to.out_ended, true)) {
      to.stream->finish_writing();
    }
    return true;
  }

  void pump_again() {
    if (again_ == TimerId{}) {
      again_ = relay_.loop_.call_at(relay_.loop_.now(), [this] {
        again_ = {};
        if (state_ == State::kOpen) {
          pump();
        }
      });
    }
  }

  const Instant wait_until_;
  TcpRelay& relay_;
  State state_ = State::kWaiting;
  Side client_;
  Side server_;
  TimerId again_{};
};

TcpRelay::TcpRelay(Loop& loop, const TcpRelayOptions& options, std::unique_ptr<Listener> listener)
    : loop_(loop), options_(options), listener_(std::move(listener)) {}

Result<std::unique_ptr<TcpRelay>> TcpRelay::open(Loop& loop, const TcpRelayOptions& options) {
  TcpRelayOptions filled = options;
  if (filled.connections_max == 0) {
    filled.connections_max = connections_within(descriptor_limit(), limits::kHttpConnectionsMax);
  }
  PDJOB_TRY(auto listener,
            loop.listen({.host = options.host, .port = options.port, .fd = options.listen_fd}));
  std::unique_ptr<TcpRelay> relay(new TcpRelay(loop, filled, std::move(listener)));
  PDJOB_TRY_STATUS(relay->listener_->watch(*relay));
  relay->sweep();
  return relay;
}

TcpRelay::~TcpRelay() { loop_.cancel(sweep_timer_); }

void TcpRelay::pass_to(std::optional<SocketAddress> server) {
  server_ = server;
  sweep();
}

void TcpRelay::on_ready(uint32_t /*epoll_events*/) {
  while (listener_) {
    auto client = listener_->accept();
    if (!client && make_room()) {  // Out of descriptors.
      client = listener_->accept();
    }
    if (!client || *client == nullptr) {
      return;  // If out of descriptors, the sweep retries.
    }
    accept(std::move(*client));
  }
}

void TcpRelay::accept(std::unique_ptr<Stream> client) {
  auto made = std::make_unique<Pipe>(*this, std::move(client), loop_.now() + options_.wait);
  Pipe& pipe = *made;
  if (open_.size() >= options_.connections_max) {
    make_room();
  }
  if (pipe.watch_client()) {
    pipes_.emplace(&pipe, std::move(made));
    pipe.place = open_.insert(open_.end(), &pipe);
    connect(pipe);
  }
}

void TcpRelay::connect(Pipe& pipe) {
  if (server_ && !pipe.connect(*server_)) {
    refused(pipe);
  }
}

// No byte of the client was sent, so a retry is safe.
void TcpRelay::refused(Pipe& pipe) { pipe.disconnect(); }

void TcpRelay::drop(Pipe& pipe) {
  if (!pipe.closed()) {
    pipe.close();
    open_.erase(pipe.place);
    ended_.push_back(&pipe);
  }
}

bool TcpRelay::make_room() {
  const bool has_any = !open_.empty();
  if (has_any) {
    drop(*open_.front());
  }
  return has_any;
}

// Retries or gives up waiting connections, destroys ended ones, and accepts pending ones.
void TcpRelay::sweep() {
  loop_.cancel(sweep_timer_);
  for (const auto& [pipe, owned] : pipes_) {
    if (pipe->waiting() && loop_.now() >= pipe->wait_until()) {
      drop(*pipe);
    } else if (pipe->waiting()) {
      connect(*pipe);
    }
  }
  for (Pipe* pipe : std::exchange(ended_, {})) {
    pipes_.erase(pipe);
  }
  on_ready(EPOLLIN);
  sweep_timer_ = loop_.call_at(loop_.now() + kSweepInterval, [this] { sweep(); });
}

}  // namespace pdjob::net
