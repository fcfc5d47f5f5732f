// KvStream: what a pdjob worker keeps in its prefix cache, as it tells it to routers: the reply to
// GET /pdjob/kv_events, which does not end. It is batches of KV events (kv_events.h), each behind
// its length, four bytes, big-endian. The first ones, up to an empty one, are all that there is,
// and begin with AllBlocksCleared; nothing is missing behind them, since a connection that loses
// something breaks. Loop-bound.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/result.h"
#include "net/event_loop.h"
#include "net/http_client.h"

namespace pdjob::net {

// A worker that has nothing to say says so, in an empty batch.
inline constexpr Duration kKvPingInterval = std::chrono::seconds(10);

void append_kv_frame(std::string& out, std::string_view batch);

// Takes frames out of bytes that come in any pieces. Value.
class KvFrames {
 public:
  void take(std::string_view bytes) { bytes_.append(bytes); }
  // The next whole one, valid until the next call; nothing: it is not all here. kCorrupt: it is
  // longer than limits::kKvBatchBytesMax.
  Result<std::optional<std::string_view>> next();

 private:
  std::string bytes_;
  size_t at_ = 0;
};

// Connects again by itself, as long as it lives.
class KvStream final : public HttpCallHandler {
 public:
  // None of these may end the stream.
  class Handler {
   public:
    virtual void on_connected() = 0;
    virtual void on_disconnected() = 0;
    // May be empty. False: it cannot be read, and everything is to be asked for anew.
    virtual bool on_batch(std::string_view payload) = 0;

   protected:
    ~Handler() = default;
  };

  // `key`: of the worker, or empty.
  KvStream(EventLoop& loop, HttpClient& client, Handler& handler, HttpAddress worker,
           const std::string& key);
  ~KvStream();
  KvStream(const KvStream&) = delete;
  KvStream& operator=(const KvStream&) = delete;

  void open();

 private:
  void on_head(CallId id, const HttpReplyHead& head) override;
  void on_body(CallId id, std::string_view raw) override;
  void on_end(CallId id) override;
  void on_error(CallId id, const Error& error) override;
  void end_call();

  EventLoop& loop_;
  HttpClient& client_;
  Handler& handler_;
  const HttpAddress worker_;
  const std::string header_lines_;
  CallId call_;
  TimerId retry_;
  bool connected_ = false;
  bool refused_ = false;  // It does not tell us, and will not.
  ChunkDecoder chunks_;
  std::string decoded_;
  KvFrames frames_;
};

}  // namespace pdjob::net
