// LocalAgent: the agent of the launcher's own machine, for a job whose processes may outlive the
// launcher. The launcher starts it detached: it holds the job's doors and processes there, and a
// new launcher finds it. It ends with its session: when the launcher says so, or when no launcher
// came back in time. Its end ends its processes. Loop-bound.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"
#include "launcher/job/process.h"
#include "net/loop/event_loop.h"
#include "net/loop/socket.h"

namespace pdjob::launcher {

// Where a launcher listens, with net::PortUse::kShared.
struct HeldPort {
  std::string host;
  uint16_t port = 0;
};
// Holds it as long as the descriptor is open, and does not listen there: only sockets of this user
// that share the port can. Port 0: any free one.
Result<net::Fd> hold_port(const HeldPort& wanted);

class LocalAgent {
 public:
  struct Options {
    std::string folder;    // The job's: it holds the agent's lock and key.
    std::string endpoint;  // "127.0.0.1:7700", where the launcher listens for it.
    std::string key;       // Secret.
    std::string host;      // Its processes listen here.
    std::string log_dir;   // Of its processes.
    uint32_t cores = 0;    // That its processes may use; 0: all.
    // Of the launcher. The agent holds them, so that no other user can take them while the job has
    // no launcher.
    std::vector<HeldPort> ports;
  };
  // Starts the agent unless it runs. Looks several times a second, and starts another one if it has
  // ended. Kills one that stands still (SIGSTOP) for about 4 s: its processes would have nobody who
  // heals them. `log`: its own.
  static Result<std::unique_ptr<LocalAgent>> open(net::EventLoop& loop, Options options,
                                                  net::Fd log);
  LocalAgent(const LocalAgent&) = delete;
  LocalAgent& operator=(const LocalAgent&) = delete;
  ~LocalAgent();  // Ends it, unless it was left.
  // It goes on without this launcher.
  void leave() { left_ = true; }

  static bool runs(const std::string& folder);
  // Waits until it ends by itself, and then ends it. The processes end with it. Removes its files.
  static void end(const std::string& folder, Duration by_itself);

 private:
  LocalAgent(net::EventLoop& loop, Options options, net::Fd log)
      : loop_(loop), options_(std::move(options)), log_(std::move(log)) {}
  void look();
  Status start();
  bool stands_still();
  // Also an agent whose locked file was removed.
  bool lives();

  net::EventLoop& loop_;
  const Options options_;
  const net::Fd log_;
  net::TimerId timer_;
  net::Fd locked_;        // The file that the agent holds locked.
  VitalSigns signs_;      // At the last look.
  int looks_asleep_ = 0;  // In a row, without a turn on a core.
  bool left_ = false;
};

}  // namespace pdjob::launcher
