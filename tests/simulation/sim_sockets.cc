#include "tests/simulation/sim_sockets.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>

namespace pdjob::simulation {
namespace {

using kvtransfer::LinkSocket;
using kvtransfer::UniqueFd;

}  // namespace

// The bytes from one end to the other.
struct SimSockets::Direction {
  Instant last_arrival{};
  size_t in_flight = 0;
  std::string unread;
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  std::deque<std::pair<uint64_t, UniqueFd>> shared;  // By the number of the byte they came with.
  bool ended = false;                                // The reader sees the end.
  bool writer_waits = false;
};

struct SimSockets::Connection : std::enable_shared_from_this<Connection> {
  struct Side {
    net::Timers* timers = nullptr;  // Of its process.
    net::FdHandler* handler = nullptr;
    bool closed = false;
    bool notified = false;
    int error = 0;
    Direction in;
  };

  Connection(SimSockets& all, Reach kind) : sockets(all), reach(kind) {}

  // Tells a side that it can read or write again.
  void notify(size_t index) {
    Side& side = sides[index];
    if (side.closed || side.handler == nullptr || side.notified) {
      return;
    }
    side.notified = true;
    side.timers->call_at(side.timers->now(), [self = shared_from_this(), index] {
      Side& ready = self->sides[index];
      ready.notified = false;
      if (ready.handler != nullptr) {
        ready.handler->on_ready(0);
      }
    });
  }

  // Runs `work` when what a side sends now has arrived at the other.
  void deliver(size_t from, std::function<void(Side&)> work) {
    if (muted) {
      return;
    }
    const size_t to = 1 - from;
    sockets.loop_.at(sockets.arrival(sides[to].in),
                     [self = shared_from_this(), to, work = std::move(work)] {
                       if (!self->sides[to].closed && !self->muted) {
                         work(self->sides[to]);
                         self->notify(to);
                       }
                     });
  }

  void fail(int error) {
    for (size_t index : {0, 1}) {
      sides[index].error = sides[index].error == 0 ? error : sides[index].error;
      notify(index);
    }
  }

