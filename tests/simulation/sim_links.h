// SimLinks: the connections between agents and launchers, as CurveServer and CurveClient have them.
// They are delayed by cuts, lose messages, break, and are made anew. What was under way when a
// connection broke is lost, or arrives when there is a new one already.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/random.h"
#include "launcher/simulator/sim_network.h"
#include "launcher/simulator/sim_process.h"
#include "net/zeromq/curve_channel.h"

namespace pdjob::simulation {

class SimLinks {
 public:
  SimLinks(SimLoop& loop, const SimCuts& cuts, uint64_t seed)
      : loop_(loop), cuts_(cuts), random_(seed), network_(loop, random_.next()) {}
  SimLinks(const SimLinks&) = delete;
  SimLinks& operator=(const SimLinks&) = delete;
  ~SimLinks() = default;

  std::function<bool()> loses = [] { return false; };
  // Called for each message that a launcher sends. A dead one sends nothing.
  std::function<void()> sent = [] {};

  // One server of each name.
  std::unique_ptr<net::CurveServer> serve(const std::string& name, SimProcess& launcher,
                                          net::CurveServer::Handler& handler);
  std::unique_ptr<net::CurveClient> connect(const std::string& server, SimProcess& agent,
                                            net::CurveClient::Handler& handler);

  // A connection is reset. Nothing happens if there is none.
  void break_one();
  // Connections between two hosts do not live longer than ZeroMQ's heartbeats.
  void cut(const std::string& a, const std::string& b, Duration duration);
  // A machine loses its power: the other end learns nothing.
  void silence(const SimProcess& agent);

 private:
  class Server;
  class Client;
  struct Connection;
  using Shared = std::shared_ptr<Connection>;

  void begin(Client& client);
  void dial(Client& client);
  void reset(const Shared& connection);
  // Carries bytes in one direction of a connection.
  void carry(const Shared& connection, bool up, std::function<void()> deliver);
  Instant arrival(SimChannel& channel, const SimThread& from, const SimThread& to);

  SimLoop& loop_;
  const SimCuts& cuts_;
  Random random_;
  SimNetwork network_;
  std::map<std::string, Server*> servers_;
  std::vector<std::weak_ptr<Connection>> connections_;
  uint64_t routes_ = 0;
};

}  // namespace pdjob::simulation
