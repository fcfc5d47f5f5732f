#include "worker/foreign/port_wait.h"

#include <utility>

namespace pdjob::worker {
namespace {

constexpr Duration kBetweenTries = std::chrono::milliseconds(250);

}  // namespace

PortWait::PortWait(net::Loop& loop, std::string host, uint16_t port, Instant deadline,
                   std::function<void(bool listens)> then)
    : loop_(loop),
      host_(std::move(host)),
      port_(port),
      deadline_(deadline),
      then_(std::move(then)),
      resolver_(loop.make_resolver()) {
  look_up();
}

PortWait::~PortWait() { loop_.cancel(timer_); }

void PortWait::look_up() {
  // A try that nobody answers ends with the next one.
  timer_ = loop_.call_at(loop_.now() + kBetweenTries, [this] { try_later(); });
  resolver_->look_up(host_, port_,
                     [this](const net::Resolver::Addresses& addresses) { connect(addresses); });
}

void PortWait::connect(const net::Resolver::Addresses& addresses) {
  if (!then_ || !addresses || addresses->empty()) {
    return;
  }
  auto stream = loop_.connect(addresses->front());
  if (stream && (*stream)->watch(*this)) {
    stream_ = std::move(*stream);
  }
}

void PortWait::on_ready(uint32_t /*epoll_events*/) {
  if (stream_ != nullptr && stream_->connect_error() == 0) {
    loop_.cancel(timer_);  // A stream may not be closed within its own call.
    timer_ = loop_.call_at(loop_.now(), [this] { end(true); });
  }
}

void PortWait::try_later() {
  stream_.reset();
  if (loop_.now() >= deadline_) {
    end(false);
  } else {
    look_up();
  }
}

void PortWait::end(bool listens) {
  stream_.reset();
  if (const auto then = std::exchange(then_, nullptr)) {
    then(listens);
  }
}

}  // namespace pdjob::worker
