#include "router/async_store.h"

#include <utility>
#include <vector>

#include "common/limits.h"
#include "common/real_clock.h"

namespace pdjob::router {

int64_t oldest_kept(Duration ttl) {
  return unix_seconds() - std::chrono::duration_cast<std::chrono::seconds>(ttl).count();
}

AsyncStore::AsyncStore(net::EventLoop& loop, std::unique_ptr<AsyncDatabase> database)
    : loop_(loop),
      database_(std::move(database)),
      commands_(limits::kChannelMax),
      thread_([this] { work(); }) {}

AsyncStore::~AsyncStore() {
  commands_.close();
  thread_.join();
}

void AsyncStore::work() {
  std::vector<Command> commands;
  while (true) {
    commands_.wait_and_drain(commands, kNever);
    if (commands.empty()) {
      return;
    }
    for (const Command& command : commands) {
      if (Then then = command(*database_)) {
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
