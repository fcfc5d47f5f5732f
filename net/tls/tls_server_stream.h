// TlsServerStream: the acceptor's end of a TLS connection as a Stream, over another Stream. Whoever
// watches it is called as for a plain one: also for what TLS has read ahead. Loop-bound.
//
// One turn of the loop reads a bounded number of the peer's bytes: records may be tiny, and each
// costs time, whatever it holds. The rest is read in the next turn.
//
// write() counts bytes once they are with the stream below, so nothing is left here when all is
// counted. What it did not count must be offered again, unchanged: a part of it may be in a record
// already.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "common/time.h"
#include "net/loop/loop.h"
#include "net/loop/stream.h"
#include "net/tls/tls_session.h"

namespace pdjob::net {

class TlsServerStream final : public Stream, FdHandler, TlsWire {
 public:
  TlsServerStream(Loop& loop, const TlsContext& context, std::unique_ptr<Stream> plain);
  ~TlsServerStream() override;
  TlsServerStream(const TlsServerStream&) = delete;
  TlsServerStream& operator=(const TlsServerStream&) = delete;

  // May be called again: the next handler takes the place of the first, and is called soon.
  Status watch(FdHandler& handler) override;
  int connect_error() const override { return plain_->connect_error(); }
  ssize_t read(std::span<char> to) override;
  ssize_t write(std::span<const std::string_view> pieces) override;
  // Requires: all that was written is counted.
  void finish_writing() override;
  void reset_when_closed() override { plain_->reset_when_closed(); }

  // Before anything is read or written: as TlsSession's.
  int shake_hands() { return session_.shake_hands(); }
  // The peer began like plain HTTP. Requires: shake_hands() failed.
  bool speaks_http() const { return first_ >= 'A' && first_ <= 'Z'; }
  // Answers a peer that speaks HTTP in its own words.
  void refuse_http();
  // Drops what such a peer still sends. False: it has closed.
  bool drop_rest();

  const TlsSession& session() const { return session_; }

 private:
  void on_ready(uint32_t epoll_events) override;
  ssize_t wire_read(std::span<char> to) override;
  ssize_t wire_write(std::string_view bytes) override;
  void wake(uint32_t epoll_events);

  Loop& loop_;
  const std::unique_ptr<Stream> plain_;
  TlsSession session_;
  FdHandler* handler_ = nullptr;
  char first_ = '\0';  // The peer's first byte.
  TimerId wake_{};
  uint32_t wake_events_ = 0;
  uint32_t end_event_ = 0;  // EPOLLRDHUP, once the stream below has told of its end.
  Instant turn_{};
  size_t turn_left_ = 0;  // Bytes that this turn may still read.
};

}  // namespace pdjob::net
