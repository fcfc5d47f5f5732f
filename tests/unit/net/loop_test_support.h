// Shared by the HTTP tests: an event loop that runs until a condition holds, a server with lambdas
// for answers, and a raw client socket. The client sends exactly the bytes it is given.
#pragma once

#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/os/real_clock.h"
#include "net/http/http_server.h"
#include "net/loop/event_loop.h"
#include "net/loop/socket.h"

namespace pdjob::net {

// Returns false if `done` stayed false for `timeout`.
inline bool run_until(EventLoop& loop, const std::function<bool()>& done,
                      Duration timeout = std::chrono::seconds(60)) {
  const Instant deadline = real_now() + timeout;
  bool is_done = false;
  std::function<void()> poll = [&] {
    is_done = done();
    if (is_done || real_now() >= deadline) {
      loop.stop();
    } else {
      loop.call_at(loop.now() + std::chrono::milliseconds(1), [&] { poll(); });
    }
  };
  loop.call_at(loop.now(), [&] { poll(); });
  loop.run();
  return is_done;
}

inline void run_for(EventLoop& loop, Duration time) {
  run_until(loop, [] { return false; }, time);
}

// What a client's bytes go through: TLS, for example.
class Wrapping {
 public:
  virtual ~Wrapping() = default;
  // For the wire.
  virtual std::string wrapped(std::string_view text) = 0;
  // Of the wire. `answers`: for the wire.
  virtual std::string unwrapped(std::string_view bytes, std::string& answers) = 0;
  // The peer has said in its own words that it sends no more.
  virtual bool ended() const = 0;
};

// Connects to a loopback port, and sends and receives raw bytes.
class RawClient {
 public:
  explicit RawClient(EventLoop& loop, uint16_t port, std::unique_ptr<Wrapping> wrapping = nullptr)
      : loop_(loop), wrapping_(std::move(wrapping)), fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0)
        << errno;
    fcntl(fd_.get(), F_SETFL, O_NONBLOCK);
    set_no_delay(fd_.get());
  }

  void send(std::string_view text) {
    const std::string wrapped = wrapping_ ? wrapping_->wrapped(text) : std::string();
    std::string_view bytes = wrapping_ ? wrapped : text;
    EXPECT_TRUE(run_until(loop_, [&] {
      const ssize_t count = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count > 0) {
        bytes.remove_prefix(static_cast<size_t>(count));
      }
      return bytes.empty() || (count < 0 && errno != EAGAIN);
    }));
  }
  // Does not wait. Returns how much of `text` it took.
  size_t offer(std::string_view text) {
    if (!wrapping_) {
      const ssize_t count = ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      return count > 0 ? static_cast<size_t>(count) : 0;
    }
    const bool takes = offered_.empty();
    offered_ += takes ? wrapping_->wrapped(text) : std::string();
    const ssize_t count = ::send(fd_.get(), offered_.data(), offered_.size(), MSG_NOSIGNAL);
    offered_.erase(0, count > 0 ? static_cast<size_t>(count) : 0);
    return takes ? text.size() : 0;
  }
  void send_in_pieces(std::string_view bytes, size_t piece) {
    for (size_t at = 0; at < bytes.size(); at += piece) {
      send(bytes.substr(at, piece));
    }
  }

  // Returns everything received so far.
  const std::string& received() {
    char buffer[65536];
    ssize_t count = 0;
    while ((count = recv(fd_.get(), buffer, sizeof buffer, 0)) > 0) {
      const std::string_view bytes(buffer, static_cast<size_t>(count));
      std::string answers;
      received_.append(wrapping_ ? wrapping_->unwrapped(bytes, answers) : std::string(bytes));
      ::send(fd_.get(), answers.data(), answers.size(), MSG_NOSIGNAL);
    }
    ended_ = ended_ || count == 0 || errno != EAGAIN || (wrapping_ && wrapping_->ended());
    return received_;
  }
  bool wait_for(std::string_view text) {
    return run_until(loop_, [&] { return received().find(text) != std::string::npos; });
  }
  bool wait_for_bytes(size_t count) {
    return run_until(loop_, [&] { return received().size() >= count; });
  }
  bool wait_for_end() {
    return run_until(loop_, [&] { return received(), ended_; });
  }
  bool ended() { return received(), ended_; }
  std::string take() { return std::exchange(received_, {}); }
  void close_sending() { shutdown(fd_.get(), SHUT_WR); }
  void close() { fd_.reset(); }
  int fd() const { return fd_.get(); }

 private:
  EventLoop& loop_;
  std::unique_ptr<Wrapping> wrapping_;
  Fd fd_;
  std::string offered_;  // Wrapped, and not taken by the socket.
  std::string received_;
  bool ended_ = false;
};

// Answers by lambdas, and records the calls.
class LambdaHandler final : public HttpHandler {
 public:
  std::function<std::optional<EarlyReply>(HttpRequest&)> head;
  std::function<void(ExchangeId, HttpRequest&)> answer;
  std::function<void(ExchangeId, std::string_view, BodyPart)> body;
  std::vector<ExchangeId> requests;
  std::vector<ExchangeId> gone;
  std::vector<ExchangeId> writable;

  std::optional<EarlyReply> on_head(HttpRequest& request) override {
    return head ? head(request) : std::nullopt;
  }
  void on_body(ExchangeId id, std::string_view bytes, BodyPart part) override {
    if (body) {
      body(id, bytes, part);
    }
  }
  void on_request(ExchangeId id, HttpRequest& request) override {
    requests.push_back(id);
    if (answer) {
      answer(id, request);
    }
  }
  void on_client_gone(ExchangeId id) override { gone.push_back(id); }
  void on_writable(ExchangeId id) override { writable.push_back(id); }
};

}  // namespace pdjob::net
