#include "router/async_callbacks.h"

#include <algorithm>

#include "common/check.h"

namespace pdjob::router {
namespace {

constexpr Duration kFirstWait = std::chrono::seconds(1);

}  // namespace

AsyncCallbacks::AsyncCallbacks(const CallbackConfig& config, size_t calls_max, uint64_t seed)
    : config_(config), calls_max_(calls_max), random_(seed), receivers_(config.allowed.size()) {}

void AsyncCallbacks::add(std::string id, size_t receiver, uint32_t attempts, Instant due) {
  if (waiting() >= calls_max_) {
    drop_oldest_waiting();
  }
  const uint64_t number = ++added_;
  receivers_.at(receiver).waiting.emplace(due, number);
  calls_.emplace(
      number, State{.id = std::move(id), .receiver = receiver, .attempts = attempts, .due = due});
}

void AsyncCallbacks::drop_oldest_waiting() {
  const auto oldest =
      std::ranges::find_if(calls_, [](const auto& call) { return !call.second.running; });
  if (oldest != calls_.end()) {
    receivers_[oldest->second.receiver].waiting.erase({oldest->second.due, oldest->first});
    calls_.erase(oldest);
  }
}

std::optional<AsyncCallbacks::Call> AsyncCallbacks::start_next(Instant now) {
  for (Receiver& receiver : receivers_) {
    if (receiver.running < config_.in_flight_max && !receiver.waiting.empty() &&
        receiver.waiting.begin()->first <= now) {
      const uint64_t number = receiver.waiting.begin()->second;
      receiver.waiting.erase(receiver.waiting.begin());
      receiver.running += 1;
      running_ += 1;
      State& call = calls_.at(number);
      call.running = true;
      return Call{.number = number, .id = call.id};
    }
  }
  return std::nullopt;
}

AsyncCallbacks::Ended AsyncCallbacks::end(uint64_t number, bool taken, Instant now) {
  State& call = calls_.at(number);
  Ended ended{.attempts = call.attempts + 1};
  if (taken || ended.attempts >= config_.attempts) {
    ended.outcome = taken ? Outcome::kDelivered : Outcome::kFailed;
    forget(number);
    return ended;
  }
  ended.outcome = Outcome::kAgain;
  ended.wait = wait_after(ended.attempts);
  call.attempts = ended.attempts;
  call.due = now + ended.wait;
  call.running = false;
  Receiver& receiver = receivers_[call.receiver];
  receiver.waiting.emplace(call.due, number);
  receiver.running -= 1;
  running_ -= 1;
  return ended;
}

void AsyncCallbacks::forget(uint64_t number) {
  const auto call = calls_.find(number);
  PDJOB_CHECK(call != calls_.end() && call->second.running, number);
  receivers_[call->second.receiver].running -= 1;
  running_ -= 1;
  calls_.erase(call);
}

// Between half of it and all, so that those who failed together do not come again together.
Duration AsyncCallbacks::wait_after(uint32_t attempts) {
  const uint32_t doublings = std::min(attempts - 1, uint32_t{20});
  const Duration wait = std::min(kFirstWait * (int64_t{1} << doublings), config_.wait_max);
  return wait / 2 + std::chrono::duration_cast<Duration>(wait / 2 * random_.unit());
}

Instant AsyncCallbacks::next_due() const {
  Instant next = kNever;
  for (const Receiver& receiver : receivers_) {
    if (receiver.running < config_.in_flight_max && !receiver.waiting.empty()) {
      next = std::min(next, receiver.waiting.begin()->first);
    }
  }
  return next;
}

}  // namespace pdjob::router
