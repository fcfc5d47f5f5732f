#include "net/zeromq/curve_channel.h"

#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <zmq.h>

#include "common/address_text.h"
#include "common/check.h"
#include "common/limits.h"
#include "net/zeromq/zeromq_socket.h"

namespace pdjob::net {

namespace {

constexpr size_t kKeyBytes = 32;
constexpr size_t kKeyTextBytes = 40;  // Z85 of 32 bytes.
constexpr const char* kZapEndpoint = "inproc://zeromq.zap.01";
constexpr const char* kMonitorEndpoint = "inproc://monitor";
constexpr int kHandshakeFailed = ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                                 ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                                 ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
constexpr Duration kRefusalsTold = std::chrono::minutes(1);  // How often.

void set_common(ZmqSocket& socket, const std::string& endpoint, Duration linger) {
  socket.set(ZMQ_SNDHWM, static_cast<int>(limits::kControlQueueMax));
  socket.set(ZMQ_RCVHWM, static_cast<int>(limits::kControlQueueMax));
  socket.set(ZMQ_MAXMSGSIZE, static_cast<int64_t>(limits::kControlMessageBytesMax));
  socket.set(ZMQ_HANDSHAKE_IVL, 5000);
  // Disconnects a peer that vanished without closing (a lost machine) after this time.
  socket.set(ZMQ_HEARTBEAT_IVL, 2000);
  socket.set(ZMQ_HEARTBEAT_TIMEOUT, 10000);
  socket.set(ZMQ_LINGER, static_cast<int>(linger / std::chrono::milliseconds(1)));
  if (endpoint.find('[') != std::string::npos) {
    socket.set(ZMQ_IPV6, 1);
  }
}

// Counts refusals, and says when to tell of them. Value.
class Refusals {
 public:
  // Returns how many there were since the last time that they were told, or nothing: not now.
  std::optional<uint64_t> add(Instant now) {
    ++count_;
    if (told_ && now < *told_ + kRefusalsTold) {
      return std::nullopt;
    }
    told_ = now;
    return std::exchange(count_, 0);
  }

 private:
  uint64_t count_ = 0;
  std::optional<Instant> told_;
};

// What libzmq tells of a socket's connections.
class Monitor final : public ZmqSocket::Reader {
 public:
  Monitor(EventLoop& loop, ZmqContext& context, std::function<void(int event)> then)
      : then_(std::move(then)), socket_(loop, context, ZMQ_PAIR, *this) {}

  Status open(ZmqSocket& watched, int events) {
    PDJOB_TRY_STATUS(watched.monitor(kMonitorEndpoint, events));
    PDJOB_TRY_STATUS(socket_.connect(kMonitorEndpoint));
    return socket_.watch();
  }

  // The event's number comes first, in the machine's byte order.
  void on_frames(ZmqSocket::Frames frames, const std::string& /*user*/) override {
    uint16_t event = 0;
    if (!frames.empty() && frames[0].size() >= sizeof event) {
      std::memcpy(&event, frames[0].data(), sizeof event);
      then_(event);
    }
  }

 private:
  const std::function<void(int)> then_;
  ZmqSocket socket_;
};

// The ZAP handler (rfc.zeromq.org/spec/27): admits exactly the allowed public keys. A connection's
// User-Id is its key.
class Gate final : public ZmqSocket::Reader {
 public:
  using Allows = std::function<bool(const std::string&)>;
  Gate(EventLoop& loop, ZmqContext& context, Allows allows,
       std::function<void(const std::string&)> refused)
      : allows_(std::move(allows)),
        refused_(std::move(refused)),
        socket_(loop, context, ZMQ_REP, *this) {}

  Status open() {
    PDJOB_TRY_STATUS(socket_.bind(kZapEndpoint));
    return socket_.watch();
  }

  // version, request id, domain, address, identity, mechanism, credentials
  void on_frames(ZmqSocket::Frames frames, const std::string& /*user*/) override {
    std::array<char, kKeyTextBytes + 1> key{};
    if (frames.size() == 7 && frames[0] == "1.0" && frames[5] == "CURVE" &&
        frames[6].size() == kKeyBytes) {
      zmq_z85_encode(key.data(), reinterpret_cast<const uint8_t*>(frames[6].data()), kKeyBytes);
    }
    const bool allowed = allows_(key.data());
    if (!allowed) {
      refused_("a peer with an unknown key was refused");
    }
    const std::string request_id = frames.size() > 1 ? frames[1] : "";
    const ZmqSocket::Frames reply = {"1.0", request_id, allowed ? "200" : "400",
                                     "",    key.data(), ""};
    socket_.send(reply);
  }

