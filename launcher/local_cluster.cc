#include "launcher/local_cluster.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/check.h"
#include "common/log.h"
#include "launcher/gpu_shares.h"

namespace pdjob::launcher {

namespace {

Error system_error(const std::string& what) {
  return {ErrorCode::kUnavailable, what + ": " + std::strerror(errno)};
}

Result<net::Fd> memfd_with(const std::string& text) {
  net::Fd fd(memfd_create("pdjob-spec", MFD_CLOEXEC));
  if (!fd.valid()) {
    return system_error("memfd_create");
  }
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t more = write(fd.get(), text.data() + written, text.size() - written);
    if (more <= 0) {
      return system_error("write the process spec");
    }
    written += static_cast<size_t>(more);
  }
  if (lseek(fd.get(), 0, SEEK_SET) != 0) {
    return system_error("lseek");
  }
  return fd;
}

constexpr const char* kVisibleGpus = "CUDA_VISIBLE_DEVICES";

// Numbered as CUDA does, whatever the numbers of their device files.
std::vector<std::string> usable_gpus() {
  if (const char* const setting = std::getenv(kVisibleGpus); setting != nullptr) {
    return gpus_of_setting(setting);
  }
  std::vector<std::string> gpus;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", ignored)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("nvidia") && name.size() > 6 &&
        name.find_first_not_of("0123456789", 6) == std::string::npos) {
      gpus.push_back(std::to_string(gpus.size()));
    }
  }
  return gpus;
}

// Ours, but for the GPUs that can be seen, if `gpu` is one. Null-terminated; `setting` keeps its
// text.
std::vector<const char*> environment_with(const std::string& gpu, std::string& setting) {
  const std::string name = std::string(kVisibleGpus) + "=";
  std::vector<const char*> variables;
  for (char** each = environ; *each != nullptr; ++each) {
    if (gpu.empty() || !std::string_view(*each).starts_with(name)) {
      variables.push_back(*each);
    }
  }
  if (!gpu.empty()) {
    setting = name + gpu;
    variables.push_back(setting.c_str());
  }
  variables.push_back(nullptr);
  return variables;
}

// All that the child needs, made before the fork: after it, only async-signal-safe calls are
// allowed.
struct ChildSetup {
  const char* program;
  std::array<const char*, 5> argv;
  const char* const* environment;
  int listen_fd;
  int spec_fd;
  int log_fd;
  int null_fd;
  pid_t launcher;
};

[[noreturn]] void become_child(const ChildSetup& setup) {
  // Own process group: a Ctrl-C in the terminal reaches the launcher alone, which drains.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != setup.launcher) {
    _exit(1);  // The launcher died between fork and prctl.
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  dup2(setup.null_fd, STDIN_FILENO);
  dup2(setup.log_fd, STDOUT_FILENO);
  dup2(setup.log_fd, STDERR_FILENO);
  for (const int inherited : {setup.listen_fd, setup.spec_fd}) {
    if (inherited >= 0) {
      fcntl(inherited, F_SETFD, 0);
    }
  }
  execve(setup.program, const_cast<char* const*>(setup.argv.data()),
         const_cast<char* const*>(setup.environment));
  constexpr char kMessage[] = "pdjob: cannot execute the program\n";
  static_cast<void>(!write(STDERR_FILENO, kMessage, sizeof kMessage - 1));
  _exit(127);
}

std::string describe_exit(const siginfo_t& status) {
  if (status.si_code == CLD_EXITED) {
    return "exit code " + std::to_string(status.si_status);
  }
  const char* name = strsignal(status.si_status);
  return "signal " + std::to_string(status.si_status) + " (" + (name == nullptr ? "?" : name) + ")";
}

uint32_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<uint32_t>(CPU_COUNT(&set)) : 1;
}

}  // namespace

