// Another process of a test, really forked and killed, and the lines that it and the test exchange.
#pragma once

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <iterator>
#include <list>
#include <string>
#include <thread>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/check.h"
#include "common/files/fd.h"
#include "kvtransfer/kv_endpoint.h"

namespace pdjob::kvtransfer {

// Lines of text between a test and the process that it forked.
class Pipe {
 public:
  Pipe() {
    int fds[2];
    PDJOB_CHECK(::pipe(fds) == 0);
    read_ = Fd(fds[0]);
    write_ = Fd(fds[1]);
  }
  void say(const std::string& line) {
    PDJOB_CHECK(::write(write_.get(), (line + "\n").data(), line.size() + 1) > 0);
  }
  std::string hear() {
    std::string line;
    for (char byte = 0; byte != '\n';) {
      pollfd ready{.fd = read_.get(), .events = POLLIN, .revents = 0};
      PDJOB_CHECK(::poll(&ready, 1, 60'000) == 1, "the other process says nothing");
      PDJOB_CHECK(::read(read_.get(), &byte, 1) == 1, "the other process has ended");
      line += byte;
    }
    line.pop_back();
    return line;
  }
  // Each process keeps one end, so a reader notices when the other process dies.
  void only_say() { read_ = Fd(); }
  void only_hear() { write_ = Fd(); }
  void say(const EndpointAddress& address) {
    say(address.engine_id);
    say(address.host);
    say(std::to_string(address.port));
    say(address.unix_path);
    say(address.host_id);
    say(address.gpu_path);
  }
  EndpointAddress hear_address() {
    EndpointAddress address;
    address.engine_id = hear();
    address.host = hear();
    address.port = static_cast<uint16_t>(std::stoi(hear()));
    address.unix_path = hear();
    address.host_id = hear();
    address.gpu_path = hear();
    return address;
  }

 private:
  Fd read_, write_;
};

// Forks when no thread has begun or ended for a while. In the child, a lock that such a thread
// holds in the sanitizer would stay locked for ever.
inline pid_t fork_at_rest() {
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                         std::filesystem::directory_iterator());
  };
  auto before = threads();
  for (int looks = 0, quiet = 0; looks < 500 && quiet < 5; ++looks) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const auto now = threads();
    quiet = now == before ? quiet + 1 : 0;
    before = now;
  }
  return ::fork();
}

// A child that runs `body` and then waits to be killed. Create it before the test has threads, and
// before it uses CUDA: its children cannot use CUDA then.
class ForkedPeer {
 public:
  explicit ForkedPeer(const std::function<void(Pipe& to_test, Pipe& from_test)>& body) {
    pid_ = fork_at_rest();
    PDJOB_CHECK(pid_ >= 0);
    if (pid_ == 0) {
      to_test.only_say();
      from_test.only_hear();
      body(to_test, from_test);
      ::pause();
      ::_exit(0);
    }
    to_test.only_hear();
    from_test.only_say();
  }
  ~ForkedPeer() { kill(); }
  void signal(int number) { ::kill(pid_, number); }
  void kill() {
    if (pid_ > 0) {
      signal(SIGKILL);
      ::waitpid(pid_, nullptr, 0);
      pid_ = -1;
    }
  }
  // Returns when the child has really stopped.
  void stop() {
    signal(SIGSTOP);
    ::waitpid(pid_, nullptr, WUNTRACED);
  }

  Pipe to_test, from_test;

 private:
  pid_t pid_ = -1;
};

inline std::list<ForkedPeer> forked_peers(
    size_t count, const std::function<void(Pipe& to_test, Pipe& from_test)>& body) {
  std::list<ForkedPeer> peers;
  while (peers.size() < count) {
    peers.emplace_back(body);
  }
  return peers;
}

}  // namespace pdjob::kvtransfer
