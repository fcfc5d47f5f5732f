#include "router/async/async_requests.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace pdjob::router {

bool AsyncRequests::submit(const std::string& id, const std::string& tenant,
                           const Outside& outside) {
  if (draining_ || outside.store_full) {
    return false;
  }
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

std::optional<std::string> AsyncRequests::start_next(const Outside& outside) {
  if (draining_ || !outside.usable || outside.store_full || running_ >= config_.in_flight_max) {
    return std::nullopt;
  }
  for (auto& [model, queue] : held_) {
    if (outside.serves(model)) {
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

AsyncRequests::Verdict AsyncRequests::decide(const std::string& id,
                                             const std::optional<Stored>& stored,
                                             const Outside& outside) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) {
    return Verdict::kDropped;  // It was cancelled.
  }
  PDJOB_CHECK(found->second.state == State::kRunning, id);
  if (draining_ || !stored) {
    end(id);  // The next router may run it.
    return Verdict::kDropped;
  }
  if (!stored->valid) {
    return Verdict::kRefuse;
  }
  if (!outside.serves(stored->model)) {
    hold(id, found->second, stored->model);
    return Verdict::kHeld;
  }
  return Verdict::kRun;
}

Instant AsyncRequests::next_try(const Outside& outside, Instant now) const {
  const bool waits = !held_.empty() || !outside.usable || outside.store_full;
  return waits && !requests_.empty() && !draining_ ? now + kPatience : kNever;
}

void AsyncRequests::hold(const std::string& id, Request& request, const std::string& model) {
  request.state = State::kQueued;
  request.held = model;
  running_ -= 1;
  held_[model].emplace(request.arrival, id);
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

}  // namespace pdjob::router
