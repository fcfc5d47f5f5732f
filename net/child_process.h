// ChildProcess: a process that this one has started, watched by its pidfd. It has a process group
// of its own, so that a Ctrl-C in the terminal reaches its parent alone, and it dies with its
// parent, also by kill -9. Loop-bound.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "common/result.h"
#include "net/event_loop.h"
#include "net/socket.h"

namespace pdjob::net {

struct ChildOptions {
  std::string program;                                           // A path.
  std::vector<std::string> arguments;                            // The first is what `ps` calls it.
  std::vector<std::pair<std::string, std::string>> environment;  // Set beside our own.
  std::vector<int> inherited;  // Descriptors that it has under the same numbers.
  int output = -1;             // Its stdout and stderr; -1: ours.
};

// How a process ended.
struct ChildExit {
  std::string how;  // For people: "exit code 1", "signal 9 (Killed)".
  int code = 0;
  int signal = 0;  // 0: it ended by its exit code.

  // It broke at what it was doing: SIGSEGV and its like, SIGABRT (of a failed check, or of memory
  // that a library did not get), SIGXCPU. SIGKILL tells nothing: the kernel sends it when memory is
  // short, to whom it likes, and so does anybody else.
  bool crashed() const;
};

class ChildProcess final : FdHandler {
 public:
  // `exited` is called once, when it has ended and what it left in its group is killed; it may
  // destroy the object. Never inside start().
  static Result<std::unique_ptr<ChildProcess>> start(EventLoop& loop, const ChildOptions& options,
                                                     std::function<void(const ChildExit&)> exited);
  ~ChildProcess();  // Kills the group.
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // To the whole group.
  void signal(int number) const;

 private:
  ChildProcess(EventLoop& loop, pid_t pid, Fd pidfd, std::function<void(const ChildExit&)> exited)
      : loop_(loop), pid_(pid), pidfd_(std::move(pidfd)), exited_(std::move(exited)) {}

  void on_ready(uint32_t epoll_events) override;
  ChildExit reap();

  EventLoop& loop_;
  const pid_t pid_;
  const Fd pidfd_;
  std::function<void(const ChildExit&)> exited_;
  bool reaped_ = false;
};

// The file that a shell would run for `name`: a path as it is, else the first in $PATH. kNotFound.
Result<std::string> find_program(const std::string& name);

}  // namespace pdjob::net
