#include "net/control/control_channel.h"

#include <array>
#include <map>
#include <span>
#include <utility>

#include <zmq.h>

#include "common/check.h"
#include "common/limits.h"
#include "common/log.h"
#include "net/control/wire.h"
#include "net/zeromq/zeromq_socket.h"

namespace pdjob::net {

namespace {

constexpr size_t kKeyTextBytes = 40;  // Z85 of 32 bytes.
constexpr const char* kZapEndpoint = "inproc://zeromq.zap.01";

// Each end has its own context: the ZAP endpoint is one per context, and a context ends with its
// socket.
using Context = ZmqContext;
using Socket = ZmqSocket;

void set_common(Socket& socket) {
  socket.set(ZMQ_SNDHWM, static_cast<int>(limits::kControlQueueMax));
  socket.set(ZMQ_RCVHWM, static_cast<int>(limits::kControlQueueMax));
  socket.set(ZMQ_MAXMSGSIZE, static_cast<int64_t>(limits::kControlMessageBytesMax));
  socket.set(ZMQ_HANDSHAKE_IVL, 5000);
  // Disconnects a peer that vanished without closing (a lost machine) after this time.
  socket.set(ZMQ_HEARTBEAT_IVL, 2000);
  socket.set(ZMQ_HEARTBEAT_TIMEOUT, 10000);
}

Result<Message> decode_frame(const std::string& frame) {
  return decode(std::as_bytes(std::span(frame.data(), frame.size())));
}

// The allowed peers: name by public key (Z85).
using AllowList = std::map<std::string, std::string>;

// The ZAP handler (rfc.zeromq.org/spec/27): admits exactly the allowed public keys. A connection's
// User-Id is its key. So messages of a process's older incarnation differ from those of the newer
// one.
class Gate final : public Socket::Reader {
 public:
  Gate(EventLoop& loop, Context& context, const AllowList& allowed)
      : allowed_(allowed), socket_(loop, context, ZMQ_REP, *this) {}

  Status open() {
    PDJOB_TRY_STATUS(socket_.bind(kZapEndpoint));
    return socket_.watch();
  }

  // version, request id, domain, address, identity, mechanism, credentials
  void on_frames(Socket::Frames frames, const std::string& /*user*/) override {
    std::array<char, kKeyTextBytes + 1> key{};
    if (frames.size() == 7 && frames[0] == "1.0" && frames[5] == "CURVE" &&
        frames[6].size() == 32) {
      zmq_z85_encode(key.data(), reinterpret_cast<const uint8_t*>(frames[6].data()),
                     frames[6].size());
    }
    const bool allowed = allowed_.contains(key.data());
    if (!allowed) {
      log::warn("control plane: a peer with an unknown key was refused");
    }
    const std::string request_id = frames.size() > 1 ? frames[1] : "";
    const Socket::Frames reply = {"1.0", request_id, allowed ? "200" : "400", "", key.data(), ""};
    socket_.send(reply);
  }

 private:
  const AllowList& allowed_;
  Socket socket_;
};

class ZmqControlServer final : public ControlServer, Socket::Reader {
 public:
  ZmqControlServer(EventLoop& loop, Handler& handler)
      : handler_(handler),
        keys_(make_curve_keys()),
        gate_(loop, context_, allowed_),
        socket_(loop, context_, ZMQ_ROUTER, *this) {}

  Status start(const std::string& host) {
    PDJOB_TRY_STATUS(gate_.open());  // First: without a ZAP handler libzmq admits every client.
    set_common(socket_);
    socket_.set(ZMQ_ROUTER_MANDATORY, 1);
    socket_.set(ZMQ_CURVE_SERVER, 1);
    socket_.set(ZMQ_CURVE_SECRETKEY, keys_.secret_key);
    socket_.set(ZMQ_ZAP_DOMAIN, std::string("pdjob"));
    PDJOB_TRY_STATUS(socket_.bind("tcp://" + host + ":*"));
    endpoint_ = socket_.last_endpoint();
    return socket_.watch();
  }

  const std::string& endpoint() const override { return endpoint_; }
  const std::string& public_key() const override { return keys_.public_key; }

  void allow(const std::string& name, const std::string& client_public_key) override {
    forbid(name);
    allowed_[client_public_key] = name;
  }

