// The batch as a process: scans the input, starts a pool, runs the rows, and writes results and
// report. The caller gives the Pool, which serves the rows.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "batch/batch_options.h"
#include "batch/row_client.h"
#include "common/result.h"
#include "net/loop/event_loop.h"

namespace pdjob::batch {

// Serves the rows. Loop-bound.
class Pool {
 public:
  virtual ~Pool() = default;  // Ends at once what it started.
  // Calls `ready` once. Later it calls `died` if the pool ends by itself, with the reason.
  virtual void start(std::function<void(Result<RowServer>)> ready,
                     std::function<void(std::string)> died) = 0;
  // Calls `stopped` when what start() started has ended; in a later turn.
  virtual void stop(std::function<void()> stopped) = 0;
};
using MakePool = std::function<std::unique_ptr<Pool>(net::EventLoop& loop)>;

// Returns the exit code (common/exit_code.h). It makes a pool only if rows are pending.
int run_batch(const BatchOptions& options, const MakePool& make_pool);

// Prints how far the batch in this folder is. Returns the exit code.
int show_batch_status(const std::string& folder);

// A server that runs already.
class RunningServer final : public Pool {
 public:
  RunningServer(net::EventLoop& loop, RowServer server) : loop_(loop), server_(std::move(server)) {}
  void start(std::function<void(Result<RowServer>)> ready,
             std::function<void(std::string)> /*died*/) override {
    loop_.post([ready = std::move(ready), server = server_] { ready(server); });
  }
  void stop(std::function<void()> stopped) override { loop_.post(std::move(stopped)); }

 private:
  net::EventLoop& loop_;
  const RowServer server_;
};

}  // namespace pdjob::batch
