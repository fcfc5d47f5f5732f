// JobPool: a job of its own that serves a batch. It is this program again, as the launcher of the
// job NAME-batch, with its router on a free port. It dies with the batch, even by kill -9.
// Loop-bound.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "batch/batch_process.h"
#include "launcher/plan/job_config.h"
#include "net/loop/child_process.h"
#include "net/loop/socket.h"

namespace pdjob::launcher {

class JobPool final : public batch::Pool, net::FdHandler {
 public:
  // `original`: of Places. `key`: of a tenant of the job; empty: it has no tenants.
  JobPool(net::EventLoop& loop, std::string config_path, std::string original,
          std::vector<std::string> settings, std::string key, Duration row_timeout);
  ~JobPool() override;

  void start(std::function<void(Result<batch::RowServer>)> ready,
             std::function<void(std::string)> died) override;
  void stop(std::function<void()> stopped) override;

 private:
  Status spawn();
  void on_ready(uint32_t epoll_events) override;
  void take_lines();
  void exited(const net::ChildExit& exit);

  net::EventLoop& loop_;
  const std::string config_path_;
  const std::string original_;
  const std::vector<std::string> settings_;
  const std::string key_;
  const Duration row_timeout_;
  std::function<void(Result<batch::RowServer>)> ready_;
  std::function<void(std::string)> died_;
  std::function<void()> stopped_;
  net::Fd output_;
  std::string text_;  // Of its output, the end.
  std::unique_ptr<net::ChildProcess> child_;
};

}  // namespace pdjob::launcher
