#include "launcher/simulator/sim_control.h"

#include <span>
#include <utility>

#include "net/control/wire.h"

namespace pdjob::simulation {
namespace {

net::Message through_wire(const net::Message& message) {
  const std::string bytes = net::encode(message);
  return *net::decode(std::as_bytes(std::span(bytes)));
}

}  // namespace

class SimControl::Server final : public net::ControlServer {
 public:
  Server(SimControl& control, SimProcess& launcher, Handler& handler, uint64_t number)
      : control_(control), launcher_(launcher), handler_(handler), number_(number) {
    control_.server_ = this;
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server() override { control_.server_ = nullptr; }

  const std::string& endpoint() const override { return name_; }
  const std::string& public_key() const override { return name_; }
  void allow(const std::string& name, const std::string& client_public_key) override {
    allowed_[name] = client_public_key;
  }
  void forbid(const std::string& name) override { allowed_.erase(name); }
  void send(const std::string& peer, const net::Message& message) override;

  bool allows(const std::string& name, const std::string& key) const {
    const auto found = allowed_.find(name);
    return found != allowed_.end() && found->second == key;
  }
  SimProcess& launcher() { return launcher_; }
  void take(const std::string& peer, net::Message message) {
    handler_.on_message(peer, std::move(message));
  }

 private:
  SimControl& control_;
  SimProcess& launcher_;
  Handler& handler_;
  const uint64_t number_;
  const std::string name_ = "simulated";
  std::map<std::string, std::string> allowed_;
};

class SimControl::Client final : public net::ControlClient {
 public:
  Client(SimControl& control, SimProcess& process, Handler& handler, std::string name,
         std::string key)
      : control_(control),
        process_(process),
        handler_(handler),
        name_(std::move(name)),
        key_(std::move(key)) {
    control_.clients_[{name_, key_}] = this;
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client() override { control_.clients_.erase({name_, key_}); }

  void send(const net::Message& message) override {
    Server* const server = control_.server_;
    if (server == nullptr || control_.loses() || !server->allows(name_, key_)) {
      return;
    }
    for (int copies = control_.repeats() ? 2 : 1; copies > 0; --copies) {
      server->launcher().call_at(
          control_.arrival(up_, process_, server->launcher()),
          [server, name = name_, message = through_wire(message)] { server->take(name, message); });
    }
  }

  // Obeys no launcher with a lower number than the highest that it has heard.
  void deliver(const net::Message& message, const SimThread& from, uint64_t number) {
    process_.call_at(control_.arrival(down_, from, process_),
                     [this, number, message = through_wire(message)] {
                       if (number >= launcher_) {
                         launcher_ = number;
                         handler_.on_message(message);
                       }
                     });
  }

 private:
  SimControl& control_;
  SimProcess& process_;
  Handler& handler_;
  const std::string name_;
  const std::string key_;
  uint64_t launcher_ = 0;
  SimChannel up_;
  SimChannel down_;
};

void SimControl::Server::send(const std::string& peer, const net::Message& message) {
  const auto allowed = allowed_.find(peer);
  const auto client =
      control_.clients_.find({peer, allowed == allowed_.end() ? "" : allowed->second});
  if (!launcher_.alive() || client == control_.clients_.end() || control_.loses()) {
    return;
  }
  for (int copies = control_.repeats() ? 2 : 1; copies > 0; --copies) {
    client->second->deliver(message, launcher_, number_);
  }
  control_.sent();
}

std::unique_ptr<net::ControlServer> SimControl::serve(SimProcess& launcher,
                                                      net::ControlServer::Handler& handler,
                                                      uint64_t number) {
  return std::make_unique<Server>(*this, launcher, handler, number);
}

std::unique_ptr<net::ControlClient> SimControl::join(SimProcess& process,
                                                     net::ControlClient::Handler& handler,
                                                     const net::ProcessSpec& spec) {
  return std::make_unique<Client>(*this, process, handler, spec.name,
                                  spec.control.client.public_key);
}

}  // namespace pdjob::simulation
