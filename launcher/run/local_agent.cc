#include "launcher/run/local_agent.h"

#include <csignal>
#include <fstream>
#include <memory>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/files/own_files.h"
#include "common/log.h"
#include "launcher/clusters/vital_signs.h"
#include "launcher/run/held_lock.h"
#include "net/loop/child_process.h"
#include "net/loop/socket.h"

namespace pdjob::launcher {

namespace {

constexpr Duration kLookAgain = std::chrono::milliseconds(250);
// An agent that lives has timers that are due each second. The looks count and not the time,
// because a machine that was paused has looked at nothing meanwhile.
constexpr int kLooksAsleepMax = 16;
constexpr Duration kEndsByKill = std::chrono::seconds(1);
constexpr Duration kEndsBySignal = std::chrono::seconds(10);
constexpr Duration kPause = std::chrono::milliseconds(10);

std::string lock_path(const std::string& folder) { return folder + "/agent.lock"; }

int64_t pid_in(const std::string& path) {
  int64_t pid = 0;
  std::ifstream(path) >> pid;
  return pid;
}

std::string key_path(const std::string& folder) { return folder + "/agent.key"; }

}  // namespace

// Without SO_REUSEADDR: with it, a socket that does not listen keeps nobody away.
Result<net::Fd> hold_port(const HeldPort& wanted) {
  PDJOB_TRY(const auto addresses,
            net::resolve(wanted.host, wanted.port, net::HostForm::kNameOrNumeric));
  const net::SocketAddress& address = addresses.front();
  net::Fd held(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (!held.valid() || setsockopt(held.get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0 ||
      bind(held.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) != 0) {
    return system_error("cannot hold port " + std::to_string(wanted.port) + " of " + wanted.host);
  }
  return held;
}

Result<std::unique_ptr<LocalAgent>> LocalAgent::open(net::EventLoop& loop, Options options,
                                                     net::Fd log) {
  std::unique_ptr<LocalAgent> agent(new LocalAgent(loop, std::move(options), std::move(log)));
  if (!runs(agent->options_.folder)) {
    PDJOB_TRY_STATUS(agent->start());
  }
  agent->lives();
  agent->timer_ = loop.call_at(loop.now() + kLookAgain, [opened = agent.get()] { opened->look(); });
  return agent;
}

LocalAgent::~LocalAgent() {
  loop_.cancel(timer_);
  if (!left_) {
    end(options_.folder, Duration{});
  }
}

bool LocalAgent::stands_still() {
  const auto signs = vital_signs_of(pid_in(lock_path(options_.folder)), loop_.exact_now());
  const VitalSigns before = std::exchange(signs_, signs.value_or(VitalSigns{}));
  looks_asleep_ = signs_.slept_since(before) ? looks_asleep_ + 1 : 0;
  return looks_asleep_ >= kLooksAsleepMax;
}

void LocalAgent::look() {
  if (stands_still()) {
    log::warn("this machine's agent stands still: it is killed, with all that it runs");
    const std::string lock = lock_path(options_.folder);
    if (const Status ended = end_holder(pid_in(lock), lock, SIGKILL, kEndsByKill); !ended) {
      log::warn("this machine's agent: " + ended.error().message);
    }
    looks_asleep_ = 0;
  }
  if (!lives()) {
    log::warn("this machine's agent has ended: another one starts");
    if (const Status started = start(); !started) {
      log::warn(started.error().message);
    }
  }
  timer_ = loop_.call_at(loop_.now() + kLookAgain, [this] { look(); });
}

bool LocalAgent::lives() {
  if (runs(options_.folder)) {
    locked_ = net::Fd(::open(lock_path(options_.folder).c_str(), O_RDONLY | O_CLOEXEC));
    return true;
  }
  if (!locked_.valid()) {
    return false;
  }
  const bool is_held = flock(locked_.get(), LOCK_SH | LOCK_NB) != 0;
  flock(locked_.get(), LOCK_UN);
  return is_held;
}

// The lock belongs to the open file, which the agent inherits. So it is held from now on, and as
// long as the agent lives.
Status LocalAgent::start() {
  const std::string path = lock_path(options_.folder);
  const net::Fd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!lock.valid() || flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return system_error("cannot lock " + path);
  }
  PDJOB_TRY_STATUS(write_own_text(key_path(options_.folder), options_.key));
  std::vector<net::Fd> held;
  std::vector<int> inherited = {lock.get()};
  for (const HeldPort& port : options_.ports) {
    PDJOB_TRY(net::Fd socket, hold_port(port));
    inherited.push_back(socket.get());
    held.push_back(std::move(socket));
  }
  return net::start_detached(
      {.program = "/proc/self/exe",
       .arguments = {"pdjob agent", "agent", "--join", options_.endpoint, "--key-file",
                     key_path(options_.folder), "--lock-fd", std::to_string(lock.get()), "--name",
                     "local", "--host", options_.host, "--log-dir", options_.log_dir, "--cores",
                     std::to_string(options_.cores)},
       .inherited = std::move(inherited),
       .output = log_.get()});
}

bool LocalAgent::runs(const std::string& folder) { return is_locked(lock_path(folder)); }

void LocalAgent::end(const std::string& folder, Duration by_itself) {
  const timespec pause{.tv_sec = 0, .tv_nsec = kPause / std::chrono::nanoseconds(1)};
  for (Duration waited{}; runs(folder) && waited < by_itself; waited += kPause) {
    nanosleep(&pause, nullptr);
  }
  if (runs(folder)) {
    const int64_t pid = pid_in(lock_path(folder));
    if (!end_holder(pid, lock_path(folder), SIGTERM, kEndsBySignal)) {
      static_cast<void>(end_holder(pid, lock_path(folder), SIGKILL, kEndsBySignal));
    }
  }
  if (!runs(folder)) {
    unlink(lock_path(folder).c_str());
    unlink(key_path(folder).c_str());
  }
}

}  // namespace pdjob::launcher