// One running process, watched by its pidfd.
class LocalCluster::Child final : public net::FdHandler {
 public:
  Child(LocalCluster& owner, Incarnation incarnation, pid_t pid, net::Fd pidfd)
      : owner_(owner), incarnation_(incarnation), pid_(pid), pidfd_(std::move(pidfd)) {}
  ~Child() {
    owner_.loop_.unwatch(pidfd_.get());
    if (!reaped_) {
      send(SIGKILL);
      reap();
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  Status watch() { return owner_.loop_.watch(pidfd_.get(), EPOLLIN, *this); }

  // To the whole process group: a worker may have started processes of its own.
  void send(int number) const {
    if (kill(-pid_, number) != 0) {
      kill(pid_, number);  // It has not reached setpgid() yet.
    }
  }

  std::string reap() {
    siginfo_t status{};
    while (waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &status, WEXITED) != 0 &&
           errno == EINTR) {
    }
    reaped_ = true;
    return describe_exit(status);
  }

  void on_ready(uint32_t /*epoll_events*/) override { owner_.exited(incarnation_); }

 private:
  LocalCluster& owner_;
  const Incarnation incarnation_;
  const pid_t pid_;
  const net::Fd pidfd_;
  bool reaped_ = false;
};

LocalCluster::LocalCluster(net::EventLoop& loop, Handler& handler, Options options)
    : loop_(loop), handler_(handler), options_(std::move(options)) {}

LocalCluster::~LocalCluster() = default;

Node LocalCluster::this_node() {
  const auto pages = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES));
  const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return {.name = "local",
          .host = "127.0.0.1",
          .cores = usable_cores(),
          .memory_bytes = pages * page_bytes,
          .gpus = usable_gpus()};
}

std::vector<Node> LocalCluster::nodes() const { return {this_node()}; }

Result<uint16_t> LocalCluster::listen(const std::string& name, const std::string& /*node*/,
                                      const std::string& host, uint16_t port) {
  close_listener(name);
  PDJOB_TRY(net::Fd socket, net::listen_on(host, port));
  const uint16_t bound = net::local_port(socket.get());
  listeners_.emplace(name, Listener{.socket = std::move(socket), .host = host, .port = bound});
  return bound;
}

Result<int64_t> LocalCluster::spawn(const SpawnOrder& order) {
  net::ProcessSpec spec = order.spec;
  if (const auto listener = listeners_.find(spec.name); listener != listeners_.end()) {
    spec.listen_fd = listener->second.socket.get();
    spec.host = listener->second.host;
    spec.port = listener->second.port;
  }
  PDJOB_TRY(const net::Fd spec_fd, memfd_with(net::encode_spec(spec)));
  const std::string log_path = options_.log_dir + "/" + spec.name + ".log";
  const net::Fd log_fd(open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log_fd.valid()) {
    return system_error("open " + log_path);
  }
  const net::Fd null_fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const std::string title = "pdjob " + spec.name;  // What `ps` shows.
  const std::string spec_fd_text = std::to_string(spec_fd.get());
  std::string gpu_setting;
  const std::vector<const char*> environment = environment_with(spec.gpu, gpu_setting);
  const ChildSetup setup{
      .program = options_.program.c_str(),
      .argv = {title.c_str(), spec.role == net::Role::kRouter ? "router" : "worker", "--spec-fd",
               spec_fd_text.c_str(), nullptr},
      .environment = environment.data(),
      .listen_fd = spec.listen_fd,
      .spec_fd = spec_fd.get(),
      .log_fd = log_fd.get(),
      .null_fd = null_fd.get(),
      .launcher = getpid()};

  const pid_t pid = fork();
  if (pid == 0) {
    become_child(setup);
  }
  if (pid < 0) {
    return system_error("fork");
  }
  // The child is not reaped before we say so, hence its id cannot have been reused.
  // Not <sys/pidfd.h>: that of glibc 2.36 forgets that C++ includes it.
  net::Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  PDJOB_CHECK(pidfd.valid(), std::strerror(errno));
  auto child = std::make_unique<Child>(*this, order.incarnation, pid, std::move(pidfd));
  PDJOB_TRY_STATUS(child->watch());
  children_.emplace(order.incarnation, std::move(child));
  return static_cast<int64_t>(pid);
}

void LocalCluster::signal(Incarnation incarnation, Signal signal) {
  if (const auto child = children_.find(incarnation); child != children_.end()) {
    child->second->send(signal == Signal::kKill ? SIGKILL : SIGTERM);
  }
}

void LocalCluster::exited(Incarnation incarnation) {
  const auto found = children_.find(incarnation);
  PDJOB_CHECK(found != children_.end(), incarnation);
  const std::unique_ptr<Child> child = std::move(found->second);
  children_.erase(found);
  child->send(
      SIGKILL);  // What it may have left in its group; before reaping, for then its id is free.
  handler_.on_exited(incarnation, child->reap());
}

}  // namespace pdjob::launcher
