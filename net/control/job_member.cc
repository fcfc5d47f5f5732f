#include "net/control/job_member.h"

#include <csignal>
#include <optional>
#include <utility>

#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/log.h"

namespace pdjob::net {
namespace {

constexpr Duration kHeartbeatInterval = std::chrono::milliseconds(500);

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

class JobMemberImpl final : public JobMember, FdHandler, ControlClient::Handler {
 public:
  JobMemberImpl(EventLoop& loop, JobMember::Handler& handler, const ProcessSpec& spec,
                Duration drain_timeout)
      : loop_(loop), handler_(handler), name_(spec.name), drain_timeout_(drain_timeout) {}

  ~JobMemberImpl() override {
    if (heartbeat_) {
      loop_.cancel(*heartbeat_);
    }
    if (signal_fd_ >= 0) {
      loop_.unwatch(signal_fd_);
      close(signal_fd_);
    }
  }

  Status start(const ProcessSpec& spec) {
    const sigset_t signals = stop_signals();
    signal_fd_ = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
    if (signal_fd_ < 0) {
      return Error{ErrorCode::kInternal, "signalfd failed"};
    }
    PDJOB_TRY_STATUS(loop_.watch(signal_fd_, EPOLLIN, *this));
    if (!spec.control.empty()) {
      PDJOB_TRY(control_, ControlClient::open(loop_, *this, spec.control, spec.name));
    }
    return ok();
  }

  void serve(WorkerEntry self) override {
    self_ = std::move(self);
    if (control_) {
      beat();
    }
  }

  void drained() override {
    if (control_) {
      control_->send(Drained{name_});
    }
  }

  void membership_applied(uint64_t version) override {
    if (control_) {
      control_->send(MembershipApplied{.engine_id = self_.engine_id, .version = version});
    }
  }

 private:
  void beat() {
    if (!acknowledged_) {
      control_->send(Registered{.worker = self_, .pid = getpid()});
    }
    control_->send(HeartbeatSent{.name = name_,
                                 .engine_id = self_.engine_id,
                                 .sequence = ++beats_,
                                 .load = handler_.current_load()});
    heartbeat_ = loop_.call_at(loop_.now() + kHeartbeatInterval, [this] { beat(); });
  }

  void on_ready(uint32_t /*epoll_events*/) override {
    signalfd_siginfo info{};
    while (read(signal_fd_, &info, sizeof info) == sizeof info) {
      if (std::exchange(draining_, true)) {
        handler_.on_shutdown();
      } else {
        handler_.on_drain(drain_timeout_);
      }
    }
  }

  void on_message(Message message) override {
    if (std::holds_alternative<Acknowledge>(message)) {
      acknowledged_ = true;
    } else if (std::holds_alternative<Shutdown>(message)) {
      handler_.on_shutdown();
    } else if (const auto* drain = std::get_if<Drain>(&message)) {
      draining_ = true;
      handler_.on_drain(std::chrono::milliseconds(drain->deadline_ms));
    } else {
      handler_.on_control(message);
    }
  }

  EventLoop& loop_;
  JobMember::Handler& handler_;
  const std::string name_;
  const Duration drain_timeout_;
  int signal_fd_ = -1;
  std::unique_ptr<ControlClient> control_;
  WorkerEntry self_;
  std::optional<TimerId> heartbeat_;
  uint64_t beats_ = 0;
  bool acknowledged_ = false;
  bool draining_ = false;
};

}  // namespace

void block_signals() {
  const sigset_t signals = stop_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

Result<std::unique_ptr<JobMember>> JobMember::open(EventLoop& loop, Handler& handler,
                                                   const ProcessSpec& spec,
                                                   Duration drain_timeout) {
  auto member = std::make_unique<JobMemberImpl>(loop, handler, spec, drain_timeout);
  PDJOB_TRY_STATUS(member->start(spec));
  return std::unique_ptr<JobMember>(std::move(member));
}

}  // namespace pdjob::net
