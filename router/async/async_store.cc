#include "router/async/async_store.h"

#include <utility>

#include "common/limits.h"

namespace pdjob::router {

int64_t oldest_kept(const net::Loop& loop, Duration ttl) {
  return loop.unix_seconds() - std::chrono::duration_cast<std::chrono::seconds>(ttl).count();
}

AsyncStore::AsyncStore(net::Loop& loop, std::unique_ptr<AsyncDatabase> database)
    : answers_(loop), database_(std::move(database)), disk_(loop.make_helper("async-store")) {}

void AsyncStore::run(Command command, size_t bytes) {
  bytes_waiting_ += bytes;
  disk_->run([this, command = std::move(command), bytes]() mutable {
    Then then = command(*database_);
    command = nullptr;  // Frees the body: it no longer counts below.
    bytes_waiting_ -= bytes;
    if (then) {
      answers_.post(std::move(then));
    }
  });
}

bool AsyncStore::full() const { return bytes_waiting_ > limits::kAsyncStoreBytesMax; }

}  // namespace pdjob::router
