// TcpStream and TcpListener: streams of the operating system. Loop-bound.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "net/loop/event_loop.h"
#include "net/loop/socket.h"
#include "net/loop/stream.h"

namespace pdjob::net {

class TcpStream final : public Stream {
 public:
  // `socket` is connecting or connected, and non-blocking.
  TcpStream(EventLoop& loop, Fd socket) : loop_(loop), socket_(std::move(socket)) {}
  TcpStream(const TcpStream&) = delete;
  TcpStream& operator=(const TcpStream&) = delete;
  ~TcpStream() override { loop_.unwatch(socket_.get()); }

  Status watch(FdHandler& handler) override;
  int connect_error() const override;
  ssize_t read(std::span<char> to) override;
  ssize_t write(std::span<const std::string_view> pieces) override;
  void finish_writing() override;
  void reset_when_closed() override;

 private:
  EventLoop& loop_;
  const Fd socket_;
};

class TcpListener final : public Listener {
 public:
  TcpListener(EventLoop& loop, Fd socket) : loop_(loop), socket_(std::move(socket)) {}
  TcpListener(const TcpListener&) = delete;
  TcpListener& operator=(const TcpListener&) = delete;
  ~TcpListener() override { loop_.unwatch(socket_.get()); }

  Status watch(FdHandler& handler) override;
  Result<std::unique_ptr<Stream>> accept() override;
  uint16_t port() const override { return local_port(socket_.get()); }

 private:
  EventLoop& loop_;
  const Fd socket_;
};

}  // namespace pdjob::net
