#include "tests/simulation/sim_links.h"

#include <algorithm>
#include <utility>

namespace pdjob::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kHeartbeatsGiveUp = seconds(10);

}  // namespace

// An end that is gone is null.
struct SimLinks::Connection {
  std::string route;
  Server* server = nullptr;
  Client* client = nullptr;
  bool broken = false;
  struct Direction {
    SimChannel channel;
    bool lost = false;  // After the break.
    Duration late{};
  };
  Direction up;
  Direction down;
};

class SimLinks::Server final : public net::CurveServer {
 public:
  Server(SimLinks& links, std::string name, SimProcess& launcher, Handler& handler)
      : links_(links), name_(std::move(name)), launcher_(launcher), handler_(handler) {
    links_.servers_[name_] = this;
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server() override {
    links_.servers_.erase(name_);
    for (const auto& each : links_.connections_) {
      if (const Shared connection = each.lock();
          connection != nullptr && connection->server == this) {
        connection->server = nullptr;
        links_.reset(connection);
      }
    }
  }

  const std::string& endpoint() const override { return name_; }
  net::CurveSent send(const std::string& route, const std::string& bytes) override;

  SimProcess& launcher() { return launcher_; }
  void accept(const Shared& connection) { routes_[connection->route] = connection; }
  void take(const std::string& route, const std::string& bytes) {
    handler_.on_bytes("an agent", route, bytes);
  }
  void forget(const std::string& route) {
    if (const auto found = routes_.extract(route)) {
      found.mapped()->server = nullptr;
      handler_.on_disconnected();
    }
  }

 private:
  SimLinks& links_;
  const std::string name_;
  SimProcess& launcher_;
  Handler& handler_;
  std::map<std::string, Shared> routes_;
};

class SimLinks::Client final : public net::CurveClient {
 public:
  Client(SimLinks& links, std::string server, SimProcess& agent, Handler& handler)
      : links_(links), server_(std::move(server)), agent_(agent), handler_(handler) {}
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client() override {
    if (const Shared connection = std::exchange(connection_, nullptr)) {
      connection->client = nullptr;
      links_.reset(connection);
    }
  }

  net::CurveSent send(const std::string& bytes) override;

  const std::string& server() const { return server_; }
  SimProcess& agent() { return agent_; }
  const Shared& connection() const { return connection_; }
  void begin(const Shared& connection) { connection_ = connection; }
  void connected(const Shared& connection) {
    if (connection == connection_ && !connection->broken) {
      connected_ = true;
      handler_.on_connected();
    }
  }
  void disconnected(const Shared& connection) {
    if (connection == connection_) {
      connection_ = nullptr;
      connection->client = nullptr;
      if (std::exchange(connected_, false)) {
        handler_.on_disconnected();
      }
      links_.begin(*this);
    }
  }
  void take(const std::string& bytes) { handler_.on_bytes(bytes); }
  void vanish() {
    connection_ = nullptr;
    connected_ = false;
  }

