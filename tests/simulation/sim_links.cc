#include "tests/simulation/sim_links.h"

#include "tests/simulation/sim_worker.h"
#include "tests/simulation/sim_world.h"

namespace pdjob::simulation {

LinkId SimLinks::open(Incarnation sender, Incarnation receiver) {
  const LinkId id{++links_made_};
  links_[id] = {.sender = sender, .receiver = receiver};
  if (world_.find(sender) == nullptr) {
    close_at_sender(id);  // The sender is dead.
  }
  return id;
}

Incarnation SimLinks::receiver(LinkId id) const {
  const auto found = links_.find(id);
  return found == links_.end() ? Incarnation{} : found->second.receiver;
}

void SimLinks::to_sender(LinkId id, Message message) {
  if (const auto found = links_.find(id); found != links_.end()) {
    SimLink& link = found->second;
    world_.post(world_.network().arrival(link.to_sender), link.sender, std::move(message));
  }
}

void SimLinks::to_receiver(LinkId id, Message message) {
  if (const auto found = links_.find(id); found != links_.end()) {
    SimLink& link = found->second;
    world_.post(world_.network().arrival(link.to_receiver), link.receiver, std::move(message));
  }
}

void SimLinks::close_at_sender(LinkId id) {
  to_receiver(id, [id](SimWorker& worker) { worker.receiver().on_closed(id); });
  links_.erase(id);
}

void SimLinks::close_at_receiver(LinkId id) {
  give_up_at_receiver(id);
  links_.erase(id);
}

void SimLinks::give_up_at_receiver(LinkId id) {
  to_sender(id, [id](SimWorker& worker) { worker.sender().on_closed(id); });
}

void SimLinks::process_died(Incarnation incarnation) {
  for (const LinkId id : all()) {
    const SimLink& link = links_.at(id);
    if (link.sender == incarnation) {
      close_at_sender(id);
    } else if (link.receiver == incarnation) {
      close_at_receiver(id);
    }
  }
}

std::vector<LinkId> SimLinks::all() const {
  std::vector<LinkId> ids;
  for (const auto& [id, link] : links_) {
    ids.push_back(id);
  }
  return ids;
}

}  // namespace pdjob::simulation
