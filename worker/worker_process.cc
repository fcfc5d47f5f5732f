#include "worker/worker_process.h"

#include <cstdio>
#include <optional>
#include <utility>

#include "common/exit_code.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/os/stack_dump.h"
#include "common/random.h"
#include "engine/engine.h"
#include "kvtransfer/link/link_keys.h"
#include "net/control/job_member.h"
#include "net/http/http_server.h"
#include "net/loop/event_loop.h"
#include "worker/api/openai_api.h"
#include "worker/core/engine_thread.h"
#include "worker/worker_member.h"

namespace pdjob::worker {
namespace {

kvtransfer::Fingerprint fingerprint(const engine::ModelFacts& facts) {
  return {{"model_digest", facts.digest},
          {"kv_type", facts.kv_type},
          {"layers", std::to_string(facts.layers)},
          {"heads", std::to_string(facts.heads)},
          {"kv_heads", std::to_string(facts.kv_heads)},
          {"head_dim", std::to_string(facts.head_dim)},
          {"vocabulary", std::to_string(facts.vocabulary)},
          {"rope", facts.rope},
          {"kv_bytes_per_token", std::to_string(facts.kv_bytes_per_token)},
          {"library", facts.library}};
}

// All parts of one worker, built in the order of their dependencies and destroyed in reverse.
class WorkerProcess {
 public:
  explicit WorkerProcess(const WorkerOptions& options) : options_(options) {}

  ~WorkerProcess() {
    server_.reset();  // No new requests.
    if (engine_thread_) {
      engine_thread_->stop();
    }
    endpoint_.reset();  // Its sink, the engine thread's inbox, still exists.
  }

  Status start(const CoreFactory& make_core) {
    PDJOB_TRY(engine_, engine::open_engine(options_.engine));
    const engine::EngineConfig& built = engine_->config();
    engine_thread_ = std::make_unique<EngineThread>(
        *engine_,
        make_core({.sequences = built.sequences,
                   .rows_per_sequence = built.tokens_per_sequence,
                   .batch_tokens = built.batch_tokens}),
        options_.kv.lease, [this](OutputBatch batch) { post(std::move(batch)); });
    std::optional<kvtransfer::LinkKeys> keys;
    if (!options_.spec.link_keys.empty()) {
      PDJOB_TRY(keys, kvtransfer::parse_link_keys(options_.spec.link_keys));
    }
    PDJOB_TRY(endpoint_, kvtransfer::KvEndpoint::start(
                             {.config = options_.kv,
                              .engine_id = options_.spec.engine_id,
                              .keys = keys,
                              .fingerprint = fingerprint(engine_->facts()),
                              .sink =
                                  [this](kvtransfer::EndpointEvent event) {
                                    engine_thread_->on_endpoint_event(std::move(event));
                                  },
                              .device = engine_->kv_region(SequenceId{0}).device}));
    engine_thread_->start(*endpoint_);
    api_ = std::make_unique<OpenaiApi>(
        OpenaiApiOptions{.name = options_.spec.name,
                         .role = options_.spec.role,
                         .kv = endpoint_->address(),
                         .key = options_.spec.key,
                         .router_key = options_.spec.router_key,
                         .local_links = options_.spec.link_keys.empty()},
        *engine_, *engine_thread_, metrics_,
        [this](auto answer) { ask_kv_pairs(std::move(answer)); });
    PDJOB_TRY(server_, net::HttpServer::open(loop_, *api_,
                                             {.host = options_.spec.host,
                                              .port = options_.spec.port,
                                              .listen_fd = options_.spec.listen_fd}));
    api_->attach(*server_, loop_);
    member_.emplace(WorkerMember::Parts{.api = *api_,
                                        .server = *server_,
                                        .drain_engine = [this] { engine_thread_->drain(); },
                                        .end = [this] { loop_.stop(); }});
    PDJOB_TRY(auto in_job,
              net::JobMember::open(loop_, *member_, options_.spec, options_.drain_timeout));
    member_->serve(std::move(in_job), api_->entry(options_.spec.host, server_->port()));
    if (options_.spec.control.empty()) {
      // Started by hand: stdout tells the port.
      std::printf("ready url=http://%s:%u\n", options_.spec.host.c_str(), server_->port());
      std::fflush(stdout);
    }
    log::info("serving " + engine_->facts().name + " as " + net::to_string(options_.spec.role) +
              " on http://" + options_.spec.host + ":" + std::to_string(server_->port()));
    return ok();
  }

  void run() { loop_.run(); }

 private:
  // On the engine thread.
  void post(OutputBatch batch) {
    loop_.post([this, batch = std::move(batch)]() mutable { member_->take(std::move(batch)); });
  }

  // Called on the loop thread; the answer comes there too.
  void ask_kv_pairs(std::function<void(const std::vector<kvtransfer::PairStats>&,
                                       const kvtransfer::EndpointStats&)>
                        answer) {
    endpoint_->report_pairs([this, answer = std::move(answer)](auto pairs) {
      loop_.post([this, answer, pairs = std::move(pairs)] { answer(pairs, endpoint_->stats()); });
    });
  }

  const WorkerOptions options_;
  Metrics metrics_;
  net::EventLoop loop_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<EngineThread> engine_thread_;
  std::unique_ptr<kvtransfer::KvEndpoint> endpoint_;
  std::unique_ptr<OpenaiApi> api_;
  std::unique_ptr<net::HttpServer> server_;
  std::optional<WorkerMember> member_;
};

}  // namespace

int run_worker(const WorkerOptions& options, const CoreFactory& make_core) {
  net::block_signals();
  install_stack_dump();
  WorkerProcess process(options);
  if (const Status started = process.start(make_core); !started) {
    log::error("cannot start: " + started.error().message);
    return kExitFailed;
  }
  process.run();
  return kExitOk;
}

}  // namespace pdjob::worker
