// AsyncStore runs the database of asynchronous requests on a helper thread, because a write waits
// for the disk. Commands run in order of arrival; their results are handled on the loop.
// Loop-bound.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/os/tied_posts.h"
#include "common/time.h"
#include "net/loop/loop.h"
#include "router/async/async_database.h"

namespace pdjob::router {

// The newest end time, in Unix time, that is older than `ttl` now: what ended then or before is
// dropped.
int64_t oldest_kept(const net::Loop& loop, Duration ttl);

class AsyncStore {
 public:
  // The work that a command leaves for the loop; may be empty.
  using Then = std::function<void()>;
  using Command = std::function<Then(AsyncDatabase&)>;

  AsyncStore(net::Loop& loop, std::unique_ptr<AsyncDatabase> database);
  // Its end runs all submitted commands first.
  ~AsyncStore() = default;
  AsyncStore(const AsyncStore&) = delete;
  AsyncStore& operator=(const AsyncStore&) = delete;

  // `bytes`: size of the bodies that the command holds. The number of commands is bounded by the
  // unfinished requests and the running callbacks.
  void run(Command command, size_t bytes = 0);
  // True if the waiting commands hold bodies of more than limits::kAsyncStoreBytesMax in all. The
  // caller must then submit no more until some are done.
  bool full() const;

 private:
  TiedPosts<net::Loop> answers_;
  const std::unique_ptr<AsyncDatabase> database_;
  std::atomic<size_t> bytes_waiting_ = 0;
  const std::unique_ptr<net::Helper> disk_;
};

}  // namespace pdjob::router
