#include "launcher/simulator/sim_sockets.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>

namespace pdjob::simulation {
namespace {

using kvtransfer::LinkSocket;

}  // namespace

// The bytes from one end to the other.
struct SimSockets::Direction {
  Instant last_arrival{};
  size_t in_flight = 0;
  std::string unread;
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  std::deque<std::pair<uint64_t, Fd>> shared;  // By the number of the byte they came with.
  bool ended = false;                          // The reader sees the end.
  bool writer_waits = false;
};

struct SimSockets::Connection : std::enable_shared_from_this<Connection> {
  struct Side {
    SimThread* thread = nullptr;
    std::string host;
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
    side.thread->call_at(side.thread->now(), [self = shared_from_this(), index] {
      Side& ready = self->sides[index];
      ready.notified = false;
      if (ready.handler != nullptr) {
        ready.handler->on_ready(0);
      }
    });
  }

  // Runs `work` when what a side sends now, of so many bytes, has arrived at the other.
  void deliver(size_t from, std::function<void(Side&)> work, size_t bytes = 0) {
    if (muted) {
      return;
    }
    const size_t to = 1 - from;
    sockets.loop_.at(sockets.arrival(sides[to].in, sides[from].host, sides[to].host, bytes),
                     [self = shared_from_this(), to, work = std::move(work)] {
                       if (!self->sides[to].closed && !self->muted) {
                         work(self->sides[to]);
                         self->notify(to);
                       }
                     });
  }

