// TlsListener: accepts TLS connections. A stream arrives once its handshake is done, so nobody
// behind it meets a half-open one. Handshakes have one deadline each. If too many are open, the
// oldest is closed: that of an honest client lasts milliseconds. A client that speaks plain HTTP is
// told so; there is no way to serve it. Loop-bound.
#pragma once

#include <cstddef>
#include <deque>
#include <list>
#include <memory>

#include "common/time.h"
#include "net/loop/loop.h"
#include "net/loop/stream.h"
#include "net/tls/server_tls.h"
#include "net/tls/tls_server_stream.h"

namespace pdjob::net {

inline constexpr size_t kTlsHandshakesMax = 1024;  // Open at once.

class TlsListener final : public Listener, FdHandler, TurnHandler {
 public:
  struct Options {
    Duration handshake_timeout = std::chrono::seconds(10);
    size_t handshakes_max = kTlsHandshakesMax;
  };
  // `loop` and `tls` outlive it.
  TlsListener(Loop& loop, std::unique_ptr<Listener> plain, ServerTls& tls)
      : TlsListener(loop, std::move(plain), tls, Options()) {}
  TlsListener(Loop& loop, std::unique_ptr<Listener> plain, ServerTls& tls, const Options& options);
  ~TlsListener() override;
  TlsListener(const TlsListener&) = delete;
  TlsListener& operator=(const TlsListener&) = delete;

  Status watch(FdHandler& handler) override;
  Result<std::unique_ptr<Stream>> accept() override;
  uint16_t port() const override { return plain_->port(); }

 private:
  enum class Phase { kShaking, kDone, kRefused, kOver };
  struct Pending final : FdHandler {
    void on_ready(uint32_t /*epoll_events*/) override { owner->advance(*this); }

    TlsListener* owner = nullptr;
    std::unique_ptr<TlsServerStream> stream;
    Instant deadline{};
    Phase phase = Phase::kShaking;
    std::list<Pending>::iterator self;
  };

  void on_ready(uint32_t epoll_events) override;
  void on_turn_end() override;
  Status take_arrivals();
  void begin(std::unique_ptr<Stream> stream);
  void advance(Pending& pending);
  void fail(Pending& pending);
  void settle(Pending& pending, Phase phase);
  void sweep();

  Loop& loop_;
  const std::unique_ptr<Listener> plain_;
  ServerTls& tls_;
  const Options options_;
  FdHandler* handler_ = nullptr;
  std::list<Pending> pending_;  // As they came.
  std::list<Pending> settled_;  // Until the end of this turn.
  std::deque<std::unique_ptr<Stream>> ready_;
  TimerId sweep_{};  // None: nothing is pending.
};

}  // namespace pdjob::net
