// RequestQueue: the requests that wait for sequences, in order of arrival. The queue has a maximum
// length, each request a deadline. It refuses a request that must not wait. So every
// request gets exactly one answer. Requests in the background fill the queue for each other only.
// Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "worker/core/worker_core.h"

namespace pdjob::worker {

class RequestQueue {
 public:
  // Refusals name the worker as `worker`, for example "prefill worker".
  RequestQueue(std::string worker, uint32_t requests_max);

  // Queues the request, or fails it.
  void push(const RequestArrived& request, std::vector<Effect>& effects);
  // Queues a request that has given way: before all others, even if the queue is full or closed.
  void put_back(RequestArrived request);
  // Returns false if the request does not wait here.
  bool cancel(RequestId request, std::vector<Effect>& effects);
  // Fails requests that have waited past their deadline.
  void expire(Instant now, std::vector<Effect>& effects);
  // From now on every push is refused.
  void close() { closed_ = true; }

  bool holds(RequestId request) const;
  bool empty() const { return waiting_.empty(); }
  // In order of arrival.
  const std::deque<RequestArrived>& waiting() const { return waiting_; }
  // The same, but those in the background come last, and before that those whose client's request
  // holds the fewest sequences come first. `held` has their number by group_of(). Valid until the
  // queue changes.
  std::vector<const RequestArrived*> in_turn(const std::map<RequestId, uint32_t>& held) const;
  // Requires: the request waits here.
  RequestArrived take(RequestId request);
  // Does nothing if the request is unknown.
  void set_awaited(RequestId request, bool awaited);

  bool closed() const { return closed_; }
  uint32_t size() const { return static_cast<uint32_t>(waiting_.size()); }
  uint32_t in_background() const;
  uint64_t prompt_tokens() const;  // Without the background's.
  Instant next_wakeup() const;

 private:
  std::deque<RequestArrived>::iterator find(RequestId request);

  const std::string worker_;
  const uint32_t requests_max_;
  std::deque<RequestArrived> waiting_;
  bool closed_ = false;
};

}  // namespace pdjob::worker
