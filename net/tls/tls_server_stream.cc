#include "net/tls/tls_server_stream.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <sys/epoll.h>

#include "common/limits.h"

namespace pdjob::net {
namespace {

// Every TLS connection begins with this type of record.
constexpr char kHandshakeRecord = 0x16;

// More than the records of one receive of an HTTP server.
constexpr size_t kBytesPerTurn = 160 * limits::kKiB;

constexpr std::string_view kSpeakTls =
    "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 116\r\n"
    "Connection: close\r\n\r\n"
    R"({"error":{"message":"this port speaks HTTPS: ask https://","type":"invalid_request_error","param":null,"code":null}})";

}  // namespace

TlsServerStream::TlsServerStream(Loop& loop, const TlsContext& context,
                                 std::unique_ptr<Stream> plain)
    : loop_(loop), plain_(std::move(plain)), session_(context, *this, TlsSide::kAcceptor) {}

TlsServerStream::~TlsServerStream() { loop_.cancel(wake_); }

Status TlsServerStream::watch(FdHandler& handler) {
  if (std::exchange(handler_, &handler) == nullptr) {
    return plain_->watch(*this);
  }
  // The edge of what has come already is over.
  wake(EPOLLIN | EPOLLOUT | end_event_);
  return ok();
}

void TlsServerStream::wake(uint32_t epoll_events) {
  if (std::exchange(wake_events_, wake_events_ | epoll_events) != 0) {
    return;
  }
  wake_ = loop_.call_at(loop_.now(), [this] {
    wake_ = {};
    turn_left_ = kBytesPerTurn;
    on_ready(std::exchange(wake_events_, 0));
  });
}

void TlsServerStream::on_ready(uint32_t epoll_events) {
  uint32_t told = epoll_events;
  if ((epoll_events & EPOLLOUT) != 0) {
    told |= EPOLLIN;  // Reading may have had to write.
  }
  end_event_ |= epoll_events & EPOLLRDHUP;
  if (handler_ != nullptr) {
    handler_->on_ready(told);  // It may destroy this stream.
  }
}

// --- the wire

ssize_t TlsServerStream::wire_read(std::span<char> to) {
  if (std::exchange(turn_, loop_.now()) != loop_.now()) {
    turn_left_ = kBytesPerTurn;
  }
  if (turn_left_ == 0) {
    wake(EPOLLIN | end_event_);
    return -EAGAIN;
  }
  const ssize_t got = plain_->read(to.first(std::min(to.size(), turn_left_)));
  turn_left_ -= static_cast<size_t>(std::max<ssize_t>(got, 0));
  if (got <= 0 || first_ != '\0') {
    return got;
  }
  first_ = to.front() == '\0' ? '\x01' : to.front();
  // OpenSSL would wait for more of what is no record.
  return first_ == kHandshakeRecord ? got : -EPROTO;
}

ssize_t TlsServerStream::wire_write(std::string_view bytes) {
  return plain_->write(std::array{bytes});
}

// --- the stream

ssize_t TlsServerStream::read(std::span<char> to) {
  const ssize_t got = session_.read(to);
  if (got > 0 && static_cast<size_t>(got) < to.size() && session_.peer_finished()) {
    wake(EPOLLIN | EPOLLRDHUP);  // No edge tells of an end that TLS has read already.
  }
  return got;
}

ssize_t TlsServerStream::write(std::span<const std::string_view> pieces) {
  size_t offered_before = session_.pending();
  size_t taken = offered_before;
  int outcome = session_.flush();
  for (std::string_view piece : pieces) {
    const size_t skipped = std::min(offered_before, piece.size());
    offered_before -= skipped;
    piece.remove_prefix(skipped);
    while (outcome == 0 && !piece.empty()) {
      const size_t more = session_.take(piece);
      taken += more;
      piece.remove_prefix(more);
      outcome = piece.empty() ? 0 : session_.flush();  // The record is full.
    }
  }
  outcome = outcome == 0 ? session_.flush() : outcome;
  const size_t sent = taken - session_.pending();
  return outcome == 0 || (outcome == -EAGAIN && sent > 0) ? static_cast<ssize_t>(sent) : outcome;
}

void TlsServerStream::finish_writing() {
  if (session_.pending() == 0) {
    session_.finish();
  }
  plain_->finish_writing();
}

// --- plain HTTP

void TlsServerStream::refuse_http() {
  drop_rest();  // Closing with unread bytes would discard the answer.
  plain_->write(std::array{kSpeakTls});
  plain_->finish_writing();
}

bool TlsServerStream::drop_rest() {
  std::array<char, 4 * limits::kKiB> dropped;
  ssize_t got = 0;
  do {
    got = plain_->read(dropped);
  } while (got > 0);
  return got == -EAGAIN;
}

}  // namespace pdjob::net
