// ShimProcess: one run of the Ray shim (ray_shim.py), whose text is part of this binary. It carries
// requests and lines over a socket, and knows nothing about them. The shim dies with this process.
// Loop-bound.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"
#include "launcher/ray/own_files.h"
#include "launcher/ray/shim_line.h"
#include "net/loop/child_process.h"
#include "net/loop/event_loop.h"
#include "net/loop/socket.h"

namespace pdjob::launcher {

struct ShimOptions {
  std::string python;  // The interpreter that has Ray: a path, or a name in $PATH.
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<OwnFile> files;  // What it may bring to nodes. Empty: nothing.
  int log = -1;                // Takes its output; -1: ours.
};

class ShimProcess final : net::FdHandler {
 public:
  class Handler {
   public:
    virtual void on_shim_line(const ShimLine& line) = 0;
    // Called once. The shim has ended, or what it said made no sense. May destroy the object.
    virtual void on_shim_gone(const std::string& why) = 0;

   protected:
    ~Handler() = default;
  };

  // kUnavailable, kNotFound: there is no such interpreter.
  static Result<std::unique_ptr<ShimProcess>> start(net::EventLoop& loop,
                                                    const ShimOptions& options, Handler& handler);
  ShimProcess(const ShimProcess&) = delete;
  ShimProcess& operator=(const ShimProcess&) = delete;
  ~ShimProcess();  // Kills it.

  void send(uint64_t id, const ShimRequest& request);
  // Kills it. It says nothing more.
  void kill();
  // Waits for its next lines, and takes them, without the loop: for the end of a launcher.
  void wait(Duration at_most);

 private:
  ShimProcess(net::EventLoop& loop, net::Fd socket, Handler& handler)
      : loop_(loop), socket_(std::move(socket)), handler_(handler) {}

  void on_ready(uint32_t epoll_events) override;
  void write_more();
  // Returns false at the end of what the shim says.
  bool read_more();
  // Returns false if the object may be gone.
  bool take_lines();
  void end(const std::string& why);

  net::EventLoop& loop_;
  const net::Fd socket_;
  Handler& handler_;
  std::unique_ptr<net::ChildProcess> child_;
  std::string unsent_;
  std::string received_;
  bool ended_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // For calls that destroy us.
};

}  // namespace pdjob::launcher
