// AsyncStore: the database of requests that nobody waits for, on a thread of its own: a write waits
// for the disk. Commands are done in the order in which they come; what they lead to runs on the
// loop. Loop-bound.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "common/channel.h"
#include "common/time.h"
#include "net/event_loop.h"
#include "router/async_database.h"

namespace pdjob::router {

// What ended by then, in Unix time, is kept no longer.
int64_t oldest_kept(Duration ttl);

class AsyncStore {
 public:
  // What a command leaves to be done on the loop; may be empty.
  using Then = std::function<void()>;
  using Command = std::function<Then(AsyncDatabase&)>;

  AsyncStore(net::EventLoop& loop, std::unique_ptr<AsyncDatabase> database);
  // Does what was asked for already.
  ~AsyncStore();
  AsyncStore(const AsyncStore&) = delete;
  AsyncStore& operator=(const AsyncStore&) = delete;

  // `bytes`: of a body that the command holds. Its callers are bounded by the requests that are
  // alive and the calls that are made.
  void run(Command command, size_t bytes = 0);
  // The commands that wait for the disk hold bodies of more than limits::kAsyncStoreBytesMax: the
  // caller takes no more until they are done.
  bool full() const;

 private:
  struct Work {
    Command command;
    size_t bytes = 0;
  };

  void work();

  net::EventLoop& loop_;
  const std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
  const std::unique_ptr<AsyncDatabase> database_;
  Channel<Work> commands_;
  std::atomic<size_t> bytes_waiting_ = 0;
  std::thread thread_;
};

}  // namespace pdjob::router
