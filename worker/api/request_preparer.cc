#include "worker/api/request_preparer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/limits.h"
#include "common/os/real_clock.h"

namespace pdjob::worker {

RequestPreparer::RequestPreparer(net::Loop& loop)
    : loop_(loop), inbox_(limits::kRequestsQueuedMax), outbox_(limits::kRequestsQueuedMax) {}

RequestPreparer::~RequestPreparer() {
  if (helper_ != nullptr) {
    inbox_.push_always(Stop{});
    helper_.reset();
  }
}

Status RequestPreparer::submit(uint64_t key, size_t bytes, std::unique_ptr<Preparation> work) {
  // A request may exceed the memory limit if it is the only one.
  const bool room = held_.empty() || bytes_held_ + bytes <= limits::kPreparedBytesMax;
  if (!room || held_.size() >= limits::kRequestsQueuedMax) {
    return Error{ErrorCode::kOverloaded, "this worker prepares as many requests as it can hold"};
  }
  if (helper_ == nullptr) {
    helper_ = loop_.make_helper("prepare");
  }
  const uint64_t ticket = next_ticket_++;
  const bool is_new = by_key_.emplace(key, ticket).second;
  PDJOB_CHECK(is_new, key);
  held_[ticket] = {.key = key, .bytes = bytes};
  bytes_held_ += bytes;
  // The check of held_ bounds the inbox.
  inbox_.push_always(Job{.ticket = ticket, .work = std::move(work)});
  start_run();
  return ok();
}

void RequestPreparer::start_run() {
  if (!std::exchange(runs_, true)) {
    helper_->run([this] {
      run();
      if (!stopped_) {
        loop_.post([this] { run_ended(); });
      }
    });
  }
}

// What the thread gave back has been taken, so all that is held came too late for it.
void RequestPreparer::run_ended() {
  runs_ = false;
  if (!held_.empty()) {
    start_run();
  }
}

void RequestPreparer::cancel(uint64_t key) {
  if (const auto found = by_key_.find(key); found != by_key_.end()) {
    inbox_.push_always(Cancel{found->second});
    by_key_.erase(found);
  }
}

Duration RequestPreparer::standstill() const { return step_.lasted(real_now()); }

void RequestPreparer::run() {
  std::vector<Command> commands;
  while (!stopped_) {
    commands.clear();
    inbox_.drain(commands);
    for (Command& command : commands) {
      stopped_ = stopped_ || !take(std::move(command));
    }
    if (stopped_ || turns_.empty()) {
      return;
    }
    Job job = std::move(turns_.front());
    turns_.pop_front();
    step_.begin(real_now());
    const bool done = job.work->step();
    step_.end();
    if (done) {
      give_back(std::move(job));
    } else {
      turns_.push_back(std::move(job));
    }
  }
}

bool RequestPreparer::take(Command command) {
  if (auto* job = std::get_if<Job>(&command)) {
    turns_.push_back(std::move(*job));
  } else if (const auto* cancelled = std::get_if<Cancel>(&command)) {
    const auto found = std::ranges::find(turns_, cancelled->ticket, &Job::ticket);
    if (found != turns_.end()) {
      turns_.erase(found);
      give_back({.ticket = cancelled->ticket});
    }
  }
  return !std::holds_alternative<Stop>(command);
}

void RequestPreparer::give_back(Job job) {
  outbox_.push_always(std::move(job));
  loop_.post([this] { take_done(); });
}

void RequestPreparer::take_done() {
  std::vector<Job> jobs;
  outbox_.drain(jobs);
  for (const Job& job : jobs) {
    const auto held = held_.find(job.ticket);
    PDJOB_CHECK(held != held_.end(), job.ticket);
    const uint64_t key = held->second.key;
    bytes_held_ -= held->second.bytes;
    held_.erase(held);
    const auto wanted = by_key_.find(key);
    if (wanted != by_key_.end() && wanted->second == job.ticket) {
      by_key_.erase(wanted);
      job.work->done();
    }
  }
}

}  // namespace pdjob::worker
