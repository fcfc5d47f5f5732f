// Loop: all that code on one thread needs from outside: time, work in later turns, and streams to
// other processes. EventLoop is the real one; a simulation runs the same code on its own
// (tests/simulation). Loop-bound, except post(), which is Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/result.h"
#include "net/loop/resolver.h"
#include "net/loop/socket.h"
#include "net/loop/stream.h"
#include "net/loop/timers.h"

namespace pdjob::net {

// Called at the end of a turn in which it asked for it.
class TurnHandler {
 public:
  virtual void on_turn_end() = 0;

 protected:
  ~TurnHandler() = default;
};

// A thread of its own that runs work which may block: one piece after the other, in order. Its end
// runs all work that was given before. Loop-bound; the work runs on that thread.
class Helper {
 public:
  virtual ~Helper() = default;
  // Takes any number of pieces, so its callers must bound themselves.
  virtual void run(std::function<void()> work) = 0;
};

struct ListenOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;  // 0: any free port.
  PortUse use = PortUse::kAlone;
  int fd = -1;  // A listening socket to take over; the others are ignored then.
};

class Loop : public Timers {
 public:
  // Runs `work` in a later turn. Thread-safe. Work posted after the loop has ended is dropped.
  virtual void post(std::function<void()> work) = 0;

  // Calls `handler` after all other work of this turn, once for each request, and also after the
  // last turn. A request made during these calls counts for the next turn, which starts at once.
  // Not owned; not called after forget_turn_end().
  virtual void at_turn_end(TurnHandler& handler) = 0;
  virtual void forget_turn_end(TurnHandler& handler) = 0;

  // The wall clock, in seconds since 1970, for times that users read.
  virtual int64_t unix_seconds() const = 0;
  // Unpredictable bits, also for secrets.
  virtual uint64_t entropy() = 0;

  // Returns a stream that connects. Its handler is called when that succeeds or fails.
  virtual Result<std::unique_ptr<Stream>> connect(const SocketAddress& address) = 0;
  virtual Result<std::unique_ptr<Listener>> listen(const ListenOptions& options) = 0;
  virtual std::unique_ptr<Resolver> make_resolver() = 0;
  // `name`: of its thread, at most 15 bytes.
  virtual std::unique_ptr<Helper> make_helper(const std::string& name) = 0;

 protected:
  ~Loop() = default;
};

}  // namespace pdjob::net
