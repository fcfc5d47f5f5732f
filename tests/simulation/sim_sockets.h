// SimSockets: byte streams between simulated processes, like TCP and unix sockets. Bytes take time,
// arrive in order and in pieces of any size, and fill a bounded buffer. File descriptors travel
// along. Connections are refused, reset, or go dead without a word.
//
// A socket stays readable while its process is stopped: the kernel goes on.
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

class SimSockets {
 public:
  using Socket = std::unique_ptr<kvtransfer::LinkSocket>;
  using Accept = std::function<void(Socket)>;
  enum class Reach { kMachine, kNetwork };  // A unix socket, or TCP.

  // Takes what an end writes. Returns what it sends instead.
  using Filter = std::function<std::string(const std::string& bytes)>;

  SimSockets(SimLoop& loop, uint64_t seed);

  // Gives each new end a filter of its own.
  void each_end_says(std::function<Filter()> make) { make_filter_ = std::move(make); }

  // `accept` runs in the process.
  void listen(const std::string& name, SimProcess& process, Accept accept);
  // The process dies: nobody listens there any more.
  void forget(const SimProcess& process);
  Socket connect(const std::string& name, SimProcess& process, Reach reach);

  // Both do nothing, and return false, if there is no such connection.
  //
  // Breaks a connection: each end gets an error.
  bool reset_one();
  // Nothing passes any more over a connection of Reach::kNetwork. Its ends learn nothing until
  // `gives_up`, when TCP does.
  bool mute_one(Duration gives_up);

 private:
  class End;
  struct Connection;
  struct Direction;
  struct Listener {
    SimProcess* process;
    Accept accept;
  };

  std::shared_ptr<Connection> choose(bool of_network);
  Instant arrival(Direction& direction);

  SimLoop& loop_;
  Random random_;
  const Duration slowest_;
  const size_t buffer_bytes_;  // Of one direction: in flight and unread.
  std::function<Filter()> make_filter_;
  std::map<std::string, Listener> listeners_;
  std::vector<std::weak_ptr<Connection>> connections_;
};

}  // namespace pdjob::simulation
