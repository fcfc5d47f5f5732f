// SimControl: the control plane of a simulated job. Messages travel as bytes, in order. Some are
// lost, as with ZeroMQ when a peer does not read or connects anew, and some come twice.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "launcher/simulator/sim_network.h"
#include "launcher/simulator/sim_process.h"
#include "net/control/control_channel.h"
#include "net/control/process_spec.h"

namespace pdjob::simulation {

class SimControl {
 public:
  SimControl(SimLoop& loop, const SimCuts& cuts, uint64_t seed)
      : cuts_(cuts), network_(loop, seed) {}

  std::function<bool()> loses = [] { return false; };
  std::function<bool()> repeats = [] { return false; };

  // Called for each message that a launcher sends.
  std::function<void()> sent = [] {};

  // `number`: of the run's launchers, which one this is. A dead one sends nothing.
  std::unique_ptr<net::ControlServer> serve(SimProcess& launcher,
                                            net::ControlServer::Handler& handler,
                                            uint64_t number = 0);
  // As SimScene::join. Nobody hears a client with a key that the server does not allow.
  std::unique_ptr<net::ControlClient> join(SimProcess& process,
                                           net::ControlClient::Handler& handler,
                                           const net::ProcessSpec& spec);

 private:
  class Server;
  class Client;

  // Later than a turn takes, so that the order stays.
  Instant arrival(SimChannel& channel, const SimThread& from, const SimThread& to) {
    channel.last_arrival =
        std::max(channel.last_arrival, cuts_.passes(from.host(), to.host(), from.now()) +
                                           SimThread::kTurnMax + network_.delay());
    return channel.last_arrival;
  }

  const SimCuts& cuts_;
  SimNetwork network_;
  Server* server_ = nullptr;
  std::map<std::pair<std::string, std::string>, Client*> clients_;  // By name and key.
};

}  // namespace pdjob::simulation
