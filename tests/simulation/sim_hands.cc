#include "tests/simulation/sim_hands.h"

#include <algorithm>
#include <utility>

namespace pdjob::simulation {

using std::chrono::milliseconds;

SimHands::SimHands(SimLoop& loop, SimCluster& cluster, uint64_t seed)
    : loop_(loop), cluster_(cluster), random_(seed), link_authority_("simulated") {
  cluster_.report_to(*this);
}

void SimHands::start(std::vector<SimCluster::Order> orders) {
  orders_ = std::move(orders);
  for (size_t i = 0; i < orders_.size(); ++i) {
    start(i);
  }
}

void SimHands::start(size_t index) {
  if (stopping_) {
    return;
  }
  SimCluster::Order& order = orders_[index];
  order.incarnation = {++starts_};
  order.spec.engine_id = order.spec.name + "." + std::to_string(starts_);
  if (order.spec.role != net::Role::kRouter) {
    order.spec.link_keys = encode(link_authority_.issue(order.spec.engine_id));
  }
  running_[order.spec.name] = order.spec.engine_id;
  cluster_.spawn(order);
}

void SimHands::on_cluster_event(const launcher::ClusterEvent& event) {
  launcher::Incarnation ended;
  if (const auto* exited = std::get_if<launcher::ProcessExited>(&event)) {
    ended = exited->incarnation;
  } else if (const auto* failed = std::get_if<launcher::SpawnFailed>(&event)) {
    ended = failed->incarnation;
  }
  for (size_t i = 0; i < orders_.size(); ++i) {
    if (ended.value > 0 && orders_[i].incarnation == ended) {
      running_.erase(orders_[i].spec.name);
      loop_.after(milliseconds(100 + random_.below(2000)), [this, i] { start(i); });
    }
  }
}

void SimHands::stop() {
  stopping_ = true;
  for (const SimCluster::Order& order : orders_) {
    cluster_.signal(order.node, order.incarnation, launcher::Signal::kTerminate);
  }
}

}  // namespace pdjob::simulation
