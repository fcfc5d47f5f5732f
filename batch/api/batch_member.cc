#include "batch/api/batch_member.h"

#include <memory>
#include <utility>

#include "batch/api/batch_server.h"
#include "common/exit_code.h"
#include "common/log.h"
#include "net/control/job_member.h"
#include "net/loop/event_loop.h"
#include "net/loop/signals.h"

namespace pdjob::batch {
namespace {

class BatchMember final : net::JobMember::Handler {
 public:
  explicit BatchMember(const BatchMemberOptions& options) : options_(options) {}

  Status start() {
    const net::ProcessSpec& spec = options_.spec;
    PDJOB_TRY(RowServer rows, parse_row_server(spec.front_address));
    rows.key = spec.rows_key;
    // The launcher holds that port, so nobody else can answer there, whatever name is in the
    // certificate.
    rows.peer = net::Peer::kOfThisMachine;
    rows.row_timeout = options_.row_timeout;
    rows.make_client = [this](const RowServer& server) { return make_row_client(loop_, server); };
    PDJOB_TRY(server_,
              BatchServer::open(
                  loop_,
                  {.config = options_.config,
                   .http = {.host = spec.host, .port = spec.port, .listen_fd = spec.listen_fd},
                   .key = spec.key,
                   .rows = std::move(rows)},
                  [this](const std::string& why) {
                    log::error("the disk failed: " + why);
                    exit_code_ = kExitFailed;
                    loop_.stop();
                  }));
    PDJOB_TRY(member_, net::JobMember::open(loop_, *this, spec, options_.drain_timeout));
    member_->serve({.name = spec.name,
                    .engine_id = spec.engine_id,
                    .role = net::Role::kBatch,
                    .host = spec.host,
                    .port = server_->http().port()});
    log::info("files and batches are in " + options_.config.dir);
    return ok();
  }

  int run() {
    loop_.run();
    return exit_code_;
  }

 private:
  void on_drain(Duration /*within*/) override {
    server_->drain([this] { member_->drained(); });
  }
  size_t replies_alive() override { return server_->http().replies_alive(); }
  void on_shutdown() override { loop_.stop(); }
  net::WorkerLoad current_load() override {
    return {.requests_running = static_cast<uint32_t>(server_->batches().rows_in_flight())};
  }

  const BatchMemberOptions options_;
  net::EventLoop loop_;
  int exit_code_ = kExitOk;
  std::unique_ptr<BatchServer> server_;
  std::unique_ptr<net::JobMember> member_;
};

}  // namespace

int run_batch_member(const BatchMemberOptions& options) {
  net::block_signals();
  BatchMember process(options);
  if (const Status started = process.start(); !started) {
    log::error("cannot start: " + started.error().message);
    return kExitFailed;
  }
  return process.run();
}

}  // namespace pdjob::batch
