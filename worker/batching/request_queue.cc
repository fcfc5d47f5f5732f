#include "worker/batching/request_queue.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace pdjob::worker {
namespace {

void refuse(RequestId request, ErrorCode code, std::string message, std::vector<Effect>& effects) {
  effects.push_back(FailRequest{request, {code, std::move(message)}});
  effects.push_back(EndRequest{request});
}

}  // namespace

RequestQueue::RequestQueue(std::string worker, uint32_t requests_max)
    : worker_(std::move(worker)), requests_max_(requests_max) {}

void RequestQueue::push(const RequestArrived& request, std::vector<Effect>& effects) {
  if (closed_) {
    return refuse(request.request, ErrorCode::kUnavailable, "this " + worker_ + " is shutting down",
                  effects);
  }
  // The background keeps nobody out.
  const uint32_t before = request.background ? size() : size() - in_background();
  if (before >= requests_max_) {
    return refuse(request.request, ErrorCode::kOverloaded, "this " + worker_ + "'s queue is full",
                  effects);
  }
  waiting_.push_back(request);
}

// It has waited its turn once, and its client has the beginning of the reply.
void RequestQueue::put_back(RequestArrived request) {
  request.deadline = kNever;
  waiting_.push_front(std::move(request));
}

bool RequestQueue::cancel(RequestId request, std::vector<Effect>& effects) {
  const auto found = find(request);
  if (found == waiting_.end()) {
    return false;
  }
  waiting_.erase(found);
  effects.push_back(EndRequest{request});
  return true;
}

std::vector<const RequestArrived*> RequestQueue::in_turn(
    const std::map<RequestId, uint32_t>& held) const {
  std::vector<const RequestArrived*> requests;
  for (const RequestArrived& request : waiting_) {
    requests.push_back(&request);
  }
  std::ranges::stable_sort(requests, {}, [&held](const RequestArrived* request) {
    const auto found = held.find(group_of(*request));
    return std::pair(request->background, found == held.end() ? 0 : found->second);
  });
  return requests;
}

RequestArrived RequestQueue::take(RequestId request) {
  const auto found = find(request);
  PDJOB_CHECK(found != waiting_.end(), request);
  RequestArrived taken = *found;
  waiting_.erase(found);
  return taken;
}

bool RequestQueue::holds(RequestId request) const {
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [&](const RequestArrived& waiting) { return waiting.request == request; });
}

void RequestQueue::set_awaited(RequestId request, bool awaited) {
  if (const auto found = find(request); found != waiting_.end()) {
    found->awaited = awaited;
  }
}

std::deque<RequestArrived>::iterator RequestQueue::find(RequestId request) {
  return std::find_if(waiting_.begin(), waiting_.end(),
                      [&](const RequestArrived& waiting) { return waiting.request == request; });
}

void RequestQueue::expire(Instant now, std::vector<Effect>& effects) {
  std::erase_if(waiting_, [&](const RequestArrived& waiting) {
    if (waiting.deadline > now) {
      return false;
    }
    refuse(waiting.request, ErrorCode::kTimeout, "waited too long for a free sequence", effects);
    return true;
  });
}

uint64_t RequestQueue::prompt_tokens() const {
  uint64_t tokens = 0;
  for (const RequestArrived& waiting : waiting_) {
    tokens += waiting.background ? 0 : waiting.prompt_tokens;
  }
  return tokens;
}

uint32_t RequestQueue::in_background() const {
  return static_cast<uint32_t>(std::ranges::count_if(waiting_, &RequestArrived::background));
}

Instant RequestQueue::next_wakeup() const {
  Instant next = kNever;
  for (const RequestArrived& waiting : waiting_) {
    next = std::min(next, waiting.deadline);
  }
  return next;
}

}  // namespace pdjob::worker
