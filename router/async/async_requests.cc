#include "router/async/async_requests.h"

#include <algorithm>
#include <utility>

namespace pdjob::router {

bool AsyncRequests::submit(const std::string& id, const std::string& tenant) {
  const size_t room = config_.queue_max - std::min<size_t>(requests_.size(), config_.queue_max);
  if (room == 0 || (several_tenants_ && tenants_[tenant].alive >= room)) {
    return false;
  }
  add(id, {.tenant = tenant});
  return true;
}

void AsyncRequests::add(const std::string& id, Request request) {
  const auto [row, is_new] = requests_.insert_or_assign(id, std::move(request));
  tenants_[row->second.tenant].alive += is_new ? 1 : 0;
}

void AsyncRequests::enqueue(const std::string& id, const std::string& tenant) {
  add(id, {.tenant = tenant, .state = State::kQueued, .arrival = ++arrivals_});
  tenants_[tenant].queue.emplace(arrivals_, id);
}

std::optional<std::string> AsyncRequests::start_next(
    const std::function<bool(const std::string& model)>& served) {
  if (running_ >= config_.in_flight_max) {
    return std::nullopt;
  }
  for (auto& [model, queue] : held_) {
    if (served(model)) {
      return start_first(queue);
    }
  }
  const Tenant* next = nullptr;
  for (const auto& [name, tenant] : tenants_) {
    if (!tenant.queue.empty() && (next == nullptr || tenant.served < next->served)) {
      next = &tenant;
    }
  }
  return next == nullptr ? std::nullopt : std::optional(start_first(next->queue));
}

size_t AsyncRequests::queued() const {
  size_t queued = 0;
  for (const auto& [name, tenant] : tenants_) {
    queued += tenant.queue.size();
  }
  return queued;
}

void AsyncRequests::hold(const std::string& id, const std::string& model) {
  const auto found = requests_.find(id);
  if (found != requests_.end() && found->second.state == State::kRunning) {
    found->second.state = State::kQueued;
    found->second.held = model;
    running_ -= 1;
    held_[model].emplace(found->second.arrival, id);
  }
}

std::string AsyncRequests::start_first(const Queue& queue) {
  std::string id = queue.begin()->second;
  Request& request = requests_.at(id);
  tenants_[request.tenant].served = ++starts_;
  unqueue(request);  // May delete `queue`.
  request.held.reset();
  request.state = State::kRunning;
  running_ += 1;
  return id;
}

void AsyncRequests::unqueue(const Request& request) {
  if (!request.held) {
    tenants_.at(request.tenant).queue.erase(request.arrival);
    return;
  }
  const auto held = held_.find(*request.held);
  held->second.erase(request.arrival);
  if (held->second.empty()) {
    held_.erase(held);
  }
}

void AsyncRequests::end(const std::string& id) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) {
    return;
  }
  if (found->second.state == State::kQueued) {
    unqueue(found->second);
  }
  running_ -= found->second.state == State::kRunning ? 1 : 0;
  tenants_.at(found->second.tenant).alive -= 1;
  requests_.erase(found);
}

std::optional<AsyncRequests::State> AsyncRequests::state(const std::string& id,
                                                         const std::string& tenant) const {
  const auto found = requests_.find(id);
  return found == requests_.end() || found->second.tenant != tenant
             ? std::nullopt
             : std::optional(found->second.state);
}

const std::string* AsyncRequests::tenant_of(const std::string& id) const {
  const auto found = requests_.find(id);
  return found == requests_.end() ? nullptr : &found->second.tenant;
}

}  // namespace pdjob::router
