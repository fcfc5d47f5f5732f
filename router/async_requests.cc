#include "router/async_requests.h"

#include <iterator>
#include <utility>

namespace pdjob::router {

bool AsyncRequests::submit(const std::string& id, const std::string& tenant) {
  if (requests_.size() >= config_.queue_max) {
    return false;
  }
  requests_.emplace(id, Request{.tenant = tenant});
  return true;
}

void AsyncRequests::enqueue(const std::string& id, const std::string& tenant) {
  requests_[id] = {.tenant = tenant, .state = State::kQueued, .arrival = ++arrivals_};
  queue_.emplace(arrivals_, id);
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
  return queue_.empty() ? std::nullopt : std::optional(start_first(queue_));
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

std::string AsyncRequests::start_first(Queue& queue) {
  std::string id = queue.begin()->second;
  Request& request = requests_.at(id);
  unqueue(request);  // May end the queue.
  request.held.reset();
  request.state = State::kRunning;
  running_ += 1;
  return id;
}

void AsyncRequests::unqueue(const Request& request) {
  if (!request.held) {
    queue_.erase(request.arrival);
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