  // The peer reads the end of the stream.
  void close(size_t index) {
    sides[index].handler = nullptr;
    if (!std::exchange(sides[index].closed, true)) {
      deliver(index, [](Side& peer) { peer.in.ended = true; });
    }
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
  End(std::shared_ptr<Connection> connection, size_t index, SimThread& thread)
      : connection_(std::move(connection)), index_(index) {
    side().thread = &thread;
    side().host = thread.host();
    filter_ = connection_->sockets.make_filter();
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;
  ~End() override { connection_->close(index_); }

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
  // No simulated device writes.
  Status follow_peer() override { return ok(); }
  bool peer_is_dying() const override { return false; }
  void finish_writing() override {
    connection_->deliver(index_, [](Connection::Side& peer) { peer.in.ended = true; });
  }
  int broken() const { return side().error; }
  bool ended() const { return side().in.ended; }
  void reset() { connection_->fail(ECONNRESET); }
  bool encrypted() const override { return false; }
  std::optional<Greeting> greeting() const override { return Greeting::kPlain; }
  void turn_away() override {}
  std::string channel() const override { return ""; }
  bool flush() override { return true; }
  Error error() const override {
    return {ErrorCode::kUnavailable, std::string("KV link lost: ") + std::strerror(errno)};
  }

  ssize_t read(std::span<iovec> pieces, std::deque<Fd>& shared) override {
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

  ssize_t write(std::span<const iovec> pieces, const Fd& shared, Then /*then*/) override {
    Direction& out = connection_->sides[1 - index_].in;
    if (side().error != 0 || connection_->sides[1 - index_].closed) {
      errno = side().error != 0 ? side().error : EPIPE;
      return -1;
    }
    const size_t used = out.in_flight + out.unread.size();
    const size_t all = connection_->sockets.wire_.buffer_bytes;
    const size_t room = all - std::min(used, all);
    std::string bytes;
    size_t asked = 0;
    for (const iovec& piece : pieces) {
      asked += piece.iov_len;
      bytes.append(static_cast<const char*>(piece.iov_base),
                   std::min(piece.iov_len, room - bytes.size()));
    }
    out.writer_waits = out.writer_waits || bytes.size() < asked;
    if (bytes.empty()) {
      errno = EAGAIN;
      return -1;
    }
    if (shared.valid()) {
      out.shared.emplace_back(out.bytes_written, Fd(::fcntl(shared.get(), F_DUPFD_CLOEXEC, 0)));
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
      std::string piece = bytes.substr(0, part);
      const size_t size = piece.size();
      connection_->deliver(
          index_,
          [piece = std::move(piece)](Connection::Side& peer) {
            peer.in.in_flight -= piece.size();
            peer.in.unread += piece;
          },
          size);
      bytes.erase(0, part);
    }
  }

  const std::shared_ptr<Connection> connection_;
  const size_t index_;
  Filter filter_;
};

// An End as a net::Stream.
class SimSockets::StreamEnd final : public net::Stream, net::FdHandler {
 public:
  explicit StreamEnd(Socket socket)
      : socket_(std::move(socket)), end_(static_cast<End&>(*socket_)) {}
  StreamEnd(const StreamEnd&) = delete;
  StreamEnd& operator=(const StreamEnd&) = delete;
  ~StreamEnd() override {
    if (reset_) {
      end_.unwatch();
      end_.reset();
    }
  }

  Status watch(net::FdHandler& handler) override {
    handler_ = &handler;
    return end_.watch(*this);
  }
  int connect_error() const override { return end_.broken(); }
  ssize_t read(std::span<char> to) override {
    iovec piece{.iov_base = to.data(), .iov_len = to.size()};
    std::deque<Fd> none;
    const ssize_t count = end_.read({&piece, 1}, none);
    return count < 0 ? -errno : count;
  }
  ssize_t write(std::span<const std::string_view> pieces) override {
    std::vector<iovec> parts;
    for (const std::string_view piece : pieces) {
      if (!piece.empty()) {
        parts.push_back({.iov_base = const_cast<char*>(piece.data()), .iov_len = piece.size()});
      }
    }
    if (parts.empty()) {
      return 0;
    }
    const ssize_t count = end_.write(parts, Fd(), LinkSocket::Then::kNothing);
    return count < 0 ? -errno : count;
  }
  void finish_writing() override { end_.finish_writing(); }
  void reset_when_closed() override { reset_ = true; }

 private:
  void on_ready(uint32_t /*epoll_events*/) override {
    const uint32_t ended = end_.ended() ? uint32_t{EPOLLRDHUP} : 0;
    const uint32_t broken = end_.broken() != 0 ? uint32_t{EPOLLERR | EPOLLHUP | EPOLLRDHUP} : 0;
    handler_->on_ready(EPOLLIN | EPOLLOUT | ended | broken);
  }

  const Socket socket_;
  End& end_;
  net::FdHandler* handler_ = nullptr;
  bool reset_ = false;
};

class SimSockets::StreamListener final : public net::Listener {
 public:
  StreamListener(SimSockets& sockets, std::string name, uint16_t port, SimThread& thread)
      : sockets_(sockets), name_(std::move(name)), port_(port), thread_(thread) {
    sockets_.listen(name_, thread, [queue = std::weak_ptr(queue_)](Socket socket) {
      if (const auto here = queue.lock()) {
        here->arrived.push_back(std::make_unique<StreamEnd>(std::move(socket)));
        here->tell();
      }
    });
  }
  StreamListener(const StreamListener&) = delete;
  StreamListener& operator=(const StreamListener&) = delete;
  ~StreamListener() override { sockets_.unlisten(name_, thread_); }

  // Tells of earlier arrivals, too, as epoll does.
  Status watch(net::FdHandler& handler) override {
    queue_->handler = &handler;
    if (!queue_->arrived.empty()) {
      thread_.post([queue = std::weak_ptr(queue_)] {
        if (const auto here = queue.lock()) {
          here->tell();
        }
      });
    }
    return ok();
  }
  Result<std::unique_ptr<net::Stream>> accept() override {
    if (queue_->arrived.empty()) {
      return std::unique_ptr<net::Stream>();
    }
    auto next = std::move(queue_->arrived.front());
    queue_->arrived.pop_front();
    return next;
  }
  uint16_t port() const override { return port_; }

 private:
  struct Queue {  // Connections may still arrive when the listener is gone.
    std::deque<std::unique_ptr<net::Stream>> arrived;
    net::FdHandler* handler = nullptr;

    void tell() const {
      if (handler != nullptr && !arrived.empty()) {
        handler->on_ready(EPOLLIN);
      }
    }
  };

  SimSockets& sockets_;
  const std::string name_;
  const uint16_t port_;
  SimThread& thread_;
  const std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
};

void SimSockets::listen(const std::string& name, SimThread& thread, Accept accept) {
  listeners_[name].push_back({.thread = &thread, .accept = std::move(accept)});
  if (const auto door = doors_.find(name); door != doors_.end()) {
    for (const auto& made : std::exchange(door->second, {})) {
      arrive(name, made);
    }
  }
}

void SimSockets::unlisten(const std::string& name, const SimThread& thread) {
  if (const auto found = listeners_.find(name); found != listeners_.end()) {
    std::erase_if(found->second, [&](const Listener& each) { return each.thread == &thread; });
    if (found->second.empty()) {
      listeners_.erase(found);
    }
  }
}

void SimSockets::close_door(const std::string& name) {
  for (const auto& made : doors_[name]) {
    made->fail(ECONNREFUSED);
  }
  doors_.erase(name);
}

std::string SimSockets::host_of(const std::string& name) const {
  const auto found = listeners_.find(name);
  return found == listeners_.end() ? name.substr(0, name.find(':'))
                                   : found->second.front().thread->host();
}

void SimSockets::forget(const SimThread& thread) {
  for (auto each = listeners_.begin(); each != listeners_.end();) {
    unlisten((each++)->first, thread);
  }
  for (const auto& each : connections_) {
    const auto connection = each.lock();
    for (size_t index : {0, 1}) {
      if (connection && connection->sides[index].thread == &thread) {
        connection->close(index);
      }
    }
  }
}

SimSockets::Socket SimSockets::connect(const std::string& name, SimThread& thread, Reach reach) {
  const auto made = std::make_shared<Connection>(*this, reach);
  add(made);
  auto ours = std::make_unique<End>(made, 0, thread);
  loop_.at(arrival(made->sides[1].in, thread.host(), host_of(name), 0),
           [this, name, made] { arrive(name, made); });
  return ours;
}

void SimSockets::arrive(const std::string& name, const std::shared_ptr<Connection>& made) {
  const auto listeners = listeners_.find(name);
  if (listeners == listeners_.end()) {
    if (const auto door = doors_.find(name); door != doors_.end()) {
      door->second.push_back(made);
    } else {
      made->connected = true;
      made->fail(ECONNREFUSED);
    }
    return;
  }
  // The kernel accepts, even if the process is stopped.
  const Listener& listener = listeners->second[++accepted_ % listeners->second.size()];
  made->connected = true;
  auto theirs = std::make_shared<Socket>(std::make_unique<End>(made, 1, *listener.thread));
  made->deliver(1, [](Connection::Side& /*client*/) {});
  listener.thread->post([accept = listener.accept, theirs] { accept(std::move(*theirs)); });
}

std::unique_ptr<net::Stream> SimSockets::connect_stream(const net::SocketAddress& address,
                                                        SimThread& thread) {
  const auto& where = reinterpret_cast<const sockaddr_in&>(address.storage);
  const std::string name =
      std::string(::inet_ntoa(where.sin_addr)) + ":" + std::to_string(ntohs(where.sin_port));
  return std::make_unique<StreamEnd>(connect(name, thread, Reach::kNetwork));
}

Result<std::unique_ptr<net::Listener>> SimSockets::listen_stream(const net::ListenOptions& options,
                                                                 SimThread& thread) {
  const uint16_t port = options.port == 0 ? ++ports_used_ : options.port;
  const std::string name = options.host + ":" + std::to_string(port);
  if (options.use == net::PortUse::kAlone && listeners_.contains(name)) {
    return Error{ErrorCode::kUnavailable, "cannot listen on " + name + ": in use"};
  }
  return std::unique_ptr<net::Listener>(
      std::make_unique<StreamListener>(*this, name, port, thread));
}

std::vector<std::shared_ptr<SimSockets::Connection>> SimSockets::alive(bool of_network) {
  std::vector<std::shared_ptr<Connection>> found;
  for (const auto& each : connections_) {
    const auto connection = each.lock();
    if (connection && !connection->muted && (!of_network || connection->reach == Reach::kNetwork)) {
      found.push_back(connection);
    }
  }
  return found;
}

void SimSockets::fail(Connection& connection, int error) { connection.fail(error); }

void SimSockets::mute(Connection& connection) { connection.muted = true; }

// Now and then, those that ended are removed.
void SimSockets::add(const std::shared_ptr<Connection>& made) {
  connections_.emplace_back(made);
  if (connections_.size() >= connections_looked_at_) {
    std::erase_if(connections_, [](const auto& each) { return each.expired(); });
    connections_looked_at_ = std::max<size_t>(1024, 2 * connections_.size());
  }
}

Instant SimSockets::arrival(Direction& direction, const std::string& from, const std::string& to,
                            size_t bytes) {
  const Duration delay(1 + random_.below(static_cast<uint64_t>(wire_.latency_max.count())));
  direction.last_arrival = std::max(direction.last_arrival, leaves(from, to) + delay) +
                           static_cast<int64_t>(bytes) * wire_.per_byte;
  return direction.last_arrival;
}

}  // namespace pdjob::simulation