 private:
  SimLinks& links_;
  const std::string server_;
  SimProcess& agent_;
  Handler& handler_;
  Shared connection_;
  bool connected_ = false;
};

net::CurveSent SimLinks::Server::send(const std::string& route, const std::string& bytes) {
  const auto found = routes_.find(route);
  if (found == routes_.end()) {
    return net::CurveSent::kGone;
  }
  if (!launcher_.alive()) {
    return net::CurveSent::kQueued;
  }
  Client* const client = found->second->client;
  if (client != nullptr && !found->second->broken && !links_.loses()) {
    // A dead process runs nothing, so the client lives when it is called.
    links_.carry(found->second, false, [client, bytes] { client->take(bytes); });
  }
  links_.sent();
  return net::CurveSent::kQueued;
}

net::CurveSent SimLinks::Client::send(const std::string& bytes) {
  if (!connected_) {
    return net::CurveSent::kFull;
  }
  Server* const server = connection_->server;
  if (server != nullptr && !connection_->broken && !links_.loses()) {
    links_.carry(connection_, true,
                 [&links = links_, name = server_, server, route = connection_->route, bytes] {
                   if (links.servers_.contains(name) && links.servers_.at(name) == server) {
                     server->take(route, bytes);
                   }
                 });
  }
  return net::CurveSent::kQueued;
}

// Later than a turn takes, so that the order stays.
Instant SimLinks::arrival(SimChannel& channel, const SimThread& from, const SimThread& to) {
  channel.last_arrival =
      std::max(channel.last_arrival + SimThread::kTurnMax,
               cuts_.passes(from.host(), to.host(), from.now()) + network_.delay());
  return channel.last_arrival;
}

void SimLinks::carry(const Shared& connection, bool up, std::function<void()> deliver) {
  Connection::Direction& direction = up ? connection->up : connection->down;
  SimProcess& launcher = connection->server->launcher();
  SimProcess& agent = connection->client->agent();
  const Instant when = up ? arrival(direction.channel, agent, launcher)
                          : arrival(direction.channel, launcher, agent);
  SimProcess& to = up ? launcher : agent;
  to.call_at(when, [connection, up, &to, deliver = std::move(deliver)] {
    const Connection::Direction& now = up ? connection->up : connection->down;
    if (!connection->broken) {
      deliver();
    } else if (!now.lost) {
      to.post_at(to.now() + now.late, deliver);
    }
  });
}

void SimLinks::begin(Client& client) {
  client.agent().call_at(loop_.now() + milliseconds(50 + random_.below(950)),
                         [this, &client] { dial(client); });
}

void SimLinks::dial(Client& client) {
  const auto found = servers_.find(client.server());
  if (found == servers_.end()) {
    begin(client);
    return;
  }
  Server& server = *found->second;
  auto connection = std::make_shared<Connection>();
  connection->route = "route " + std::to_string(++routes_);
  connection->server = &server;
  connection->client = &client;
  client.begin(connection);
  std::erase_if(connections_, [](const auto& each) { return each.expired(); });
  connections_.push_back(connection);
  carry(connection, true, [this, connection] {
    if (connection->server == nullptr || connection->client == nullptr || connection->broken) {
      return;
    }
    connection->server->accept(connection);
    carry(connection, false, [connection] {
      if (connection->client != nullptr) {
        connection->client->connected(connection);
      }
    });
  });
}

// Each end learns of it when it can.
void SimLinks::reset(const Shared& connection) {
  if (std::exchange(connection->broken, true)) {
    return;
  }
  for (Connection::Direction* direction : {&connection->up, &connection->down}) {
    direction->lost = random_.chance(0.5);
    direction->late = random_.chance(0.5) ? milliseconds(random_.below(1500)) : milliseconds(0);
  }
  if (Server* const server = connection->server) {
    server->launcher().call_at(loop_.now() + network_.delay(), [connection] {
      if (connection->server != nullptr) {
        connection->server->forget(connection->route);
      }
    });
  }
  if (Client* const client = connection->client) {
    client->agent().call_at(loop_.now() + network_.delay(), [connection] {
      if (connection->client != nullptr) {
        connection->client->disconnected(connection);
      }
    });
  }
}

void SimLinks::break_one() {
  std::vector<Shared> there;
  for (const auto& each : connections_) {
    if (Shared connection = each.lock(); connection != nullptr && !connection->broken) {
      there.push_back(std::move(connection));
    }
  }
  if (!there.empty()) {
    reset(there[random_.below(there.size())]);
  }
}

void SimLinks::cut(const std::string& a, const std::string& b, Duration duration) {
  if (duration <= kHeartbeatsGiveUp) {
    return;
  }
  loop_.after(kHeartbeatsGiveUp, [this, a, b] {
    for (const auto& each : connections_) {
      const Shared connection = each.lock();
      if (connection == nullptr || connection->server == nullptr || connection->client == nullptr) {
        continue;
      }
      const std::string& launcher = connection->server->launcher().host();
      const std::string& agent = connection->client->agent().host();
      if ((launcher == a && agent == b) || (launcher == b && agent == a)) {
        reset(connection);
      }
    }
  });
}

void SimLinks::silence(const SimProcess& agent) {
  for (const auto& each : connections_) {
    const Shared connection = each.lock();
    if (connection != nullptr && connection->client != nullptr &&
        &connection->client->agent() == &agent) {
      connection->client->vanish();
      connection->client = nullptr;
      loop_.after(kHeartbeatsGiveUp, [this, connection] { reset(connection); });
    }
  }
}

std::unique_ptr<net::CurveServer> SimLinks::serve(const std::string& name, SimProcess& launcher,
                                                  net::CurveServer::Handler& handler) {
  return std::make_unique<Server>(*this, name, launcher, handler);
}

std::unique_ptr<net::CurveClient> SimLinks::connect(const std::string& server, SimProcess& agent,
                                                    net::CurveClient::Handler& handler) {
  auto client = std::make_unique<Client>(*this, server, agent, handler);
  begin(*client);
  return client;
}

}  // namespace pdjob::simulation
