// KvStream: follows the prefix cache of a pdjob worker through the endless reply to GET
// /pdjob/kv_events. The reply consists of batches of KV events (kv_events.h), each after its
// length: four bytes, big-endian. The first batches, up to an empty one, hold the whole cache, and
// begin with AllBlocksCleared. Later batches are complete, because a connection that loses one
// breaks. Loop-bound.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/result.h"
#include "net/http/http_client.h"
#include "net/loop/loop.h"

namespace pdjob::openai {

// A worker without events sends an empty batch this often.
inline constexpr Duration kKvPingInterval = std::chrono::seconds(10);

void append_kv_frame(std::string& out, std::string_view batch);

// Splits bytes that arrive in any pieces into frames. Value.
class KvFrames {
 public:
  void take(std::string_view bytes) { bytes_.append(bytes); }
  // The next whole frame, valid until the next call; empty if it has not fully arrived. kCorrupt:
  // it is longer than limits::kKvBatchBytesMax.
  Result<std::optional<std::string_view>> next();

 private:
  std::string bytes_;
  size_t at_ = 0;
};

// Reconnects by itself, unless the worker refused it.
class KvStream final : public net::HttpCallHandler {
 public:
  // These must not end the stream.
  class Handler {
   public:
    virtual void on_connected() = 0;
    virtual void on_disconnected() = 0;
    // `payload` may be empty. False: it cannot be read, so the stream starts anew.
    virtual bool on_batch(std::string_view payload) = 0;

   protected:
    ~Handler() = default;
  };

  // `key` is the worker's API key, or empty.
  KvStream(net::Loop& loop, net::HttpClient& client, Handler& handler, net::HttpAddress worker,
           const std::string& key);
  ~KvStream();
  KvStream(const KvStream&) = delete;
  KvStream& operator=(const KvStream&) = delete;

  void open();

 private:
  void on_head(net::CallId id, const net::HttpReplyHead& head) override;
  void on_body(net::CallId id, std::string_view raw) override;
  void on_end(net::CallId id) override;
  void on_error(net::CallId id, const Error& error) override;
  void end_call();

  net::Loop& loop_;
  net::HttpClient& client_;
  Handler& handler_;
  const net::HttpAddress worker_;
  const std::string header_lines_;
  net::CallId call_;
  net::TimerId retry_;
  bool connected_ = false;
  bool refused_ = false;  // The worker does not offer the stream to us.
  net::ChunkDecoder chunks_;
  std::string decoded_;
  KvFrames frames_;
};

}  // namespace pdjob::openai