  void forbid(const std::string& name) override {
    routes_.erase(name);
    std::erase_if(allowed_, [&](const auto& entry) { return entry.second == name; });
  }

  void send(const std::string& peer, const Message& message) override {
    const auto route = routes_.find(peer);
    if (route == routes_.end()) {
      return;
    }
    const Socket::Frames frames = {route->second, encode(message)};
    if (socket_.send(frames) == Socket::Sent::kFull) {
      log::warn("control plane: " + peer + " does not read; a message to it was dropped");
    }
  }

  void on_frames(Socket::Frames frames, const std::string& user) override {
    const auto known = allowed_.find(user);
    if (frames.size() != 2 || known == allowed_.end()) {
      log::warn("control plane: a message of a forbidden or malformed peer was dropped");
      return;
    }
    const std::string name = known->second;
    Result<Message> message = decode_frame(frames[1]);
    if (!message) {
      log::warn("control plane: from " + name + ": " + message.error().message);
      return;
    }
    routes_[name] = frames[0];  // A reconnect has a new routing id.
    handler_.on_message(name, std::move(*message));
  }

 private:
  Handler& handler_;
  const CurveKeys keys_;
  AllowList allowed_;
  Context context_;
  Gate gate_;
  Socket socket_;
  std::string endpoint_;
  std::map<std::string, std::string> routes_;  // Peer name to ZeroMQ routing id.
};

class ZmqControlClient final : public ControlClient, Socket::Reader {
 public:
  ZmqControlClient(EventLoop& loop, Handler& handler)
      : handler_(handler), socket_(loop, context_, ZMQ_DEALER, *this) {}

  Status start(const ControlAddress& address) {
    for (const std::string* key :
         {&address.server_public_key, &address.client.public_key, &address.client.secret_key}) {
      if (key->size() != kKeyTextBytes) {
        return Error{ErrorCode::kInvalidArgument,
                     "control plane: a key is not 40 characters of Z85"};
      }
    }
    set_common(socket_);
    socket_.set(ZMQ_RECONNECT_IVL, 50);
    socket_.set(ZMQ_RECONNECT_IVL_MAX, 1000);
    socket_.set(ZMQ_CURVE_SERVERKEY, address.server_public_key);
    socket_.set(ZMQ_CURVE_PUBLICKEY, address.client.public_key);
    socket_.set(ZMQ_CURVE_SECRETKEY, address.client.secret_key);
    PDJOB_TRY_STATUS(socket_.connect(address.endpoint));
    return socket_.watch();
  }

  void send(const Message& message) override {
    const Socket::Frames frames = {encode(message)};
    if (socket_.send(frames) != Socket::Sent::kQueued) {
      log::warn("control plane: the launcher does not read; a message to it was dropped");
    }
  }

  void on_frames(Socket::Frames frames, const std::string& /*user*/) override {
    Result<Message> message =
        frames.size() == 1 ? decode_frame(frames[0]) : Error{ErrorCode::kCorrupt, "frames"};
    if (!message) {
      log::warn("control plane: from the launcher: " + message.error().message);
      return;
    }
    handler_.on_message(std::move(*message));
  }

 private:
  Handler& handler_;
  Context context_;
  Socket socket_;
};

}  // namespace

CurveKeys make_curve_keys() {
  std::array<char, kKeyTextBytes + 1> public_key{};
  std::array<char, kKeyTextBytes + 1> secret_key{};
  PDJOB_CHECK(zmq_curve_keypair(public_key.data(), secret_key.data()) == 0, "libzmq has no CURVE");
  return {public_key.data(), secret_key.data()};
}

Result<std::unique_ptr<ControlServer>> ControlServer::open(EventLoop& loop, Handler& handler,
                                                           const std::string& host) {
  auto server = std::make_unique<ZmqControlServer>(loop, handler);
  PDJOB_TRY_STATUS(server->start(host));
  return std::unique_ptr<ControlServer>(std::move(server));
}

Result<std::unique_ptr<ControlClient>> ControlClient::open(EventLoop& loop, Handler& handler,
                                                           const ControlAddress& address,
                                                           const std::string& /*name*/) {
  auto client = std::make_unique<ZmqControlClient>(loop, handler);
  PDJOB_TRY_STATUS(client->start(address));
  return std::unique_ptr<ControlClient>(std::move(client));
}

}  // namespace pdjob::net
