#include "worker/worker_process.h"

#include <cstdio>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "common/address_text.h"
#include "common/exit_code.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/os/run_delay.h"
#include "common/os/stack_dump.h"
#include "common/os/tied_posts.h"
#include "common/random.h"
#include "engine/engine.h"
#include "engine/model_facts.h"
#include "kvtransfer/link/link_keys.h"
#include "net/control/job_member.h"
#include "net/http/http_server.h"
#include "net/http/own_names.h"
#include "net/loop/event_loop.h"
#include "net/loop/socket.h"
#include "worker/api/openai_api.h"
#include "worker/core/engine_thread.h"
#include "worker/core/fingerprint.h"
#include "worker/weight_loader.h"
#include "worker/worker_member.h"

namespace pdjob::worker {
namespace {

// All parts of one worker, built in the order of their dependencies and destroyed in reverse. A
// change of the role replaces all but the engine, which keeps the model, and the member. A change
// of the weights replaces the engine, too.
class WorkerProcess {
 public:
  explicit WorkerProcess(const WorkerOptions& options) : options_(options), spec_(options.spec) {}
  ~WorkerProcess() { take_down(); }
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  Status start() {
    // Before and after, because the file may change while it is read.
    const std::string& due = spec_.weights.digest;
    if (!due.empty() && options_.engine.own_weights) {
      PDJOB_TRY(const std::string before, engine::file_digest(options_.engine.model_path));
      PDJOB_TRY_STATUS(expect_digest(before));
    }
    PDJOB_TRY(engine_, engine::open_engine(options_.engine));
    if (!due.empty()) {
      PDJOB_TRY_STATUS(expect_digest(engine_->facts().digest));
    }
    if (updates_weights()) {
      loader_.emplace(loop_, options_.weights_dir, [this](net::WeightsPrepared answer) {
        answer.engine_id = spec_.engine_id;
        member_->tell(answer);
      });
    }
    if (spec_.listen_fd >= 0 && (options_.changes_role || updates_weights())) {
      door_ = net::Fd(fcntl(spec_.listen_fd, F_DUPFD_CLOEXEC, 0));
    }
    PDJOB_TRY_STATUS(build(spec_.listen_fd));
    PDJOB_TRY(auto in_job, net::JobMember::open(loop_, *member_, spec_, options_.drain_timeout));
    member_->serve(std::move(in_job), self());
    if (spec_.control.empty()) {
      // Started by hand: stdout tells the port.
      std::printf("ready url=http://%s\n", address_text(spec_.host, server_->port()).c_str());
      std::fflush(stdout);
    }
    log_role();
    return ok();
  }

  void run() { loop_.run(); }

 private:
  Status build(int listen_fd) {
    const engine::EngineConfig& built = engine_->config();
    posts_.emplace(loop_);
    engine_thread_ = std::make_unique<EngineThread>(
        *engine_,
        options_.core_of(spec_.role)({.sequences = built.sequences,
                                      .rows_per_sequence = built.tokens_per_sequence,
                                      .batch_tokens = built.batch_tokens}),
        options_.kv.lease, [this](OutputBatch batch) { post(std::move(batch)); });
    std::optional<kvtransfer::LinkKeys> keys;
    if (!spec_.link_keys.empty()) {
      PDJOB_TRY(keys, kvtransfer::parse_link_keys(spec_.link_keys));
    }
    PDJOB_TRY(endpoint_, kvtransfer::KvEndpoint::start(
                             {.config = options_.kv,
                              .engine_id = spec_.engine_id,
                              .keys = keys,
                              .fingerprint = link_fingerprint(engine_->facts()),
                              .sink =
                                  [this](kvtransfer::EndpointEvent event) {
                                    engine_thread_->on_endpoint_event(std::move(event));
                                  },
                              .device = engine_->kv_region(SequenceId{0}).device}));
    engine_thread_->start(*endpoint_);
    api_ = std::make_unique<OpenaiApi>(
        OpenaiApiOptions{.name = spec_.name,
                         .role = spec_.role,
                         .kv = endpoint_->address(),
                         .key = spec_.key,
                         .router_key = spec_.router_key,
                         .local_links = spec_.link_keys.empty(),
                         .weight_version = spec_.weights.version,
                         .kv_standstill = [this] { return endpoint_->standstill(); },
                         .run_delays = [] { return run_delays(getpid()); }},
        *engine_, *engine_thread_, metrics_,
        [this](auto answer) { ask_kv_pairs(std::move(answer)); });
    PDJOB_TRY(server_, net::HttpServer::open(
                           loop_, *api_,
                           {.host = spec_.host,
                            .port = spec_.port,
                            .listen_fd = listen_fd,
                            .own_names_only = spec_.key.empty() && net::is_loopback(spec_.host)}));
    api_->attach(*server_, loop_);
    member_.emplace(WorkerMember::Parts{.api = *api_,
                                        .server = *server_,
                                        .drain_engine = [this] { engine_thread_->drain(); },
                                        .end = [this] { loop_.stop(); },
                                        .change_role =
                                            [this](const net::Drain::Next& next) {
                                              loop_.post([this, next] { change_role(next); });
                                            },
                                        .prepare =
                                            [this](const net::PrepareWeights& order) {
                                              if (loader_) {
                                                loader_->prepare(order, *engine_);
                                              }
                                            }});
    return ok();
  }