  SimSockets& sockets;
  const Reach reach;
  bool connected = false;
  bool muted = false;
  std::array<Side, 2> sides;  // 0 connected, 1 accepted.
};

class SimSockets::End final : public LinkSocket {
 public:
  End(std::shared_ptr<Connection> connection, size_t index, net::Timers& timers)
      : connection_(std::move(connection)), index_(index) {
    side().timers = &timers;
    if (connection_->sockets.make_filter_) {
      filter_ = connection_->sockets.make_filter_();
    }
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;
  ~End() override {
    finish_writing();
    side().handler = nullptr;
    side().closed = true;
  }

  Status watch(net::FdHandler& handler) override {
    side().handler = &handler;
    if (connection_->connected) {
      connection_->notify(index_);
    }
    return ok();
  }
  void unwatch() override { side().handler = nullptr; }

  Status connected() const override {
    return side().error == 0 ? ok() : Status(Error{ErrorCode::kUnavailable, "cannot connect"});
  }
  bool peer_has_closed() const override {
    return connection_->reach == Reach::kMachine && connection_->sides[1 - index_].closed;
  }
  void finish_writing() override {
    connection_->deliver(index_, [](Connection::Side& peer) { peer.in.ended = true; });
  }
  bool encrypted() const override { return false; }
  std::optional<Greeting> greeting() const override { return Greeting::kPlain; }
  void turn_away() override {}
  std::string channel() const override { return ""; }
  bool flush() override { return true; }
  Error error() const override {
    return {ErrorCode::kUnavailable, std::string("KV link lost: ") + std::strerror(errno)};
  }

  ssize_t read(std::span<iovec> pieces, std::deque<UniqueFd>& shared) override {
    Direction& in = side().in;
    size_t bytes = 0;
    for (const iovec& piece : pieces) {
      const size_t part = std::min(piece.iov_len, in.unread.size() - bytes);
      std::memcpy(piece.iov_base, in.unread.data() + bytes, part);
      bytes += part;
    }
    if (bytes == 0) {
      errno = side().error != 0 ? side().error : EAGAIN;
      return side().error == 0 && in.ended ? 0 : -1;
    }
    in.unread.erase(0, bytes);
    in.bytes_read += bytes;
    for (; !in.shared.empty() && in.shared.front().first < in.bytes_read; in.shared.pop_front()) {
      shared.push_back(std::move(in.shared.front().second));
    }
    if (in.writer_waits) {
      in.writer_waits = false;
      connection_->deliver(index_, [](Connection::Side& /*writer*/) {});
    }
    return static_cast<ssize_t>(bytes);
  }

  ssize_t write(std::span<const iovec> pieces, const UniqueFd& shared, Then /*then*/) override {
    Direction& out = connection_->sides[1 - index_].in;
    if (side().error != 0 || connection_->sides[1 - index_].closed) {
      errno = side().error != 0 ? side().error : EPIPE;
      return -1;
    }
    const size_t used = out.in_flight + out.unread.size();
    const size_t all = connection_->sockets.buffer_bytes_;
    const size_t room = all - std::min(used, all);
    std::string bytes;
    for (const iovec& piece : pieces) {
      bytes.append(static_cast<const char*>(piece.iov_base),
                   std::min(piece.iov_len, room - bytes.size()));
    }
    if (bytes.empty()) {
      out.writer_waits = true;
      errno = EAGAIN;
      return -1;
    }
    if (shared.valid()) {
      out.shared.emplace_back(out.bytes_written,
                              UniqueFd(::fcntl(shared.get(), F_DUPFD_CLOEXEC, 0)));
    }
    const size_t taken = bytes.size();
    send(out, filter_ ? filter_(bytes) : std::move(bytes));
    return static_cast<ssize_t>(taken);
  }

 private:
  Connection::Side& side() const { return connection_->sides[index_]; }

  // In a few pieces, which arrive apart.
  void send(Direction& out, std::string bytes) {
    out.bytes_written += bytes.size();
    out.in_flight += bytes.size();
    while (!bytes.empty()) {
      const size_t part = 1 + connection_->sockets.random_.below(2 * bytes.size());
      connection_->deliver(index_, [piece = bytes.substr(0, part)](Connection::Side& peer) {
        peer.in.in_flight -= piece.size();
        peer.in.unread += piece;
      });
      bytes.erase(0, part);
    }
  }

  const std::shared_ptr<Connection> connection_;
  const size_t index_;
  Filter filter_;
};

SimSockets::SimSockets(SimLoop& loop, uint64_t seed)
    : loop_(loop),
      random_(seed),
      slowest_(std::chrono::microseconds(20 + random_.below(1500))),
      buffer_bytes_(size_t{512} << random_.below(6)) {}

void SimSockets::listen(const std::string& name, SimProcess& process, Accept accept) {
  listeners_[name] = {.process = &process, .accept = std::move(accept)};
}

void SimSockets::forget(const SimProcess& process) {
  std::erase_if(listeners_, [&](const auto& each) { return each.second.process == &process; });
}

SimSockets::Socket SimSockets::connect(const std::string& name, SimProcess& process, Reach reach) {
  const auto made = std::make_shared<Connection>(*this, reach);
  connections_.emplace_back(made);
  auto ours = std::make_unique<End>(made, 0, process);
  loop_.at(arrival(made->sides[1].in), [this, name, made] {
    const auto listener = listeners_.find(name);
    made->connected = true;
    if (listener == listeners_.end()) {
      made->fail(ECONNREFUSED);
      return;
    }
    // The kernel accepts, even if the process is stopped.
    SimProcess& acceptor = *listener->second.process;
    made->deliver(1, [](Connection::Side& /*client*/) {});
    auto theirs = std::make_shared<Socket>(std::make_unique<End>(made, 1, acceptor));
    acceptor.post([accept = listener->second.accept, theirs] { accept(std::move(*theirs)); });
  });
  return ours;
}

bool SimSockets::reset_one() {
  const auto chosen = choose(false);
  if (chosen) {
    chosen->fail(ECONNRESET);
  }
  return chosen != nullptr;
}

bool SimSockets::mute_one(Duration gives_up) {
  const auto chosen = choose(true);
  if (chosen) {
    chosen->muted = true;
    loop_.after(gives_up, [chosen] { chosen->fail(ETIMEDOUT); });
  }
  return chosen != nullptr;
}

std::shared_ptr<SimSockets::Connection> SimSockets::choose(bool of_network) {
  std::vector<std::shared_ptr<Connection>> candidates;
  for (const auto& each : connections_) {
    const auto alive = each.lock();
    if (alive && !alive->muted && (!of_network || alive->reach == Reach::kNetwork)) {
      candidates.push_back(alive);
    }
  }
  std::erase_if(connections_, [](const auto& each) { return each.expired(); });
  return candidates.empty() ? nullptr : candidates[random_.below(candidates.size())];
}

Instant SimSockets::arrival(Direction& direction) {
  const Duration delay(1 + random_.below(static_cast<uint64_t>(slowest_.count())));
  direction.last_arrival = std::max(direction.last_arrival, loop_.now() + delay);
  return direction.last_arrival;
}

}  // namespace pdjob::simulation
