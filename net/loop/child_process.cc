#include "net/loop/child_process.h"

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string_view>

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/check.h"
#include "common/os/descriptors.h"

extern char** environ;

namespace pdjob::net {
namespace {

// The key of the person who called this program. No child needs it, and some are other people's
// programs.
constexpr char kOwnKey[] = "PDJOB_API_KEY=";

// Everything that the child needs, made before the fork: after it, only async-signal-safe calls are
// allowed.
class Setup {
 public:
  Setup(const ChildOptions& options, int input) : options_(options), input_(input) {
    for (const std::string& argument : options.arguments) {
      argv_.push_back(argument.c_str());
    }
    argv_.push_back(nullptr);
    for (const auto& [name, value] : options.environment) {
      added_.emplace_back(name).append("=").append(value);
    }
    for (char** entry = environ; *entry != nullptr; ++entry) {
      if (!is_replaced(*entry)) {
        envp_.push_back(*entry);
      }
    }
    for (const std::string& entry : added_) {
      envp_.push_back(entry.c_str());
    }
    envp_.push_back(nullptr);
  }

  [[noreturn]] void become_child() const {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent_) {
      _exit(1);  // The parent died between fork and prctl.
    }
    execute();
  }

  // The first process becomes the parent, and reaps it (common/os/first_process.h).
  [[noreturn]] void become_parent_of_detached() const {
    setsid();
    const pid_t pid = fork();
    if (pid == 0) {
      execute();
    }
    _exit(pid < 0 ? 1 : 0);
  }

 private:
  [[noreturn]] void execute() const {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    ::signal(SIGPIPE, SIG_DFL);
    restore_descriptor_limit();
    options_.affinity.apply();
    dup2(options_.input >= 0 ? options_.input : input_, STDIN_FILENO);
    const int errors = options_.errors >= 0 ? options_.errors : options_.output;
    if (options_.output >= 0) {
      dup2(options_.output, STDOUT_FILENO);
    }
    if (errors >= 0) {
      dup2(errors, STDERR_FILENO);
    }
    if (!options_.folder.empty() && chdir(options_.folder.c_str()) != 0) {
      fail("pdjob: cannot enter the program's folder\n");
    }
    hide_descriptors();
    for (const int inherited : options_.inherited) {
      fcntl(inherited, F_SETFD, 0);
    }
    execve(options_.program.c_str(), const_cast<char* const*>(argv_.data()),
           const_cast<char* const*>(envp_.data()));
    fail("pdjob: cannot execute the program\n");
  }

  [[noreturn]] static void fail(std::string_view message) {
    static_cast<void>(!write(STDERR_FILENO, message.data(), message.size()));
    _exit(127);
  }

  // Marks descriptors that our caller or a library left open without close-on-exec.
  static void hide_descriptors() {
    constexpr int kFirst = STDERR_FILENO + 1;
    if (close_range(kFirst, UINT_MAX, CLOSE_RANGE_CLOEXEC) == 0) {
      return;
    }
    // For kernels before 5.11.
    const auto end = static_cast<int>(sysconf(_SC_OPEN_MAX));
    for (int fd = kFirst; fd < end; ++fd) {
      fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
  }

  bool is_replaced(const char* entry) const {
    if (std::strncmp(entry, kOwnKey, sizeof kOwnKey - 1) == 0) {
      return true;
    }
    for (const auto& [name, value] : options_.environment) {
      if (std::strncmp(entry, name.c_str(), name.size()) == 0 && entry[name.size()] == '=') {
        return true;
      }
    }
    return false;
  }

  const ChildOptions& options_;
  const int input_;
  const pid_t parent_ = getpid();
  std::vector<const char*> argv_;
  std::vector<std::string> added_;
  std::vector<const char*> envp_;
};

ChildExit describe_exit(const siginfo_t& status) {
  const std::string number = std::to_string(status.si_status);
  if (status.si_code == CLD_EXITED) {
    return {.how = "exit code " + number, .code = status.si_status};
  }
  const char* name = strsignal(status.si_status);
  return {.how = "signal " + number + " (" + (name == nullptr ? "?" : name) + ")",
          .signal = status.si_status};
}

}  // namespace

bool ChildExit::crashed() const {
  switch (signal) {
    case SIGSEGV:
    case SIGABRT:
    case SIGBUS:
    case SIGILL:
    case SIGFPE:
    case SIGSYS:
    case SIGTRAP:
    case SIGXCPU:
      return true;
    default:
      return false;
  }
}

Result<std::unique_ptr<ChildProcess>> ChildProcess::start(
    EventLoop& loop, const ChildOptions& options, std::function<void(const ChildExit&)> exited) {
  const Fd input(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Setup setup(options, input.get());
  const pid_t pid = fork();
  if (pid == 0) {
    setup.become_child();
  }
  if (pid < 0) {
    return system_error("fork");
  }
  // Only we reap the child, and have not yet, so its id cannot be reused.
  // Not <sys/pidfd.h>: glibc 2.36's header does not work in C++.
  Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  PDJOB_CHECK(pidfd.valid(), std::strerror(errno));
  std::unique_ptr<ChildProcess> child(
      new ChildProcess(loop, pid, std::move(pidfd), std::move(exited)));
  PDJOB_TRY_STATUS(loop.watch(child->pidfd_.get(), EPOLLIN, *child));
  return child;
}

Status start_detached(const ChildOptions& options) {
  const Fd input(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Setup setup(options, input.get());
  const pid_t pid = fork();
  if (pid == 0) {
    setup.become_parent_of_detached();
  }
  int status = 0;
  while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return pid > 0 && status == 0 ? ok() : Status(system_error("fork"));
}

ChildProcess::~ChildProcess() {
  loop_.unwatch(pidfd_.get());
  if (!reaped_) {
    signal(SIGKILL);
    reap();
  }
}

void ChildProcess::signal(int number) const {
  if (kill(-pid_, number) != 0) {
    kill(pid_, number);  // It has not called setpgid() yet.
  }
}

void ChildProcess::on_ready(uint32_t /*epoll_events*/) {
  loop_.unwatch(pidfd_.get());
  signal(SIGKILL);  // Kills the rest of its group. Before reaping, which frees its id.
  const auto exited = std::move(exited_);
  exited(reap());
}

ChildExit ChildProcess::reap() {
  siginfo_t status{};
  while (waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &status, WEXITED) != 0 &&
         errno == EINTR) {
  }
  reaped_ = true;
  return describe_exit(status);
}

Result<std::string> find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    return access(name.c_str(), X_OK) == 0
               ? Result<std::string>(name)
               : system_error(name + " is no program", ErrorCode::kNotFound);
  }
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    folder.append("/").append(name);
    if (access(folder.c_str(), X_OK) == 0) {
      return folder;
    }
  }
  return Error{ErrorCode::kNotFound, "there is no " + name + " in $PATH"};
}

}  // namespace pdjob::net
