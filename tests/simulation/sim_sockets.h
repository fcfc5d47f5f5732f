// SimSockets: byte streams between simulated processes, like TCP and unix sockets. Bytes take time,
// arrive in order and in pieces of any size, and fill a bounded buffer. File descriptors travel
// along. Connections are refused, reset, or go dead without a word.
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
#include "tests/simulation/sim_loop.h"
#include "tests/simulation/sim_process.h"

namespace pdjob::simulation {

class SimSockets final : public SimStreams {
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
  // `cuts` must outlive it; null: everybody reaches everybody. The seed draws the wire.
  SimSockets(SimLoop& loop, uint64_t seed, const SimCuts* cuts = nullptr);
  SimSockets(SimLoop& loop, uint64_t seed, const Wire& wire);

  // Gives each new end a filter of its own.
  void each_end_says(std::function<Filter()> make) { make_filter_ = std::move(make); }

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

  // Both return false if there is no such connection.
  //
  // Breaks a connection: each end gets an error.
  bool reset_one();
  // Nothing passes any more over a connection of Reach::kNetwork. Its ends learn nothing until
  // `gives_up`, when TCP does.
  bool mute_one(Duration gives_up);

 private:
  class End;
  class StreamEnd;
  class StreamListener;
  struct Connection;
  struct Direction;
  void unlisten(const std::string& name, const SimThread& thread);
  struct Listener {
    SimThread* thread;
    Accept accept;
  };
  // The host of "10.0.0.1:80"; that of a listener with another kind of name.
  std::string host_of(const std::string& name) const;

  std::shared_ptr<Connection> choose(bool of_network);
  Instant arrival(Direction& direction, const std::string& from, const std::string& to,
                  size_t bytes);
  void arrive(const std::string& name, const std::shared_ptr<Connection>& made);

  SimLoop& loop_;
  const SimCuts* const cuts_;
  Random random_;
  const Wire wire_;
  std::function<Filter()> make_filter_;
  uint16_t ports_used_ = 1024;
  uint64_t accepted_ = 0;
  std::map<std::string, std::vector<Listener>> listeners_;  // Never empty.
  std::map<std::string, std::vector<std::shared_ptr<Connection>>> doors_;
  std::vector<std::weak_ptr<Connection>> connections_;
};

}  // namespace pdjob::simulation
