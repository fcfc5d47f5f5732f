// OpenaiApi: the HTTP face of an engine worker. Turns OpenAI requests into GenerationRequests and
// their tokens into replies; answers /v1/models, /tokenize, /detokenize, /health, /metrics and
// /pdjob/worker, /pdjob/links and /pdjob/kv_events itself. Runs on the loop thread. Loop-bound.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "common/job_keys.h"
#include "common/metrics.h"
#include "engine/engine.h"
#include "net/http_server.h"
#include "net/message.h"
#include "net/openai.h"
#include "net/openai_reply.h"
#include "worker/bootstrap.h"
#include "worker/generation.h"
#include "worker/generation_maker.h"
#include "worker/grammar_store.h"
#include "worker/grammar_thread.h"
#include "worker/kv_watch.h"
#include "worker/preparations.h"
#include "worker/request_preparer.h"
#include "worker/worker_metrics.h"

namespace pdjob::worker {

class EngineThread;

struct OpenaiApiOptions {
  std::string name;  // Of the worker, for x-pdjob-worker.
  net::Role role = net::Role::kBoth;
  kvtransfer::EndpointAddress kv;  // Where this worker's rows are fetched.
  std::string key;                 // What its HTTP port wants; empty: nothing.
  std::string router_key;          // What opens it, too; empty: nothing does.
  Duration queue_timeout = std::chrono::minutes(10);
  GrammarProgram grammar_program;
};

// Asks the KV endpoint for its pairs; the answer comes later, on the loop thread. It has the totals
// too.
using KvPairsAsker =
    std::function<void(std::function<void(const std::vector<kvtransfer::PairStats>&,
                                          const kvtransfer::EndpointStats&)>)>;

class OpenaiApi final : public net::HttpHandler {
 public:
  OpenaiApi(OpenaiApiOptions options, const engine::Engine& engine, EngineThread& engine_thread,
            Metrics& metrics, KvPairsAsker ask_kv_pairs);

  // The server replies go to; it needs this handler to be made. Requires: before the first request.
  void attach(net::HttpServer& server, net::EventLoop& loop);

  // Stops at the door who has no key, before the body is read.
  std::optional<net::EarlyReply> on_head(net::HttpRequest& request) override;
  void on_request(net::ExchangeId id, net::HttpRequest& request) override;
  void on_client_gone(net::ExchangeId id) override;

  // What the engine thread produced. True: it has drained.
  bool take(OutputBatch batch);
  // From now on new requests are refused, and /health says 503. `prepared` is called once, when the
  // engine thread has all requests that came before.
  void start_draining(std::function<void()> prepared);

  net::WorkerEntry entry(const std::string& host, uint16_t port) const;
  net::WorkerLoad load() const;

 private:
  using ExchangeKey = uint64_t;  // ExchangeId::value: exchanges are looked up in order of arrival.

  // All of one choice so far; in a stream only what has not been sent.
  struct ChoiceReply {
    std::string text;
    std::vector<GeneratedToken> tokens;
    std::vector<Token> untold;  // Generated, and not yet told to who may go on with them elsewhere.
    FinishReason finish = FinishReason::kNone;
  };
  // One HTTP request: one generation per prompt, one reply.
  struct Exchange {
    net::ExchangeId http;
    std::unique_ptr<net::ReplyWriter> writer;
    std::vector<RequestId> generations;       // In order of prompts.
    std::vector<std::vector<Token>> prompts;  // Their tokens, if they are to be reported.
    std::vector<ChoiceReply> choices;         // Of prompt p: [p * n, p * n + n).
    uint32_t choices_per_prompt = 1;
    uint32_t choices_left = 0;
    bool stream = false;
    bool begun = false;  // The head is out.
    bool tells = false;  // Each chunk of the stream tells the router the tokens it came from.
    net::Usage usage;
    std::string kv_transfer_params;  // Of the reply; empty: none.
    std::vector<std::pair<std::string, std::string>> headers;
    Instant arrived{};
    Instant last_token{};
  };

  // What the headers of a request say.
  struct Asked {
    net::ExchangeId http;
    std::string request_id;
    std::string tenant;  // Whose request it is, as the router says; empty: there are no tenants.
    std::optional<int64_t> created;  // By a router, which may go on with the stream elsewhere.
    size_t bytes = 0;                // Of its body.
  };

