// OpenaiApi: the HTTP API of an engine worker. GenerationIntake turns OpenAI requests into
// GenerationRequests, and ReplyBook their tokens into replies. It answers questions about the model
// and the worker itself. Runs on the loop thread. Loop-bound.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/crypto/job_keys.h"
#include "common/json/json_writer.h"
#include "common/metrics.h"
#include "engine/engine.h"
#include "net/control/message.h"
#include "net/http/http_server.h"
#include "openai/abort_request.h"
#include "worker/api/generation_intake.h"
#include "worker/api/kv_watch.h"
#include "worker/api/load_meter.h"
#include "worker/api/plain_replies.h"
#include "worker/api/reply_book.h"
#include "worker/api/worker_metrics.h"
#include "worker/core/engine_queue.h"
#include "worker/core/generation.h"

namespace pdjob::worker {

struct OpenaiApiOptions {
  std::string name;  // The worker's name, for x-pdjob-worker.
  net::Role role = net::Role::kBoth;
  kvtransfer::EndpointAddress kv;  // The address for fetching this worker's rows.
  std::string key;                 // Clients must show this key; empty if none is needed.
  std::string router_key;          // A second valid key, for routers; empty if none.
  bool local_links = false;        // WorkerEntry::local_links.
  Duration queue_timeout = std::chrono::minutes(10);
  GrammarProgram grammar_program;
  std::string weight_version;  // The version of the engine's weights; empty: "default".
  // KvEndpoint::standstill() of the endpoint at `kv`.
  std::function<Duration()> kv_standstill = [] { return Duration::zero(); };
  // The waits of this process's threads for cores, until now.
  std::function<RunDelays()> run_delays = [] { return RunDelays(); };
};

// Asks the KV endpoint for its pairs and totals. The answer comes later, on the loop thread.
using KvPairsAsker =
    std::function<void(std::function<void(const std::vector<kvtransfer::PairStats>&,
                                          const kvtransfer::EndpointStats&)>)>;

class OpenaiApi final : public net::HttpHandler {
 public:
  OpenaiApi(OpenaiApiOptions options, const engine::Engine& engine, EngineQueue& engine_queue,
            Metrics& metrics, KvPairsAsker ask_kv_pairs);

  // Sets the server for replies, whose construction needs this handler. Must come before the first
  // request.
  void attach(net::HttpServer& server, net::Loop& loop);

  // Its routes, as methods and paths, for the reference page.
  static std::vector<std::pair<std::string_view, std::string_view>> routes();

  // Refuses a client without a key before the body is read.
  std::optional<net::EarlyReply> on_head(net::HttpRequest& request) override;
  void on_request(net::ExchangeId id, net::HttpRequest& request) override;
  void on_client_gone(net::ExchangeId id) override;

  // Ends the requests that are meant: they are answered at once, with 200, what they have so far,
  // and finish reason "abort". `tenant`: only its requests; empty: everybody's. Returns how many.
  size_t abort(const openai::AbortRequest& asked, std::string_view tenant = {});

  // Takes outputs of the engine thread. Returns true if it has drained.
  bool take(OutputBatch batch);
  // From now on new requests are refused, and /health answers 503. Calls `prepared` once, when the
  // engine thread has all earlier requests.
  void start_draining(std::function<void()> prepared);

  net::WorkerEntry entry(const std::string& host, uint16_t port) const;
  net::WorkerLoad load();

 private:
  // Of the engine (fingerprint.h).
  std::string meaning() const;
  std::string fingerprint() const;
  struct Route {
    std::string_view path;
    std::string_view method;
    void (OpenaiApi::*handle)(net::ExchangeId, net::HttpRequest&);
  };
  static std::span<const Route> route_table();

  template <openai::ApiKind kind>
  void on_generate(net::ExchangeId id, net::HttpRequest& request);
  template <openai::AbortForm form>
  void on_abort(net::ExchangeId id, net::HttpRequest& request);
  void on_release(net::ExchangeId id, std::string_view transfer);
  void on_tokenize(net::ExchangeId id, net::HttpRequest& request) {
    intake_->tokenize(id, request);
  }
  void on_detokenize(net::ExchangeId id, net::HttpRequest& request) {
    intake_->detokenize(id, request);
  }
  // vLLM's description of its tokenizer: the texts that bound a prompt.
  void on_tokenizer_info(net::ExchangeId id, net::HttpRequest& request);
  void on_models(net::ExchangeId id, net::HttpRequest& request);
  void on_health(net::ExchangeId id, net::HttpRequest& request);
  void on_metrics(net::ExchangeId id, net::HttpRequest& request);
  void on_worker_info(net::ExchangeId id, net::HttpRequest& request);
  void on_links(net::ExchangeId id, net::HttpRequest& request);
  void on_kv_address(net::ExchangeId id, net::HttpRequest& request);
  void on_kv_events(net::ExchangeId id, net::HttpRequest& request) {
    kv_watch_->subscribe(id, request.is_head);
  }
  // Opens a JSON object that identifies this worker.
  void begin_self(JsonWriter& json) const;
  bool prepared() const { return intake_->empty() && book_->prompts_held() == 0; }
  // While draining.
  void report_if_prepared();

  const OpenaiApiOptions options_;
  const KeyCheck door_;
  const engine::Engine& engine_;
  EngineQueue& engine_queue_;
  WorkerMetrics metrics_;
  Metrics& registry_;
  const KvPairsAsker ask_kv_pairs_;
  LoadMeter meter_;
  net::HttpServer* server_ = nullptr;
  net::Loop* loop_ = nullptr;
  int64_t created_ = 0;  // When this worker began to serve its model, in Unix seconds.
  bool draining_ = false;
  std::function<void()> when_prepared_;  // While draining.
  // Empty before attach().
  std::optional<PlainReplies> replies_;
  std::optional<KvWatch> kv_watch_;
  std::optional<ReplyBook> book_;
  std::optional<GenerationIntake> intake_;
};

}  // namespace pdjob::worker
