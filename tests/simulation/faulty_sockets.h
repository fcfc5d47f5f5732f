// FaultySockets: simulated sockets whose connections break, go dead, wait for a cut to heal, or
// carry what a lying peer says.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "launcher/simulator/sim_network.h"
#include "launcher/simulator/sim_sockets.h"

namespace pdjob::simulation {

class FaultySockets final : public SimSockets {
 public:
  // `cuts` must outlive it; null: everybody reaches everybody. The seed draws the wire.
  FaultySockets(SimLoop& loop, uint64_t seed, const SimCuts* cuts = nullptr)
      : FaultySockets(loop, Random(seed), cuts) {}

  // Gives each new end a filter of its own.
  void each_end_says(std::function<Filter()> make) { make_filter_ = std::move(make); }

  // Both return false if there is no such connection.
  //
  // Breaks a connection: each end gets an error.
  bool reset_one();
  // Nothing passes any more over a connection of Reach::kNetwork. Its ends learn nothing until
  // `gives_up`, when TCP does.
  bool mute_one(Duration gives_up);

 private:
  FaultySockets(SimLoop& loop, Random random, const SimCuts* cuts)
      : FaultySockets(loop, draw_wire(random), random, cuts) {}
  // The wire is drawn before `random` is copied.
  FaultySockets(SimLoop& loop, const Wire& wire, const Random& random, const SimCuts* cuts)
      : SimSockets(loop, wire, random), cuts_(cuts) {}

  static Wire draw_wire(Random& random);
  std::shared_ptr<Connection> choose(bool of_network);
  Filter make_filter() override { return make_filter_ ? make_filter_() : nullptr; }
  Instant leaves(const std::string& from, const std::string& to) const override;

  const SimCuts* const cuts_;
  std::function<Filter()> make_filter_;
};

}  // namespace pdjob::simulation
