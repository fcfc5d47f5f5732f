// StreamSocket: a LinkSocket of the operating system, plain or under TLS. Loop-bound.
#pragma once

#include <memory>

#include "kvtransfer/link/link_socket.h"
#include "kvtransfer/link/peer_process.h"
#include "kvtransfer/link/tls_stream.h"

namespace pdjob::kvtransfer {

class StreamSocket final : public LinkSocket {
 public:
  struct Options {
    Fd socket;  // Connecting or connected.
    TlsSide side = TlsSide::kInitiator;
    const TlsContext* tls = nullptr;  // Outlives this socket. Null: not encrypted.
    bool loopback_only = false;       // Peers must be on this machine.
  };
  StreamSocket(net::EventLoop& loop, Options options);
  ~StreamSocket() override { unwatch(); }
  StreamSocket(const StreamSocket&) = delete;
  StreamSocket& operator=(const StreamSocket&) = delete;

  Status watch(net::FdHandler& handler) override;
  void unwatch() override { loop_.unwatch(socket_.get()); }
  Status connected() const override;
  bool peer_has_closed() const override;
  Status follow_peer() override;
  bool peer_is_dying() const override { return peer_.is_dying(); }
  void finish_writing() override;
  bool encrypted() const override { return tls_ != nullptr; }
  std::optional<Greeting> greeting() const override;
  void turn_away() override;
  std::string channel() const override { return tls_ ? tls_->channel() : std::string(); }
  ssize_t read(std::span<iovec> pieces, std::deque<Fd>& shared) override;
  ssize_t write(std::span<const iovec> pieces, const Fd& shared, Then then) override;
  bool flush() override { return !tls_ || tls_->flush(); }
  Error error() const override;

 private:
  net::EventLoop& loop_;
  const Fd socket_;
  const bool loopback_only_;
  PeerProcess peer_;
  std::unique_ptr<TlsStream> tls_;
};

// The maximum number of received descriptors that may wait; no correct link has more. Beyond that,
// errno is EPROTO.
inline constexpr size_t kSharedWaitingMax = 16;

}  // namespace pdjob::kvtransfer
