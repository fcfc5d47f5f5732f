// KvWatch: tells routers, as it happens, which prompts this worker's free sequences keep. Who asks
// gets an HTTP reply that does not end (net/kv_stream.h): first everything, then every change, so
// whoever was cut off has lost nothing once it is back. Tokens are as good as the text: whoever
// asks has shown the worker's key, where it has one. Loop-bound.
#pragma once

#include <map>
#include <span>
#include <string>

#include "net/event_loop.h"
#include "net/http_server.h"
#include "worker/generation.h"
#include "worker/kept_blocks.h"

namespace pdjob::worker {

class KvWatch {
 public:
  static constexpr size_t kSubscribersMax = 256;

  KvWatch(net::EventLoop& loop, net::HttpServer& server);
  ~KvWatch() { loop_.cancel(timer_); }
  KvWatch(const KvWatch&) = delete;
  KvWatch& operator=(const KvWatch&) = delete;

  // Answers GET /pdjob/kv_events.
  void subscribe(net::ExchangeId id);
  void client_left(net::ExchangeId id) { subscribers_.erase(id); }

  // What one turn of the engine thread changed.
  void take(std::span<const ReportKept> changes);
  // Ends all subscriptions; there are no new ones.
  void close();

 private:
  void tell_all(const std::string& frames);
  void ping();

  net::EventLoop& loop_;
  net::HttpServer& server_;
  KeptBlocks blocks_;
  // And how much of what it was told at first may still be on its way.
  std::map<net::ExchangeId, size_t> subscribers_;
  bool closed_ = false;
  net::TimerId timer_;
};

}  // namespace pdjob::worker