 private:
  const Allows allows_;
  const std::function<void(const std::string&)> refused_;
  ZmqSocket socket_;
};

CurveSent sent_of(ZmqSocket::Sent sent) {
  switch (sent) {
    case ZmqSocket::Sent::kQueued:
      return CurveSent::kQueued;
    case ZmqSocket::Sent::kFull:
      return CurveSent::kFull;
    case ZmqSocket::Sent::kGone:
      return CurveSent::kGone;
  }
  PDJOB_CHECK(false, static_cast<int>(sent));
}

// Each end has its own context: the ZAP endpoint is one per context, and a context ends with its
// sockets.
class ZmqCurveServer final : public CurveServer, ZmqSocket::Reader {
 public:
  ZmqCurveServer(EventLoop& loop, Handler& handler, Options options)
      : loop_(loop),
        handler_(handler),
        options_(std::move(options)),
        gate_(loop, context_, options_.allows, [this](const std::string& why) { refuse(why); }),
        monitor_(loop, context_, [this](int event) { look(event); }),
        socket_(loop, context_, ZMQ_ROUTER, *this) {}

  Status start() {
    PDJOB_TRY_STATUS(gate_.open());  // First: without a ZAP handler libzmq admits every client.
    const std::string endpoint =
        tcp_endpoint(options_.host, options_.port == 0 ? "*" : std::to_string(options_.port));
    set_common(socket_, endpoint, options_.linger);
    socket_.set(ZMQ_ROUTER_MANDATORY, 1);
    socket_.set(ZMQ_CURVE_SERVER, 1);
    socket_.set(ZMQ_CURVE_SECRETKEY, options_.keys.secret_key);
    socket_.set(ZMQ_ZAP_DOMAIN, std::string("pdjob"));
    // The gate tells of keys that are unknown.
    PDJOB_TRY_STATUS(monitor_.open(
        socket_, (kHandshakeFailed & ~ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) | ZMQ_EVENT_DISCONNECTED));
    if (options_.use == PortUse::kShared) {
      PDJOB_TRY_STATUS(listen_by_ourselves());
    }
    PDJOB_TRY_STATUS(socket_.bind(endpoint));
    endpoint_ = socket_.last_endpoint();
    return socket_.watch();
  }

  const std::string& endpoint() const override { return endpoint_; }

  CurveSent send(const std::string& route, const std::string& bytes) override {
    const ZmqSocket::Frames frames = {route, bytes};
    return sent_of(socket_.send(frames));
  }

  void on_frames(ZmqSocket::Frames frames, const std::string& user) override {
    if (frames.size() == 2) {
      handler_.on_bytes(user, frames[0], frames[1]);
    }
  }

 private:
  // libzmq cannot share a port. It owns the descriptor that it is given.
  Status listen_by_ourselves() {
    PDJOB_TRY(const Fd listener, listen_on(options_.host, options_.port, PortUse::kShared));
    const int own = fcntl(listener.get(), F_DUPFD_CLOEXEC, 0);
    if (own < 0) {
      return system_error("dup");
    }
    socket_.set(ZMQ_USE_FD, own);
    return ok();
  }

  void look(int event) {
    if (event == ZMQ_EVENT_DISCONNECTED) {
      handler_.on_disconnected();
    } else {
      refuse("a peer was refused: it does not prove that it has the key");
    }
  }

  void refuse(const std::string& why) {
    if (const auto times = refusals_[why].add(loop_.now())) {
      handler_.on_refused(why, *times);
    }
  }

  EventLoop& loop_;
  Handler& handler_;
  const Options options_;
  std::map<std::string, Refusals> refusals_;  // By their reason, one of two.
  ZmqContext context_;
  Gate gate_;
  Monitor monitor_;
  ZmqSocket socket_;
  std::string endpoint_;
};

class ZmqCurveClient final : public CurveClient, ZmqSocket::Reader {
 public:
  ZmqCurveClient(EventLoop& loop, Handler& handler)
      : loop_(loop),
        handler_(handler),
        monitor_(loop, context_, [this](int event) { look(event); }),
        socket_(loop, context_, ZMQ_DEALER, *this) {}

