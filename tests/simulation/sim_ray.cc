#include "tests/simulation/sim_ray.h"

#include <algorithm>
#include <utility>

namespace pdjob::simulation {

std::map<std::string, uint32_t> SimRay::used() const {
  std::map<std::string, uint32_t> used;
  for (const auto& [key, group] : groups_) {
    for (const std::string& node : group.nodes) {
      ++used[node];
    }
  }
  return used;
}

std::string SimRay::find_node(const Group& group, size_t bundle,
                              std::map<std::string, uint32_t>& used,
                              const std::set<std::string>& taken) const {
  if (group.bundles[bundle].guest) {
    for (const auto& [submission, job] : jobs_) {
      if (job.slot == Slot(group.job, group.bundles[bundle].slot) && !job.node.empty() &&
          used[job.node] == 0) {
        return job.node;
      }
    }
    return "";
  }
  for (const auto& [node, cpus] : home_) {
    if (used[node] < cpus && !taken.contains(node)) {
      return node;
    }
  }
  return "";
}

// A new group is placed as a whole. The lost bundles of an old one come one by one.
bool SimRay::place(Group& group) {
  std::map<std::string, uint32_t> used = this->used();
  std::vector<std::string> nodes = group.nodes;
  std::set<std::string> taken(nodes.begin(), nodes.end());
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].empty()) {
      nodes[i] = find_node(group, i, used, taken);
      if (nodes[i].empty() && !group.placed) {
        return false;
      }
      ++used[nodes[i]];
      taken.insert(nodes[i]);
    }
  }
  group.placed = true;
  granted_.insert(group.job);
  return std::exchange(group.nodes, std::move(nodes)) != group.nodes;
}

void SimRay::schedule() {
  std::map<std::string, uint32_t> running;
  for (const auto& [submission, job] : jobs_) {
    running[job.cluster] += job.node.empty() ? 0 : 1;
  }
  for (auto& [submission, job] : jobs_) {
    if (job.node.empty() && running[job.cluster] < rooms_[job.cluster]) {
      ++running[job.cluster];
      job.node = "nested" + std::to_string(++made_);
    }
  }
  std::vector<Group*> in_order;
  for (auto& [key, group] : groups_) {
    in_order.push_back(&group);
  }
  std::ranges::sort(in_order, {}, &Group::number);
  for (Group* const group : in_order) {
    place(*group);
  }
  changed();
}

void SimRay::reserve(const GroupKey& key, std::vector<launcher::RayBundle> bundles) {
  Group group{.job = key.first, .bundles = std::move(bundles), .nodes = {}, .number = ++made_};
  group.nodes.resize(group.bundles.size());
  groups_[key] = std::move(group);
  schedule();
}

void SimRay::remove(const GroupKey& key) {
  if (groups_.erase(key) > 0) {
    schedule();
  }
}

void SimRay::submit(const std::string& submission, const GuestJob& job) {
  for (const auto& [other, there] : jobs_) {
    invariants_.expect(there.slot != job.slot, "a slot has one job in its guest, but there is",
                       other);
  }
  jobs_[submission] = job;
  schedule();
}

void SimRay::stop(const std::string& submission) {
  const auto job = jobs_.extract(submission);
  if (!job) {
    return;
  }
  for (auto& [key, group] : groups_) {
    std::ranges::replace(group.nodes, job.mapped().node, "");
  }
  schedule();
}

void SimRay::free_everything(const std::string& job) {
  std::erase_if(groups_, [&](const auto& each) { return each.first.first == job; });
  std::vector<std::string> ended;
  for (const auto& [submission, one] : jobs_) {
    if (one.slot.first == job && !one.node.empty()) {  // The home knows nothing of those that wait.
      ended.push_back(submission);
    }
  }
  for (const std::string& submission : ended) {
    stop(submission);
  }
  schedule();
}

void SimRay::find_keeper(const std::string& job, Duration lease) {
  keepers_.try_emplace(job, Keeper{.due = loop_.now() + lease});
}

void SimRay::renew(const std::string& job, Duration lease) {
  if (const auto keeper = keepers_.find(job); keeper != keepers_.end() && !keeper->second.ended) {
    keeper->second.due = loop_.now() + lease;
  }
}

void SimRay::expire(const std::string& job, Duration soon) {
  if (const auto keeper = keepers_.find(job); keeper != keepers_.end()) {
    keeper->second.due = std::min(keeper->second.due, loop_.now() + soon);
  }
}

void SimRay::look_at_leases() {
  for (auto& [job, keeper] : keepers_) {
    keeper.ended = keeper.ended || loop_.now() >= keeper.due;
  }
}

void SimRay::keep() {
  for (auto keeper = keepers_.begin(); keeper != keepers_.end();) {
    const auto [job, state] = *keeper++;
    if (state.ended) {
      free_everything(job);
      keepers_.erase(job);
    }
  }
  std::vector<std::string> unkept;
  for (const auto& [submission, job] : jobs_) {
    if (!job.node.empty() && !has_keeper(job.slot.first)) {
      unkept.push_back(submission);
    }
  }
  for (const std::string& submission : unkept) {
    stop(submission);
  }
}

void SimRay::set_home(const std::string& node, uint32_t cpus) {
  if (cpus > 0) {
    home_[node] = cpus;
  } else {
    home_.erase(node);
    for (auto& [key, group] : groups_) {
      std::ranges::replace(group.nodes, node, "");
    }
  }
  schedule();
}

void SimRay::set_room(const std::string& guest, uint32_t rooms) {
  rooms_[guest] = rooms;
  schedule();
}

void SimRay::lose_guest_node(uint64_t target) {
  if (!jobs_.empty()) {
    auto job = jobs_.begin();
    std::advance(job, static_cast<ptrdiff_t>(target % jobs_.size()));
    stop(std::string(job->first));
  }
}

std::map<std::string, std::string> SimRay::nodes_for(const std::string& job) const {
  std::map<std::string, std::string> nodes;
  for (const auto& [node, cpus] : home_) {
    nodes[node] = "";
  }
  for (const auto& [submission, one] : jobs_) {
    if (one.slot.first == job && !one.node.empty()) {
      nodes[one.node] = one.slot.second;
    }
  }
  return nodes;
}

bool SimRay::has_home_room() const {
  std::map<std::string, uint32_t> used = this->used();
  return std::ranges::any_of(home_,
                             [&](const auto& each) { return used[each.first] < each.second; });
}

bool SimRay::has_room(const std::string& guest) const {
  const auto running = std::ranges::count_if(jobs_, [&](const auto& each) {
    return each.second.cluster == guest && !each.second.node.empty();
  });
  return static_cast<uint32_t>(running) < rooms_.at(guest);
}

std::string SimRay::holds(const std::string& job) const {
  std::string text;
  for (const auto& [key, group] : groups_) {
    text += key.first == job ? " " + key.second : "";
  }
  for (const auto& [submission, one] : jobs_) {
    text += one.slot.first == job ? " " + submission : "";
  }
  return text;
}

}  // namespace pdjob::simulation
