// RequestPreparer: does the slow part of a request, before the engine has anything to do, away from
// the loop thread: chat templates, tokenizing, samplers. It has one thread, "prepare".
//
// A preparation consists of steps, and preparations take turns step by step. So a short one waits
// for one step of each other preparation at most, not for all of a long one. It knows no requests.
// Loop-bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <unordered_map>
#include <variant>

#include "common/channel.h"
#include "common/result.h"
#include "net/event_loop.h"

namespace pdjob::worker {

// One thread has it at a time.
class Preparation {
 public:
  virtual ~Preparation() = default;
  // One turn, on the thread "prepare". True: it was the last one. A turn takes a second at most.
  virtual bool step() = 0;
  // On the loop thread, once, after the last step. Not called for what was cancelled.
  virtual void done() = 0;
};

class RequestPreparer {
 public:
  explicit RequestPreparer(net::EventLoop& loop);
  // Joins; what is not done() yet is dropped.
  ~RequestPreparer();
  RequestPreparer(const RequestPreparer&) = delete;
  RequestPreparer& operator=(const RequestPreparer&) = delete;

  // `bytes`: about as much memory as the work holds. kOverloaded: others hold all there is.
  // Requires: no work of this key is under way.
  Status submit(uint64_t key, size_t bytes, std::unique_ptr<Preparation> work);
  // Unknown: nothing happens.
  void cancel(uint64_t key);
  // Nothing is under way.
  bool idle() const { return held_.empty(); }

 private:
  struct Job {
    uint64_t ticket = 0;
    std::unique_ptr<Preparation> work;  // Null: it was dropped.
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

  // On the thread "prepare".
  void run();
  // False: to stop.
  bool take(Command command);
  void give_back(Job job);
  // On the loop thread.
  void take_done();

  net::EventLoop& loop_;
  uint64_t next_ticket_ = 1;
  size_t bytes_held_ = 0;
  std::unordered_map<uint64_t, Held> held_;        // By ticket: until the thread gives it back.
  std::unordered_map<uint64_t, uint64_t> by_key_;  // The ticket of what is not cancelled.
  Channel<Command> inbox_;
  Channel<Job> outbox_;
  std::deque<Job> turns_;  // Only touched by the thread.
  std::thread thread_;
};

}  // namespace pdjob::worker
