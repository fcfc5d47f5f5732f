#include "net/control/job_member.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <utility>

#include <unistd.h>

#include "common/log.h"

namespace pdjob::net {
namespace {

constexpr Duration kLingerInterval = std::chrono::milliseconds(5);

}  // namespace

JobMember::JobMember(Loop& loop, Handler& handler, std::string name, Duration drain_timeout)
    : loop_(loop), handler_(&handler), name_(std::move(name)), drain_timeout_(drain_timeout) {}

JobMember::~JobMember() {
  for (const TimerId timer : {heartbeat_, deadline_, linger_}) {
    loop_.cancel(timer);
  }
}

Result<std::unique_ptr<JobMember>> JobMember::open(EventLoop& loop, Handler& handler,
                                                   const ProcessSpec& spec,
                                                   Duration drain_timeout) {
  auto member = std::make_unique<JobMember>(loop, handler, spec.name, drain_timeout);
  member->signals_.emplace(loop, std::array{SIGTERM, SIGINT},
                           [opened = member.get()](int /*signal*/) { opened->stop(); });
  member->watch_cores([] { return run_delays(getpid()); });
  if (!spec.control.empty()) {
    PDJOB_TRY(auto launcher, ControlClient::open(loop, *member, spec.control, spec.name));
    member->attach(std::move(launcher));
  }
  return member;
}

void JobMember::serve(WorkerEntry self) {
  self_ = std::move(self);
  if (launcher_) {
    beat();
  }
}

void JobMember::change(WorkerEntry self) {
  self_ = std::move(self);
  registration_ += 1;
  acknowledged_ = false;
  if (launcher_) {
    register_self();
  }
}

void JobMember::register_self() {
  launcher_->send(Registered{.worker = self_, .pid = getpid(), .number = registration_});
}

void JobMember::beat() {
  if (!acknowledged_) {
    register_self();
  }
  HeartbeatSent message{.name = name_, .engine_id = self_.engine_id, .sequence = ++beats_};
  add_waits(message);
  message.load = handler_->current_load();
  handler_->add_to_heartbeat(message);
  launcher_->send(message);
  heartbeat_ = loop_.call_at(loop_.now() + kHeartbeatInterval, [this] { beat(); });
}

void JobMember::add_waits(HeartbeatSent& message) {
  if (!delays_) {
    return;
  }
  const Instant now = loop_.exact_now();
  RunDelays delays = delays_();
  if (const auto loop = delays.find(getpid()); loop != delays.end()) {
    message.waited_us = static_cast<uint64_t>(loop->second / std::chrono::microseconds(1));
  }
  if (told_at_ < now) {
    const Duration longest = std::min(waits_between(delays_told_, delays).longest, now - told_at_);
    message.starved_permille = static_cast<uint16_t>(1000 * longest / (now - told_at_));
  }
  delays_told_ = std::move(delays);
  told_at_ = now;
}

void JobMember::membership_applied(uint64_t version) {
  if (launcher_) {
    launcher_->send(MembershipApplied{.engine_id = self_.engine_id, .version = version});
  }
}

void JobMember::tell(const Message& message) {
  if (launcher_) {
    launcher_->send(message);
  }
}

void JobMember::stop() { draining_ ? handler_->on_shutdown() : drain(drain_timeout_, {}); }

// A launcher may order again what an earlier one ordered: this may be the engine of `next` already.
// It may also want the process to end, and sooner, that was to change its role.
void JobMember::drain(Duration within, Drain::Next next) {
  if (!next.engine_id.empty() && next.engine_id == self_.engine_id) {
    acknowledged_ = false;  // The next beat registers.
    return;
  }
  next_ = std::move(next);
  loop_.cancel(deadline_);
  deadline_ = loop_.call_at(loop_.now() + within, [this] {
    log::warn("drain deadline passed with requests alive");
    handler_->on_shutdown();
  });
  if (!std::exchange(draining_, true)) {
    log::info("draining");
    handler_->on_drain(within);
  }
}

void JobMember::rejoin(Handler& handler, WorkerEntry self) {
  for (const TimerId timer : {heartbeat_, deadline_, linger_}) {
    loop_.cancel(timer);
  }
  handler_ = &handler;
  draining_ = acknowledged_ = false;
  next_ = {};
  serve(std::move(self));
}

void JobMember::drained() { linger(); }

void JobMember::linger() {
  if (handler_->replies_alive() == 0 && !next_.engine_id.empty()) {
    handler_->on_next_role(next_);
  } else if (handler_->replies_alive() == 0) {
    handler_->on_shutdown();
  } else {
    linger_ = loop_.call_at(loop_.now() + kLingerInterval, [this] { linger(); });
  }
}

void JobMember::on_message(Message message) {
  if (const auto* done = std::get_if<Acknowledge>(&message)) {
    acknowledged_ = acknowledged_ || done->number == registration_;  // Not of an older entry.
  } else if (std::holds_alternative<RegisterAsked>(message)) {
    acknowledged_ = false;  // The next beat registers.
  } else if (const auto* told = std::get_if<Drain>(&message)) {
    drain(std::chrono::milliseconds(told->deadline_ms), told->next);
  } else {
    handler_->on_control(message);
  }
}

}  // namespace pdjob::net
