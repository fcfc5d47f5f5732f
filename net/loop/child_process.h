// ChildProcess: a process that this process started, watched by its pidfd. It has its own process
// group, so that a Ctrl-C in the terminal reaches only its parent. It dies with its parent, even by
// kill -9. Loop-bound.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "common/os/affinity.h"
#include "common/result.h"
#include "net/loop/event_loop.h"
#include "net/loop/socket.h"

namespace pdjob::net {

struct ChildOptions {
  std::string program;                 // A path.
  std::vector<std::string> arguments;  // The first is its name in `ps`.
  std::vector<std::pair<std::string, std::string>>
      environment;             // Added to ours, without $PDJOB_API_KEY.
  std::vector<int> inherited;  // Descriptors that keep their numbers in the child.
  int input = -1;              // Its stdin; -1: /dev/null.
  int output = -1;             // Its stdout, and its stderr without `errors`; -1: ours.
  int errors = -1;             // Its stderr; -1: as its stdout.
  std::string folder;          // Where it starts; empty: in ours.
  Affinity affinity;
};

// How a process ended.
struct ChildExit {
  std::string how;  // For people: "exit code 1", "signal 9 (Killed)".
  int code = 0;
  int signal = 0;  // 0: it ended with an exit code.

  // True if it broke at its work: SIGSEGV and similar signals, SIGXCPU, or SIGABRT (a failed check,
  // or a library without memory). SIGKILL does not count: the kernel sends it to any process when
  // memory is short, and a person may send it too.
  bool crashed() const;
};

// Starts a process that is not ours: it has a session of its own, and lives on when we end.
Status start_detached(const ChildOptions& options);

class ChildProcess final : FdHandler {
 public:
  // `exited` is called once, after the process has ended and the rest of its group is killed. It
  // may destroy the object. It is never called inside start().
  static Result<std::unique_ptr<ChildProcess>> start(EventLoop& loop, const ChildOptions& options,
                                                     std::function<void(const ChildExit&)> exited);
  ~ChildProcess();  // Kills the group.
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Sends the signal to the whole group.
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

// Finds the file that a shell would run for `name`: a path as it is, otherwise the first match in
// $PATH. kNotFound: there is none.
Result<std::string> find_program(const std::string& name);

}  // namespace pdjob::net
