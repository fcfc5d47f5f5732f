// StageProcess: one process of a stage. It carries lines to the process's standard input and from
// its standard output, and knows nothing about them. Its standard error goes to a log file. It dies
// with this process. Requires: SIGPIPE is ignored (net/loop/signals.h). Loop-bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "batch/stages/stage_pool.h"
#include "common/result.h"
#include "net/loop/child_process.h"
#include "net/loop/event_loop.h"
#include "net/loop/socket.h"

namespace pdjob::batch {

struct StageProcessOptions {
  std::vector<std::string> command;  // The first word is a path.
  std::vector<std::pair<std::string, std::string>> environment;
  std::string folder;  // Where it starts.
  std::string log;     // A file; its lines are appended.
};

class StageProcess final : net::FdHandler {
 public:
  static constexpr size_t kLineBytesMax = size_t{32} << 20;  // That it writes.

  class Handler {
   public:
    // A line without '\n'. May destroy the object.
    virtual void on_stage_line(StageRun run, std::string line) = 0;
    // Called once: it has ended, or wrote a line that is too long. May destroy the object.
    virtual void on_stage_end(StageRun run, const std::string& how) = 0;

   protected:
    ~Handler() = default;
  };

  static Result<std::unique_ptr<StageProcess>> start(net::EventLoop& loop, StageRun run,
                                                     const StageProcessOptions& options,
                                                     Handler& handler);
  ~StageProcess();  // Kills it.
  StageProcess(const StageProcess&) = delete;
  StageProcess& operator=(const StageProcess&) = delete;

  // The caller bounds how many lines are under way.
  void send(std::string_view line);
  // It reads the end of its input, and may end by itself.
  void finish();

 private:
  StageProcess(net::EventLoop& loop, StageRun run, net::Fd input, net::Fd output, Handler& handler)
      : loop_(loop),
        run_(run),
        input_(std::move(input)),
        output_(std::move(output)),
        handler_(handler) {}

  void on_ready(uint32_t epoll_events) override;
  void write_more();
  // Both return false if the object may be gone.
  bool read_more();
  bool take_lines();
  void end(const std::string& how);
  // ": " and the last lines of its log, if it wrote any.
  std::string last_words() const;

  net::EventLoop& loop_;
  const StageRun run_;
  net::Fd input_;  // Invalid: finished.
  const net::Fd output_;
  Handler& handler_;
  std::string log_;
  int64_t log_begin_ = 0;  // Where its own lines begin.
  std::string unsent_;
  size_t sent_ = 0;  // Of unsent_.
  std::string received_;
  size_t searched_ = 0;  // No '\n' in so much of received_.
  bool finishing_ = false;
  bool ended_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // For calls that destroy us.
  std::unique_ptr<net::ChildProcess> child_;                    // Ends first.
};

}  // namespace pdjob::batch
