// SimSockets: byte streams between simulated processes, like TCP and unix sockets. Bytes take time,
// arrive in order and in pieces of any size, and fill a bounded buffer. File descriptors travel
// along.
//
// A socket stays readable while its process is stopped: the kernel goes on.
//
// KV links use them as LinkSockets, everything else as net::Streams.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/random.h"
#include "kvtransfer/link/link_socket.h"
#include "launcher/simulator/sim_loop.h"
#include "launcher/simulator/sim_process.h"

namespace pdjob::simulation {

class SimSockets : public SimStreams {
 public:
  using Socket = std::unique_ptr<kvtransfer::LinkSocket>;
  using Accept = std::function<void(Socket)>;
  enum class Reach { kMachine, kNetwork };  // A unix socket, or TCP.

  // Takes what an end writes. Returns what it sends instead.
  using Filter = std::function<std::string(const std::string& bytes)>;

  // The same of all connections.
  struct Wire {
    Duration latency_max{};
    Duration per_byte{};      // In one direction of one connection.
    size_t buffer_bytes = 0;  // Of one direction: in flight and unread.
  };
  SimSockets(SimLoop& loop, const Wire& wire, const Random& random)
      : loop_(loop), random_(random), wire_(wire) {}
  SimSockets(const SimSockets&) = delete;
  SimSockets& operator=(const SimSockets&) = delete;
  virtual ~SimSockets() = default;

  // `accept` runs in the thread.
  void listen(const std::string& name, SimThread& thread, Accept accept);
  // The thread's process dies: the kernel closes its sockets, one after the other.
  void forget(const SimThread& thread);
  Socket connect(const std::string& name, SimThread& thread, Reach reach);

  // A door: connections to this name wait while nobody listens.
  void hold(const std::string& name) { doors_[name]; }
  // Those that wait are refused.
  void close_door(const std::string& name);

  // Addresses are numeric. Port 0 gets a port that was never used. Listeners that share a port get
  // connections in turn.
  std::unique_ptr<net::Stream> connect_stream(const net::SocketAddress& address,
                                              SimThread& thread) override;
  Result<std::unique_ptr<net::Listener>> listen_stream(const net::ListenOptions& options,
                                                       SimThread& thread) override;

  // What tests make worse.
 protected:
  struct Connection;

  // Each new end gets a filter of its own; null: it sends what was written.
  virtual Filter make_filter() { return nullptr; }
  // When bytes that are written now leave.
  virtual Instant leaves(const std::string& /*from*/, const std::string& /*to*/) const {
    return loop_.now();
  }
  // Those that are not muted, in the order in which they were made.
  std::vector<std::shared_ptr<Connection>> alive(bool of_network);
  // Each end gets an error.
  static void fail(Connection& connection, int error);
  // Nothing passes over it any more.
  static void mute(Connection& connection);

  SimLoop& loop() const { return loop_; }
  Random& random() { return random_; }

 private:
  class End;
  class StreamEnd;
  class StreamListener;
  struct Direction;
  void unlisten(const std::string& name, const SimThread& thread);
  struct Listener {
    SimThread* thread;
    Accept accept;
  };
  // The host of "10.0.0.1:80"; that of a listener with another kind of name.
  std::string host_of(const std::string& name) const;

  void add(const std::shared_ptr<Connection>& made);
  Instant arrival(Direction& direction, const std::string& from, const std::string& to,
                  size_t bytes);
  void arrive(const std::string& name, const std::shared_ptr<Connection>& made);

  SimLoop& loop_;
  Random random_;
  const Wire wire_;
  uint16_t ports_used_ = 1024;
  uint64_t accepted_ = 0;
  std::map<std::string, std::vector<Listener>> listeners_;  // Never empty.
  std::map<std::string, std::vector<std::shared_ptr<Connection>>> doors_;
  std::vector<std::weak_ptr<Connection>> connections_;
  size_t connections_looked_at_ = 1024;  // So many or more are searched for those that ended.
};

}  // namespace pdjob::simulation
