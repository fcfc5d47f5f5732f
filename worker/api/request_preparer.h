// RequestPreparer: does the slow work before a request reaches the engine, away from the loop
// thread: chat templates, tokenizing, samplers. It has one helper thread, "prepare", which the
// first work starts.
//
// A preparation consists of steps, and preparations take turns step by step. So a short one waits
// for at most one step of each other preparation. The preparer knows nothing about requests.
// Loop-bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <variant>

#include "common/os/channel.h"
#include "common/os/turn_watch.h"
#include "common/result.h"
#include "net/loop/loop.h"

namespace pdjob::worker {

// Used by one thread at a time.
class Preparation {
 public:
  virtual ~Preparation() = default;
  // Runs one step on the thread "prepare". Returns true after the last one. A step takes at most
  // one second.
  virtual bool step() = 0;
  // Called once on the loop thread, after the last step, unless cancelled.
  virtual void done() = 0;
};

class RequestPreparer {
 public:
  explicit RequestPreparer(net::Loop& loop);
  // Waits for the thread and drops unfinished preparations.
  ~RequestPreparer();
  RequestPreparer(const RequestPreparer&) = delete;
  RequestPreparer& operator=(const RequestPreparer&) = delete;

  // `bytes` is about how much memory the work holds. Fails with kOverloaded if other work uses the
  // whole memory or queue limit. Requires: no work with this key is under way.
  Status submit(uint64_t key, size_t bytes, std::unique_ptr<Preparation> work);
  // Does nothing if the key is unknown.
  void cancel(uint64_t key);
  // True if no work is under way.
  bool idle() const { return held_.empty(); }
  // How long the current step has taken; zero if there is none.
  Duration standstill() const;

 private:
  struct Job {
    uint64_t ticket = 0;
    std::unique_ptr<Preparation> work;  // Null if dropped.
  };
  struct Cancel {
    uint64_t ticket = 0;
  };
  struct Stop {};
  using Command = std::variant<Job, Cancel, Stop>;
  struct Held {
    uint64_t key = 0;
    size_t bytes = 0;
  };

  // On the loop thread.
  void start_run();
  void run_ended();
  // On the thread "prepare": runs until no work is left.
  void run();
  // Returns false on Stop.
  bool take(Command command);
  void give_back(Job job);
  // On the loop thread.
  void take_done();

  net::Loop& loop_;
  uint64_t next_ticket_ = 1;
  size_t bytes_held_ = 0;
  std::unordered_map<uint64_t, Held> held_;        // By ticket, until the thread gives it back.
  std::unordered_map<uint64_t, uint64_t> by_key_;  // Tickets of uncancelled work.
  Channel<Command> inbox_;
  Channel<Job> outbox_;
  bool runs_ = false;      // run() is under way, or will be.
  std::deque<Job> turns_;  // Used only by the thread.
  bool stopped_ = false;   // The same.
  TurnWatch step_;
  std::unique_ptr<net::Helper> helper_;
};

}  // namespace pdjob::worker