  Status expect_digest(const std::string& found) const {
    const std::string& due = spec_.weights.digest;
    return found == due
               ? ok()
               : Status(Error{ErrorCode::kCorrupt,
                              "the weights of version " + spec_.weights.version + " have digest " +
                                  due + ", and " + options_.engine.model_path + " has " + found});
  }

  void take_down() {
    server_.reset();  // No new requests.
    if (engine_thread_) {
      engine_thread_->stop();
    }
    if (endpoint_) {
      fingerprints_refused_ += endpoint_->stats().fingerprints_refused;
    }
    endpoint_.reset();  // Its sink, the engine thread's inbox, still exists.
    posts_.reset();     // Both threads have ended. What they posted is not for the next role.
  }

  bool updates_weights() const { return !spec_.weights.version.empty(); }
  net::WorkerEntry self() const {
    net::WorkerEntry entry = api_->entry(spec_.host, server_->port());
    entry.weight_version = spec_.weights.version;
    return entry;
  }
  void log_role() const {
    log::info("serving " + engine_->facts().name + " as " + net::to_string(spec_.role) +
              " on http://" + address_text(spec_.host, server_->port()) +
              (updates_weights() ? ", weights " + spec_.weights.version : ""));
  }

  // It has drained. Rows in use now are those that a peer may still write: then only a new process
  // is safe. Its launcher starts one, as after any end.
  void change_role(const net::Drain::Next& next) {
    const bool can = door_.valid() && api_->load().kv_rows_used == 0;
    const Status done =
        can ? serve_as(next) : Status(Error{ErrorCode::kUnsupported, "a new process has to serve"});
    if (!done) {
      log::warn(std::string("cannot change the role in place: ") + done.error().message);
      loop_.stop();
    }
  }

  Status serve_as(const net::Drain::Next& next) {
    std::unique_ptr<engine::Engine> other = engine_of(next);
    if (next.weights_order > 0 && other == nullptr) {
      return Error{ErrorCode::kUnavailable, "its new weights are not ready"};
    }
    std::unique_ptr<net::JobMember> in_job = member_->release();
    take_down();
    member_.reset();
    api_.reset();
    engine_thread_.reset();
    if (other != nullptr) {
      engine_ = std::move(other);
    } else {
      for (uint32_t i = 0; i < engine_->config().sequences; ++i) {
        engine_->clear(SequenceId{i});
      }
    }
    if (!next.weight_version.empty()) {
      spec_.weights.version = next.weight_version;
    }
    spec_.role = next.role;
    spec_.engine_id = next.engine_id;
    spec_.link_keys = next.link_keys;
    PDJOB_TRY_STATUS(build(fcntl(door_.get(), F_DUPFD_CLOEXEC, 0)));
    member_->serve_on(std::move(in_job), self());
    log_role();
    return ok();
  }

  // Null: it keeps the one that it has.
  std::unique_ptr<engine::Engine> engine_of(const net::Drain::Next& next) {
    return loader_ && next.weights_order > 0 ? loader_->take(next.weights_order) : nullptr;
  }

  // On the engine thread.
  void post(OutputBatch batch) {
    posts_->post([this, batch = std::move(batch)]() mutable { member_->take(std::move(batch)); });
  }

  // Called on the loop thread; the answer comes there too.
  void ask_kv_pairs(std::function<void(const std::vector<kvtransfer::PairStats>&,
                                       const kvtransfer::EndpointStats&)>
                        answer) {
    endpoint_->report_pairs([this, answer = std::move(answer)](auto pairs) {
      posts_->post([this, answer, pairs = std::move(pairs)] {
        kvtransfer::EndpointStats stats = endpoint_->stats();
        stats.fingerprints_refused += fingerprints_refused_;
        answer(pairs, stats);
      });
    });
  }

  const WorkerOptions options_;
  net::ProcessSpec spec_;  // The present role's.
  net::Fd door_;           // The listening socket, for the next role; invalid: there is none.
  Metrics metrics_;
  net::EventLoop loop_;
  std::unique_ptr<engine::Engine> engine_;
  std::optional<WeightLoader> loader_;         // Set in a rollout job.
  std::optional<TiedPosts<net::Loop>> posts_;  // By the present role's threads.
  std::unique_ptr<EngineThread> engine_thread_;
  std::unique_ptr<kvtransfer::KvEndpoint> endpoint_;
  uint64_t fingerprints_refused_ = 0;  // By the endpoints before this one.
  std::unique_ptr<OpenaiApi> api_;
  std::unique_ptr<net::HttpServer> server_;
  std::optional<WorkerMember> member_;
};

}  // namespace

int run_worker(const WorkerOptions& options) {
  net::block_signals();
  install_stack_dump();
  WorkerProcess process(options);
  if (const Status started = process.start(); !started) {
    log::error("cannot start: " + started.error().message);
    return kExitFailed;
  }
  process.run();
  return kExitOk;
}

}  // namespace pdjob::worker