  Status start(const Options& options) {
    for (const std::string* key :
         {&options.server_public_key, &options.keys.public_key, &options.keys.secret_key}) {
      if (key->size() != kKeyTextBytes) {
        return Error{ErrorCode::kInvalidArgument, "a key is not 40 characters of Z85"};
      }
    }
    set_common(socket_, options.endpoint, options.linger);
    socket_.set(ZMQ_RECONNECT_IVL, 50);
    socket_.set(ZMQ_RECONNECT_IVL_MAX, 1000);
    socket_.set(ZMQ_IMMEDIATE, options.queue == Options::Queue::kOnlyConnected ? 1 : 0);
    socket_.set(ZMQ_CURVE_SERVERKEY, options.server_public_key);
    socket_.set(ZMQ_CURVE_PUBLICKEY, options.keys.public_key);
    socket_.set(ZMQ_CURVE_SECRETKEY, options.keys.secret_key);
    PDJOB_TRY_STATUS(monitor_.open(
        socket_, kHandshakeFailed | ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED));
    PDJOB_TRY_STATUS(socket_.connect(options.endpoint));
    return socket_.watch();
  }

  CurveSent send(const std::string& bytes) override {
    const ZmqSocket::Frames frames = {bytes};
    return sent_of(socket_.send(frames));
  }

  void on_frames(ZmqSocket::Frames frames, const std::string& /*user*/) override {
    if (frames.size() == 1) {
      handler_.on_bytes(frames[0]);
    }
  }

 private:
  void look(int event) {
    if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
      connected_ = true;
      handler_.on_connected();
    } else if (event == ZMQ_EVENT_DISCONNECTED) {
      if (std::exchange(connected_, false)) {
        handler_.on_disconnected();
      }
    } else if (refusals_.add(loop_.now())) {
      handler_.on_refused();
    }
  }

  EventLoop& loop_;
  Handler& handler_;
  bool connected_ = false;
  Refusals refusals_;
  ZmqContext context_;
  Monitor monitor_;
  ZmqSocket socket_;
};

}  // namespace

CurveKeys make_curve_keys() {
  std::array<char, kKeyTextBytes + 1> public_key{};
  std::array<char, kKeyTextBytes + 1> secret_key{};
  PDJOB_CHECK(zmq_curve_keypair(public_key.data(), secret_key.data()) == 0, "libzmq has no CURVE");
  return {public_key.data(), secret_key.data()};
}

CurveKeys curve_keys_of(const std::string& secret) {
  PDJOB_CHECK(secret.size() == 2 * kKeyBytes, secret.size());
  std::array<uint8_t, kKeyBytes> bytes{};
  for (size_t i = 0; i < kKeyBytes; ++i) {
    const char* const digits = secret.data() + 2 * i;
    PDJOB_CHECK(std::from_chars(digits, digits + 2, bytes[i], 16).ptr == digits + 2);
  }
  std::array<char, kKeyTextBytes + 1> public_key{};
  std::array<char, kKeyTextBytes + 1> secret_key{};
  zmq_z85_encode(secret_key.data(), bytes.data(), bytes.size());
  PDJOB_CHECK(zmq_curve_public(public_key.data(), secret_key.data()) == 0, "libzmq has no CURVE");
  return {public_key.data(), secret_key.data()};
}

uint16_t port_of(const std::string& endpoint) {
  const size_t colon = endpoint.rfind(':');
  uint16_t port = 0;
  const auto [end, error] =
      std::from_chars(endpoint.data() + colon + 1, endpoint.data() + endpoint.size(), port);
  PDJOB_CHECK(colon != std::string::npos && error == std::errc(), endpoint);
  return port;
}

std::string tcp_endpoint(const std::string& host, const std::string& port) {
  return "tcp://" + address_text(host, port);
}

Result<std::unique_ptr<CurveServer>> CurveServer::open(EventLoop& loop, Handler& handler,
                                                       Options options) {
  auto server = std::make_unique<ZmqCurveServer>(loop, handler, std::move(options));
  PDJOB_TRY_STATUS(server->start());
  return std::unique_ptr<CurveServer>(std::move(server));
}

Result<std::unique_ptr<CurveClient>> CurveClient::open(EventLoop& loop, Handler& handler,
                                                       const Options& options) {
  auto client = std::make_unique<ZmqCurveClient>(loop, handler);
  PDJOB_TRY_STATUS(client->start(options));
  return std::unique_ptr<CurveClient>(std::move(client));
}

}  // namespace pdjob::net
