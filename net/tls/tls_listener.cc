#include "net/tls/tls_listener.h"

#include <cerrno>
#include <utility>

#include <sys/epoll.h>

namespace pdjob::net {
namespace {

constexpr Duration kSweepInterval = std::chrono::milliseconds(500);
// How long a client that was refused may take to close.
constexpr Duration kRefusedMax = std::chrono::seconds(2);

}  // namespace

TlsListener::TlsListener(Loop& loop, std::unique_ptr<Listener> plain, ServerTls& tls,
                         const Options& options)
    : loop_(loop), plain_(std::move(plain)), tls_(tls), options_(options) {}

TlsListener::~TlsListener() {
  loop_.forget_turn_end(*this);
  loop_.cancel(sweep_);
}

Status TlsListener::watch(FdHandler& handler) {
  handler_ = &handler;
  return plain_->watch(*this);
}

void TlsListener::on_ready(uint32_t epoll_events) { handler_->on_ready(epoll_events); }

Result<std::unique_ptr<Stream>> TlsListener::accept() {
  const Status taken = take_arrivals();
  if (!ready_.empty()) {
    std::unique_ptr<Stream> stream = std::move(ready_.front());
    ready_.pop_front();
    return stream;
  }
  return taken ? Result<std::unique_ptr<Stream>>(std::unique_ptr<Stream>()) : taken.error();
}

Status TlsListener::take_arrivals() {
  while (true) {
    PDJOB_TRY(std::unique_ptr<Stream> stream, plain_->accept());
    if (stream == nullptr) {
      return ok();
    }
    begin(std::move(stream));
  }
}

void TlsListener::begin(std::unique_ptr<Stream> stream) {
  if (pending_.size() >= options_.handshakes_max) {
    pending_.pop_front();
    ++tls_.counts().evicted;
  }
  Pending& pending = pending_.emplace_back();
  pending.owner = this;
  pending.stream = std::make_unique<TlsServerStream>(loop_, tls_.context(), std::move(stream));
  pending.deadline = loop_.now() + options_.handshake_timeout;
  pending.self = std::prev(pending_.end());
  if (!pending.stream->watch(pending)) {
    pending_.pop_back();
  } else if (sweep_ == TimerId{}) {
    sweep_ = loop_.call_at(loop_.now() + kSweepInterval, [this] { sweep(); });
  }
}

void TlsListener::advance(Pending& pending) {
  if (pending.phase == Phase::kRefused && !pending.stream->drop_rest()) {
    settle(pending, Phase::kOver);
  }
  if (pending.phase != Phase::kShaking) {
    return;
  }
  const int outcome = pending.stream->shake_hands();
  if (outcome == 1) {
    ++tls_.counts().done;
    settle(pending, Phase::kDone);
  } else if (outcome != -EAGAIN) {
    fail(pending);
  }
}

void TlsListener::fail(Pending& pending) {
  if (!pending.stream->speaks_http()) {
    ++tls_.counts().failed;
    return settle(pending, Phase::kOver);
  }
  ++tls_.counts().plain;
  pending.stream->refuse_http();
  pending.phase = Phase::kRefused;
  pending.deadline = loop_.now() + kRefusedMax;
}

// It may be in the middle of its own call, so it stays until the end of the turn.
void TlsListener::settle(Pending& pending, Phase phase) {
  pending.phase = phase;
  if (settled_.empty()) {
    loop_.at_turn_end(*this);
  }
  settled_.splice(settled_.end(), pending_, pending.self);
}

void TlsListener::on_turn_end() {
  std::list<Pending> settled = std::move(settled_);
  settled_.clear();
  for (Pending& each : settled) {
    if (each.phase == Phase::kDone) {
      ready_.push_back(std::move(each.stream));
    }
  }
  if (!ready_.empty()) {
    handler_->on_ready(EPOLLIN);
  }
}

void TlsListener::sweep() {
  sweep_ = {};
  for (auto at = pending_.begin(); at != pending_.end();) {
    if (loop_.now() < at->deadline) {
      ++at;
      continue;
    }
    tls_.counts().timed_out += at->phase == Phase::kShaking ? 1 : 0;
    at = pending_.erase(at);
  }
  if (!pending_.empty()) {
    sweep_ = loop_.call_at(loop_.now() + kSweepInterval, [this] { sweep(); });
  }
}

}  // namespace pdjob::net
