#include "net/loop/signals.h"

#include <array>
#include <csignal>
#include <utility>

#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/check.h"

namespace pdjob::net {
namespace {

sigset_t block(std::span<const int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int each : signals) {
    sigaddset(&set, each);
  }
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return set;
}

}  // namespace

void block_signals() {
  block(std::array{SIGTERM, SIGINT});
  std::signal(SIGPIPE, SIG_IGN);
}

StopSignals::StopSignals(EventLoop& loop, std::span<const int> signals,
                         std::function<void(int)> then)
    : loop_(loop), then_(std::move(then)) {
  const sigset_t set = block(signals);
  fd_ = Fd(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  PDJOB_CHECK(fd_.valid() && loop.watch(fd_.get(), EPOLLIN, *this).has_value());
}

StopSignals::~StopSignals() { loop_.unwatch(fd_.get()); }

void StopSignals::on_ready(uint32_t /*epoll_events*/) {
  signalfd_siginfo info{};
  while (read(fd_.get(), &info, sizeof info) == sizeof info) {
    then_(static_cast<int>(info.ssi_signo));
  }
}

}  // namespace pdjob::net
