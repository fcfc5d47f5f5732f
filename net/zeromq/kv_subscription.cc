#include "net/zeromq/kv_subscription.h"

#include <cstring>
#include <utility>

#include <zmq.h>

#include "common/address_text.h"
#include "common/check.h"
#include "common/limits.h"

namespace pdjob::net {
namespace {

constexpr size_t kNumberBytes = 8;
constexpr uint64_t kReplayEnd = UINT64_MAX;  // -1

std::string endpoint_of(const std::string& host, uint16_t port) {
  return "tcp://" + address_text(host, port);
}

void set_common(ZmqSocket& socket) {
  socket.set(ZMQ_IPV6, 1);
  socket.set(ZMQ_RCVHWM, static_cast<int>(limits::kKvBatchesQueuedMax));
  socket.set(ZMQ_SNDHWM, 1);
  socket.set(ZMQ_MAXMSGSIZE, static_cast<int64_t>(limits::kKvBatchBytesMax));
  socket.set(ZMQ_RECONNECT_IVL, 100);
  socket.set(ZMQ_RECONNECT_IVL_MAX, 1000);
  socket.set(ZMQ_HANDSHAKE_IVL, 5000);
  // Disconnects a peer that vanished without closing (a lost machine) after this time.
  socket.set(ZMQ_HEARTBEAT_IVL, 2000);
  socket.set(ZMQ_HEARTBEAT_TIMEOUT, 10000);
}

// Big-endian.
std::string number_frame(uint64_t number) {
  std::string frame;
  for (size_t byte = kNumberBytes; byte-- > 0;) {
    frame += static_cast<char>(number >> (8 * byte));
  }
  return frame;
}

uint64_t number_of(const std::string& frame) {
  uint64_t number = 0;
  for (const char byte : frame) {
    number = number << 8 | static_cast<uint8_t>(byte);
  }
  return number;
}

}  // namespace

class KvSubscription::Events final : public ZmqSocket::Reader {
 public:
  explicit Events(KvSubscription& owner)
      : handler_(owner.handler_), socket(owner.loop_, owner.context_, ZMQ_SUB, *this) {}

  // topic, number, batch. Other frames are dropped; the gap in the numbers shows it.
  void on_frames(ZmqSocket::Frames frames, const std::string& /*user*/) override {
    if (frames.size() == 3 && frames[1].size() == kNumberBytes) {
      handler_.on_batch(number_of(frames[1]), std::move(frames[2]));
    }
  }

 private:
  Handler& handler_;

 public:
  ZmqSocket socket;  // Last: it reads into this object.
};

class KvSubscription::Monitor final : public ZmqSocket::Reader {
 public:
  explicit Monitor(KvSubscription& owner)
      : handler_(owner.handler_), socket(owner.loop_, owner.context_, ZMQ_PAIR, *this) {}

  // The first frame is the event (two bytes, and four unused ones), the second the endpoint.
  void on_frames(ZmqSocket::Frames frames, const std::string& /*user*/) override {
    uint16_t event = 0;
    PDJOB_CHECK(frames.size() == 2 && frames[0].size() >= sizeof event, frames.size());
    std::memcpy(&event, frames[0].data(), sizeof event);
    if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
      handler_.on_connected();
    } else if (event == ZMQ_EVENT_DISCONNECTED) {
      handler_.on_disconnected();
    }
  }

 private:
  Handler& handler_;

 public:
  ZmqSocket socket;  // Last: it reads into this object.
};

// One request and its replies.
class KvSubscription::Replay final : public ZmqSocket::Reader {
 public:
  explicit Replay(KvSubscription& owner)
      : handler_(owner.handler_), socket(owner.loop_, owner.context_, ZMQ_DEALER, *this) {}

  void mute() { is_muted_ = true; }

  // An empty frame, a topic (newer versions only), a number, its batch.
  void on_frames(ZmqSocket::Frames frames, const std::string& /*user*/) override {
    if (is_muted_ || frames.size() < 3 || frames.size() > 4 ||
        frames[frames.size() - 2].size() != kNumberBytes) {
      return;
    }
    const uint64_t number = number_of(frames[frames.size() - 2]);
    if (number == kReplayEnd) {
      handler_.on_replay_end();
    } else {
      handler_.on_replayed(number, std::move(frames.back()));
    }
  }

 private:
  Handler& handler_;
  bool is_muted_ = false;

 public:
  ZmqSocket socket;
};

KvSubscription::KvSubscription(EventLoop& loop, ZmqContext& context, Handler& handler,
                               KvPublisher publisher)
    : loop_(loop), context_(context), handler_(handler), publisher_(std::move(publisher)) {}
KvSubscription::~KvSubscription() = default;

Status KvSubscription::open() {
  events_ = std::make_unique<Events>(*this);
  monitor_ = std::make_unique<Monitor>(*this);
  ZmqSocket& socket = events_->socket;
  set_common(socket);
  socket.set(ZMQ_SUBSCRIBE, publisher_.topic);
  // Each subscription needs its own name; no other has this address.
  const std::string told_at = "inproc://kv-" + std::to_string(reinterpret_cast<uintptr_t>(this));
  PDJOB_TRY_STATUS(socket.monitor(told_at, ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED));
  PDJOB_TRY_STATUS(monitor_->socket.connect(told_at));
  PDJOB_TRY_STATUS(monitor_->socket.watch());
  PDJOB_TRY_STATUS(socket.connect(endpoint_of(publisher_.host, publisher_.port)));
  return socket.watch();
}

Status KvSubscription::ask_replay(uint64_t from) {
  PDJOB_CHECK(publisher_.replay_port > 0);
  auto replay = std::make_unique<Replay>(*this);
  set_common(replay->socket);
  PDJOB_TRY_STATUS(replay->socket.connect(endpoint_of(publisher_.host, publisher_.replay_port)));
  PDJOB_TRY_STATUS(replay->socket.watch());
  const ZmqSocket::Frames question = {"", number_frame(from)};
  replay->socket.send(question);
  ended_ = std::move(replay_);
  if (ended_) {
    ended_->mute();
  }
  replay_ = std::move(replay);
  return ok();
}

}  // namespace pdjob::net
