#include "tests/unit/kvtransfer/relay.h"

#include <algorithm>
#include <array>
#include <utility>

#include <poll.h>
#include <sys/socket.h>

#include "common/check.h"
#include "kvtransfer/link/socket.h"

namespace pdjob::kvtransfer {
namespace {

constexpr int kTickMs = 2;

void send_all(const Fd& socket, const char* bytes, size_t size) {
  while (size > 0) {
    pollfd writable{.fd = socket.get(), .events = POLLOUT, .revents = 0};
    ::poll(&writable, 1, 10'000);
    const ssize_t sent = ::send(socket.get(), bytes, size, MSG_NOSIGNAL);
    if (sent <= 0) {
      return;
    }
    bytes += sent;
    size -= static_cast<size_t>(sent);
  }
}

}  // namespace

Relay::Relay(const EndpointAddress& sender, Faults faults)
    : address_(sender),
      sender_port_(sender.port),
      faults_(faults),
      listener_(*listen_tcp("127.0.0.1", 0)) {
  address_.port = *bound_port(listener_);
  thread_ = std::thread([this] { run(); });
}

Relay::~Relay() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void Relay::heal() {
  const std::lock_guard lock(mutex_);
  faults_ = {};
}

void Relay::cut(size_t index) {
  const std::lock_guard lock(mutex_);
  connections_.at(index).receiver = Fd();
  connections_.at(index).sender = Fd();
}

size_t Relay::connections() {
  const std::lock_guard lock(mutex_);
  return connections_.size();
}

uint64_t Relay::carried(size_t index) {
  const std::lock_guard lock(mutex_);
  return connections_.at(index).to_receiver.size();
}

bool Relay::heard(const std::string& text) {
  const std::lock_guard lock(mutex_);
  return std::any_of(connections_.begin(), connections_.end(), [&](const Connection& each) {
    return each.to_sender.find(text) != std::string::npos ||
           each.to_receiver.find(text) != std::string::npos;
  });
}

void Relay::run() {
  while (true) {
    std::vector<pollfd> waited = {{.fd = listener_.get(), .events = POLLIN, .revents = 0}};
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) {
        return;
      }
      for (const Connection& each : connections_) {
        waited.push_back({.fd = each.receiver.get(), .events = POLLIN, .revents = 0});
        waited.push_back({.fd = each.sender.get(), .events = POLLIN, .revents = 0});
      }
    }
    ::poll(waited.data(), waited.size(), kTickMs);
    const std::lock_guard lock(mutex_);
    accept();
    for (Connection& each : connections_) {
      if (each.receiver.valid() && (!pass_on(each.receiver, each.sender, each.to_sender, false) ||
                                    !pass_on(each.sender, each.receiver, each.to_receiver, true))) {
        each.receiver = Fd();
        each.sender = Fd();
      }
    }
  }
}

void Relay::accept() {
  for (Fd socket = accept_next(listener_); socket.valid(); socket = accept_next(listener_)) {
    connections_.push_back(
        {.receiver = std::move(socket), .sender = *connect_tcp("127.0.0.1", sender_port_)});
    pollfd connected{.fd = connections_.back().sender.get(), .events = POLLOUT, .revents = 0};
    PDJOB_CHECK(::poll(&connected, 1, 10'000) == 1);
  }
}

bool Relay::pass_on(const Fd& from, const Fd& to, std::string& heard, bool faulty) {
  std::array<char, 65536> bytes;
  const ssize_t got = ::recv(from.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (got <= 0) {
    return got < 0 && errno == EAGAIN;
  }
  auto size = static_cast<size_t>(got);
  const uint64_t before = heard.size();
  if (faulty && faults_.flip_at >= before && faults_.flip_at < before + size) {
    bytes[faults_.flip_at - before] ^= 1;
  }
  const bool ends = faulty && faults_.cut_after <= before + size;
  size = ends ? std::min<uint64_t>(size, faults_.cut_after - std::min(before, faults_.cut_after))
              : size;
  heard.append(bytes.data(), size);
  send_all(to, bytes.data(), size);
  return !ends;
}

}  // namespace pdjob::kvtransfer
