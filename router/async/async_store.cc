#include "router/async/async_store.h"

#include <utility>
#include <vector>

#include "common/limits.h"
#include "common/os/real_clock.h"

namespace pdjob::router {

int64_t oldest_kept(Duration ttl) {
  return unix_seconds() - std::chrono::duration_cast<std::chrono::seconds>(ttl).count();
}

AsyncStore::AsyncStore(net::Loop& loop, std::unique_ptr<AsyncDatabase> database)
    : loop_(loop),
      database_(std::move(database)),
      commands_(limits::kChannelMax),
      thread_([this] { work(); }) {}

AsyncStore::~AsyncStore() {
  commands_.close();
  thread_.join();
}

void AsyncStore::run(Command command, size_t bytes) {
  bytes_waiting_ += bytes;
  commands_.push_always({std::move(command), bytes});
}

bool AsyncStore::full() const { return bytes_waiting_ > limits::kAsyncStoreBytesMax; }

void AsyncStore::work() {
  std::vector<Work> commands;
  while (true) {
    commands_.wait_and_drain(commands, kNever);
    if (commands.empty()) {
      return;
    }
    for (Work& work : commands) {
      Then then = work.command(*database_);
      work.command = nullptr;  // Free the body: it no longer counts below.
      bytes_waiting_ -= work.bytes;
      if (then) {
        loop_.post([alive = std::weak_ptr(alive_), then = std::move(then)] {
          if (!alive.expired()) {
            then();
          }
        });
      }
    }
    commands.clear();
  }
}

}  // namespace pdjob::router
