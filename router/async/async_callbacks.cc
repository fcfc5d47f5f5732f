#include "router/async/async_callbacks.h"

#include <algorithm>

#include "common/check.h"

namespace pdjob::router {
namespace {

constexpr Duration kFirstWait = std::chrono::seconds(1);

}  // namespace

AsyncCallbacks::AsyncCallbacks(const CallbackConfig& config, size_t calls_max, uint64_t seed)
    : config_(config), calls_max_(calls_max), random_(seed), receivers_(config.allowed.size()) {}

void AsyncCallbacks::add(std::string id, const std::string& tenant, size_t receiver,
                         uint32_t attempts, Instant due) {
  if (const auto waits = waiting_.find(tenant);
      waits != waiting_.end() && waits->second >= calls_max_) {
    drop_oldest_waiting(tenant);
  }
  const uint64_t number = ++added_;
  const auto [call, is_new] = calls_.emplace(number, State{.id = std::move(id),
                                                           .tenant = tenant,
                                                           .receiver = receiver,
                                                           .attempts = attempts,
                                                           .due = due});
  wait(number, call->second);
}

void AsyncCallbacks::drop_oldest_waiting(const std::string& tenant) {
  const auto oldest = std::ranges::find_if(calls_, [&](const auto& call) {
    return !call.second.running && call.second.tenant == tenant;
  });
  if (oldest != calls_.end()) {
    wait_no_longer(oldest->first, oldest->second);
    calls_.erase(oldest);
  }
}

void AsyncCallbacks::wait(uint64_t number, const State& call) {
  receivers_.at(call.receiver).waiting.emplace(call.due, number);
  waiting_[call.tenant] += 1;
}

void AsyncCallbacks::wait_no_longer(uint64_t number, const State& call) {
  receivers_[call.receiver].waiting.erase({call.due, number});
  const auto waits = waiting_.find(call.tenant);
  waits->second -= 1;
  if (waits->second == 0) {
    waiting_.erase(waits);
  }
}

std::optional<AsyncCallbacks::Call> AsyncCallbacks::start_next(Instant now) {
  for (Receiver& receiver : receivers_) {
    if (receiver.running < config_.in_flight_max && !receiver.waiting.empty() &&
        receiver.waiting.begin()->first <= now) {
      const uint64_t number = receiver.waiting.begin()->second;
      State& call = calls_.at(number);
      wait_no_longer(number, call);
      receiver.running += 1;
      running_ += 1;
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
  wait(number, call);
  receivers_[call.receiver].running -= 1;
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

// Between half of the wait and all of it, so that calls that failed together are not retried
// together.
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
