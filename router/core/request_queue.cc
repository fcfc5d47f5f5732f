#include "router/core/request_queue.h"

namespace pdjob::router {

RequestQueue::Rank RequestQueue::place_of(const RequestFacts& facts) {
  return {.below = UINT32_MAX - facts.priority,
          .begins =
              shares_.begin(facts.tenant, facts.weight, facts.prompt_tokens + facts.output_tokens),
          .arrival = ++arrivals_};
}

void RequestQueue::add(const std::string& model, const Rank& place, RequestId id) {
  queues_[model].emplace(place, id);
}

void RequestQueue::remove(const std::string& model, const Rank& place) {
  const auto queue = queues_.find(model);
  if (queue != queues_.end() && queue->second.erase(place) > 0 && queue->second.empty()) {
    queues_.erase(queue);
  }
}

bool RequestQueue::contains(const std::string& model, const Rank& place) const {
  const auto queue = queues_.find(model);
  return queue != queues_.end() && queue->second.contains(place);
}

size_t RequestQueue::size() const {
  size_t size = 0;
  for (const auto& [model, queue] : queues_) {
    size += queue.size();
  }
  return size;
}

std::vector<std::string> RequestQueue::models() const {
  std::vector<std::string> models;
  for (const auto& [model, queue] : queues_) {
    models.push_back(model);
  }
  return models;
}

std::optional<RequestId> RequestQueue::next(const std::string& model, const Rank& after) const {
  const auto queue = queues_.find(model);
  if (queue == queues_.end()) {
    return std::nullopt;
  }
  const auto next = queue->second.upper_bound(after);
  return next == queue->second.end() ? std::nullopt : std::optional(next->second);
}

std::optional<RequestId> RequestQueue::displaced_by(const std::string& model,
                                                    const Rank& place) const {
  const auto own = queues_.find(model);
  auto longest = own;  // A tie goes to its own queue: the request is one more.
  for (auto queue = queues_.begin(); queue != queues_.end(); ++queue) {
    if (longest == queues_.end() || queue->second.size() > longest->second.size()) {
      longest = queue;
    }
  }
  if (longest == queues_.end()) {
    return std::nullopt;  // queue_max is 0.
  }
  const auto& [last, id] = *longest->second.rbegin();
  return longest == own && place > last ? std::nullopt : std::optional(id);
}

}  // namespace pdjob::router
