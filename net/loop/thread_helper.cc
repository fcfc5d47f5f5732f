#include "net/loop/thread_helper.h"

#include <vector>

#include <pthread.h>

#include "common/limits.h"

namespace pdjob::net {

ThreadHelper::ThreadHelper(const std::string& name)
    : work_(limits::kChannelMax), thread_([this] { run_all(); }) {
  pthread_setname_np(thread_.native_handle(), name.c_str());
}

ThreadHelper::~ThreadHelper() {
  work_.close();
  thread_.join();
}

void ThreadHelper::run_all() {
  std::vector<std::function<void()>> pieces;
  do {
    pieces.clear();
    work_.wait_and_drain(pieces, kNever);
    for (std::function<void()>& piece : pieces) {
      piece();
      piece = nullptr;  // Frees what it holds.
    }
  } while (!pieces.empty());
}

}  // namespace pdjob::net
