#include "net/control/control_channel.h"

#include <map>
#include <span>
#include <utility>

#include "common/log.h"
#include "net/control/wire.h"

namespace pdjob::net {

namespace {

Result<Message> decode_frame(const std::string& frame) {
  return decode(std::as_bytes(std::span(frame.data(), frame.size())));
}

class CurveControlServer final : public ControlServer, CurveServer::Handler {
 public:
  CurveControlServer(ControlServer::Handler& handler, Options options)
      : handler_(handler), options_(std::move(options)) {}

  Status start(EventLoop& loop) {
    PDJOB_TRY(server_,
              CurveServer::open(
                  loop, *this,
                  {.host = options_.host,
                   .port = options_.port,
                   .keys = options_.keys,
                   .allows = [this](const std::string& key) { return allowed_.contains(key); },
                   .use = options_.use}));
    return ok();
  }

  const std::string& endpoint() const override { return server_->endpoint(); }
  const std::string& public_key() const override { return options_.keys.public_key; }

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
    if (route != routes_.end() &&
        server_->send(route->second, encode_order(options_.launcher, message)) ==
            CurveSent::kFull) {
      log::warn("control plane: " + peer + " does not read; a message to it was dropped");
    }
  }

  // The key tells messages of a process's older incarnation from those of the newer one.
  void on_bytes(const std::string& key, const std::string& route,
                const std::string& bytes) override {
    const auto known = allowed_.find(key);
    if (known == allowed_.end()) {
      log::warn("control plane: a message of a forbidden peer was dropped");
      return;
    }
    const std::string name = known->second;
    Result<Message> message = decode_frame(bytes);
    if (!message) {
      log::warn("control plane: from " + name + ": " + message.error().message);
      return;
    }
    routes_[name] = route;  // A reconnect has a new one.
    handler_.on_message(name, std::move(*message));
  }

  void on_refused(const std::string& why, uint64_t times) override {
    log::warn("control plane: " + why + (times > 1 ? ", " + std::to_string(times) + " times" : ""));
  }

 private:
  ControlServer::Handler& handler_;
  const Options options_;
  std::map<std::string, std::string> allowed_;  // Name by public key (Z85).
  std::map<std::string, std::string> routes_;   // By name.
  std::unique_ptr<CurveServer> server_;
};

class CurveControlClient final : public ControlClient, CurveClient::Handler {
 public:
  explicit CurveControlClient(ControlClient::Handler& handler) : handler_(handler) {}

  Status start(EventLoop& loop, const ControlAddress& address) {
    auto client = CurveClient::open(loop, *this,
                                    {.endpoint = address.endpoint,
                                     .server_public_key = address.server_public_key,
                                     .keys = address.client});
    if (!client) {
      return Error{client.error().code, "control plane: " + client.error().message};
    }
    client_ = std::move(*client);
    return ok();
  }

  void send(const Message& message) override {
    const bool full = client_->send(encode(message)) != CurveSent::kQueued;
    if (full && !told_full_) {
      log::warn("control plane: the launcher does not read; messages to it are dropped");
    }
    told_full_ = full;
  }

  void on_bytes(const std::string& bytes) override {
    Result<Order> order = decode_order(std::as_bytes(std::span(bytes.data(), bytes.size())));
    if (!order) {
      log::warn("control plane: from the launcher: " + order.error().message);
      return;
    }
    if (order->launcher < launcher_) {
      log::warn("control plane: a message of an earlier launcher was dropped");
      return;
    }
    launcher_ = order->launcher;
    handler_.on_message(std::move(order->message));
  }

 private:
  ControlClient::Handler& handler_;
  uint64_t launcher_ = 0;  // The highest heard.
  bool told_full_ = false;
  std::unique_ptr<CurveClient> client_;
};

}  // namespace

Result<std::unique_ptr<ControlServer>> ControlServer::open(EventLoop& loop, Handler& handler,
                                                           const Options& options) {
  auto server = std::make_unique<CurveControlServer>(handler, options);
  PDJOB_TRY_STATUS(server->start(loop));
  return std::unique_ptr<ControlServer>(std::move(server));
}

Result<std::unique_ptr<ControlClient>> ControlClient::open(EventLoop& loop, Handler& handler,
                                                           const ControlAddress& address,
                                                           const std::string& /*name*/) {
  auto client = std::make_unique<CurveControlClient>(handler);
  PDJOB_TRY_STATUS(client->start(loop, address));
  return std::unique_ptr<ControlClient>(std::move(client));
}

}  // namespace pdjob::net