  void on_generate(net::ExchangeId id, net::ApiKind kind, net::HttpRequest& request);
  void on_parsed(Asked asked, std::variant<net::ApiRequest, net::ApiError> parsed);
  void on_bootstrap(Asked asked, net::ApiRequest request);
  // What comes between a parsed request and its start, step by step. A client that leaves ends it.
  // Each step ends by the next one, or by refuse().
  // Has what structures the output compiled first, or, for a prompt that is only offered, checked.
  void generate(const Asked& asked, net::ApiRequest request);
  void prepare(const Asked& asked, net::ApiRequest request, GrammarThread::Compiled grammar);
  // Small work is done now, large work in its turns on the thread "prepare".
  enum class Size { kSmall, kLarge };
  void prepare(net::ExchangeId id, size_t bytes, Size size, std::unique_ptr<Preparation> work);
  // Replies with what comes, unless the client leaves.
  BodyThen reply_with_body(net::ExchangeId id);
  // False: refused, because too many wait.
  bool begin_waiting(net::ExchangeId id, size_t bytes);
  // For /tokenize and /detokenize.
  bool begin_tokenizing(net::ExchangeId id, size_t bytes);
  // False: it did not wait, or its client left.
  bool end_waiting(net::ExchangeId id);
  void on_release(net::ExchangeId id, std::string_view transfer);
  void on_tokenize(net::ExchangeId id, const net::HttpRequest& request);
  void on_detokenize(net::ExchangeId id, const net::HttpRequest& request);
  void on_models(net::ExchangeId id);
  void on_health(net::ExchangeId id);
  void on_metrics(net::ExchangeId id);
  void on_worker_info(net::ExchangeId id);
  // Opens an object that says who this worker is.
  void begin_self(net::JsonWriter& json) const;
  void on_links(net::ExchangeId id);
  void on_kv_address(net::ExchangeId id);

  void start(const Asked& asked, PreparedRequest prepared);
  void refuse(net::ExchangeId id, const net::ApiError& error);

  void take_output(TokenOutput& output);
  void take_output(const KvFetched& output);
  void take_output(const PromptReused& output);
  void take_output(const RequestFailed& output);
  // False: the client reads too slowly, and the exchange is gone. `known`: whoever asked to go on
  // with a stream has this part.
  bool send_part(Exchange& exchange, uint32_t choice, bool known);
  void begin_stream(Exchange& exchange);
  // What the chunk of this part says of its tokens: "t=CHOICE.TOKEN.TOKEN". Empty: nothing.
  std::string_view told(const Exchange& exchange, uint32_t choice);
  void finish(Exchange& exchange);
  // Forgets the exchange; cancels what is still generated for it.
  void drop(ExchangeKey key);

  const OpenaiApiOptions options_;
  const KeyCheck door_;
  const engine::Engine& engine_;
  const GenerationMaker maker_;
  EngineThread& engine_thread_;
  WorkerMetrics metrics_;
  Metrics& registry_;
  const KvPairsAsker ask_kv_pairs_;
  net::HttpServer* server_ = nullptr;
  net::EventLoop* loop_ = nullptr;
  std::optional<Bootstrap> bootstrap_;
  std::optional<KvWatch> kv_watch_;
  // Requests that have not started: their KV is looked for, or they are being prepared. With the
  // size of their bodies.
  std::unordered_map<ExchangeKey, size_t> waiting_;
  size_t waiting_bytes_ = 0;
  std::function<void()> when_prepared_;  // While draining.

  struct Generation {
    ExchangeKey exchange = 0;
    uint32_t prompt_index = 0;
  };
  std::map<ExchangeKey, Exchange> exchanges_;
  std::unordered_map<RequestId, Generation> generations_;
  uint64_t next_request_ = 1;
  std::string buffer_;  // Of the event being written.
  std::string extension_;
  CoreLoad load_;
  bool draining_ = false;
  std::optional<GrammarThread> grammar_thread_;
  std::optional<GrammarStore> grammars_;
  std::optional<RequestPreparer> preparer_;  // The first to go: its thread uses the maker.
};

}  // namespace pdjob::worker
