#include "router/async_requests.h"

namespace pdjob::router {

bool AsyncRequests::submit(const std::string& id, const std::string& tenant) {
  if (requests_.size() >= config_.queue_max) {
    return false;
  }
  requests_.emplace(id, Request{.tenant = tenant});
  return true;
}

void AsyncRequests::enqueue(const std::string& id, const std::string& tenant) {
  requests_[id] = {.tenant = tenant, .state = State::kQueued};
  queue_.push_back(id);
}

std::optional<std::string> AsyncRequests::start_next() {
  while (running_ < config_.in_flight_max && !queue_.empty()) {
    std::string id = std::move(queue_.front());
    queue_.pop_front();
    const auto found = requests_.find(id);
    if (found != requests_.end()) {
      found->second.state = State::kRunning;
      running_ += 1;
      return id;
    }
  }
  return std::nullopt;
}

void AsyncRequests::end(const std::string& id) {
  const auto found = requests_.find(id);
  if (found != requests_.end()) {
    running_ -= found->second.state == State::kRunning ? 1 : 0;
    requests_.erase(found);
  }
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
