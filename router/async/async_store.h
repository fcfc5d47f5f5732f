// AsyncStore runs the database of asynchronous requests on its own thread, because a write waits
// for the disk. Commands run in order of arrival; their results are handled on the loop.
// Loop-bound.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "common/os/channel.h"
#include "common/time.h"
#include "net/loop/loop.h"
#include "router/async/async_database.h"

namespace pdjob::router {

// The newest end time, in Unix time, that is older than `ttl`: what ended then or before is
// dropped.
int64_t oldest_kept(Duration ttl);

class AsyncStore {
 public:
  // The work that a command leaves for the loop; may be empty.
  using Then = std::function<void()>;
  using Command = std::function<Then(AsyncDatabase&)>;

  AsyncStore(net::Loop& loop, std::unique_ptr<AsyncDatabase> database);
  // Runs all submitted commands first.
  ~AsyncStore();
  AsyncStore(const AsyncStore&) = delete;
  AsyncStore& operator=(const AsyncStore&) = delete;

  // `bytes`: size of the bodies that the command holds. The number of commands is bounded by the
  // unfinished requests and the running callbacks.
  void run(Command command, size_t bytes = 0);
  // True if the waiting commands hold bodies of more than limits::kAsyncStoreBytesMax in all. The
  // caller must then submit no more until some are done.
  bool full() const;

 private:
  struct Work {
    Command command;
    size_t bytes = 0;
  };

  void work();

  net::Loop& loop_;
  const std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
  const std::unique_ptr<AsyncDatabase> database_;
  Channel<Work> commands_;
  std::atomic<size_t> bytes_waiting_ = 0;
  std::thread thread_;
};

}  // namespace pdjob::router
