// KvWatch: tells routers at once which prompts this worker's free sequences keep. A subscriber gets
// an HTTP reply that does not end (openai/kv_events/kv_stream.h): first everything, then every
// change. So a router that reconnects misses nothing. Tokens reveal the text, so a subscriber must
// show the worker's key, if there is one. Loop-bound.
#pragma once

#include <map>
#include <span>
#include <string>

#include "net/http/http_server.h"
#include "net/loop/loop.h"
#include "worker/core/generation.h"
#include "worker/core/kept_blocks.h"

namespace pdjob::worker {

class KvWatch {
 public:
  static constexpr size_t kSubscribersMax = 256;

  KvWatch(net::Loop& loop, net::HttpServer& server);
  ~KvWatch() { loop_.cancel(timer_); }
  KvWatch(const KvWatch&) = delete;
  KvWatch& operator=(const KvWatch&) = delete;

  // Answers GET /pdjob/kv_events.
  void subscribe(net::ExchangeId id, bool head_only);
  void client_left(net::ExchangeId id) { subscribers_.erase(id); }

  // Takes the changes of one turn of the engine thread.
  void take(std::span<const ReportKept> changes);
  // Ends all subscriptions and refuses new ones.
  void close();

 private:
  void tell_all(const std::string& frames);
  void ping();

  net::Loop& loop_;
  net::HttpServer& server_;
  KeptBlocks blocks_;
  // Per subscriber, how many bytes of its first, full report may still be unsent.
  std::map<net::ExchangeId, size_t> subscribers_;
  bool closed_ = false;
  net::TimerId timer_;
};

}  // namespace pdjob::worker
