#include "common/os/stack_dump.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include <dirent.h>
#include <execinfo.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

// This code runs in signal handlers: it makes only async-signal-safe calls and allocates no memory.
// The first backtrace() loads a library, so install_stack_dump() calls it once.
namespace pdjob {
namespace {

constexpr int kFramesMax = 64;
constexpr size_t kNameBytes = 16;         // A thread's name, as the kernel keeps it.
constexpr int kNapsPerThread = 50;        // 1 ms each; for one thread to answer.
constexpr int kNapsMax = 1500;            // For all threads together.
constexpr size_t kDirectoryBytes = 4096;  // Bytes of /proc/self/task read at once.

std::atomic_flag dumping = ATOMIC_FLAG_INIT;
std::atomic<pid_t> asked{0};  // The thread that must write its stack; 0: it has.

pid_t this_thread() { return static_cast<pid_t>(syscall(SYS_gettid)); }

void put(const char* text) { static_cast<void>(!write(STDERR_FILENO, text, std::strlen(text))); }

void put(pid_t number) {
  std::array<char, 16> digits{};
  size_t at = digits.size() - 1;
  do {
    digits[--at] = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number > 0);
  put(&digits[at]);
}

void write_own_stack() {
  std::array<char, kNameBytes + 1> name{};
  prctl(PR_GET_NAME, name.data());
  put("thread ");
  put(this_thread());
  put(" ");
  put(name.data());
  put(":\n");
  std::array<void*, kFramesMax> frames{};
  backtrace_symbols_fd(frames.data(), backtrace(frames.data(), kFramesMax), STDERR_FILENO);
}

// Subtracts the time it waited from `naps_left`.
void ask(pid_t thread, int& naps_left) {
  asked = thread;
  if (syscall(SYS_tgkill, getpid(), thread, SIGQUIT) != 0) {
    return;  // It has ended.
  }
  const timespec millisecond{.tv_sec = 0, .tv_nsec = 1'000'000};
  for (int naps = kNapsPerThread; asked == thread && naps > 0 && naps_left > 0; --naps) {
    nanosleep(&millisecond, nullptr);
    --naps_left;
  }
  pid_t unanswered = thread;
  if (asked.compare_exchange_strong(unanswered, 0)) {
    put("thread ");
    put(thread);
    put(" does not answer\n");
  }
}

void ask_every_thread() {
  const int folder = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) {
    return;
  }
  int naps_left = kNapsMax;
  alignas(dirent64) std::array<char, kDirectoryBytes> buffer;
  for (;;) {
    const long bytes = syscall(SYS_getdents64, folder, buffer.data(), buffer.size());
    if (bytes <= 0) {
      break;
    }
    for (long at = 0; at < bytes;) {
      const auto* entry = reinterpret_cast<const dirent64*>(&buffer[static_cast<size_t>(at)]);
      at += entry->d_reclen;
      const auto thread = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
      if (thread > 0 && thread != this_thread()) {
        ask(thread, naps_left);
      }
    }
  }
  close(folder);
}

void on_signal(int /*number*/, siginfo_t* info, void* /*context*/) {
  const int saved_errno = errno;
  const bool from_us = info->si_code == SI_TKILL && info->si_pid == getpid();
  if (from_us) {
    if (asked == this_thread()) {
      write_own_stack();
      asked = 0;
    }
  } else if (!dumping.test_and_set()) {
    put("--- stacks of process ");
    put(getpid());
    put("\n");
    write_own_stack();
    ask_every_thread();
    put("--- end of stacks\n");
    dumping.clear();
  }
  errno = saved_errno;
}

}  // namespace

void install_stack_dump() {
  void* frame = nullptr;
  backtrace(&frame, 1);
  struct sigaction action = {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGQUIT, &action, nullptr);
}

}  // namespace pdjob
