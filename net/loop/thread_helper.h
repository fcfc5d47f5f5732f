// ThreadHelper: a Helper of the real world. Loop-bound.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "common/os/channel.h"
#include "net/loop/loop.h"

namespace pdjob::net {

class ThreadHelper final : public Helper {
 public:
  explicit ThreadHelper(const std::string& name);
  ~ThreadHelper() override;
  ThreadHelper(const ThreadHelper&) = delete;
  ThreadHelper& operator=(const ThreadHelper&) = delete;

  void run(std::function<void()> work) override { work_.push_always(std::move(work)); }

 private:
  void run_all();

  Channel<std::function<void()>> work_;
  std::thread thread_;
};

}  // namespace pdjob::net
