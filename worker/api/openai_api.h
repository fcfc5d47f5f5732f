// OpenaiApi: the HTTP API of an engine worker. Turns OpenAI requests into GenerationRequests and
// their tokens into replies. Answers /v1/models, /tokenize, /detokenize, /health, /metrics,
// /pdjob/worker, /pdjob/links and /pdjob/kv_events itself. Runs on the loop thread. Loop-bound.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "common/crypto/job_keys.h"
#include "common/metrics.h"
#include "engine/engine.h"
#include "net/control/message.h"
#include "net/http/http_server.h"
#include "openai/abort_request.h"
#include "openai/openai.h"
#include "openai/openai_reply.h"
#include "worker/api/bootstrap.h"
#include "worker/api/generation_maker.h"
#include "worker/api/kv_watch.h"
#include "worker/api/preparations.h"
#include "worker/api/request_preparer.h"
#include "worker/api/starved_time.h"
#include "worker/api/tool_replies.h"
#include "worker/api/worker_metrics.h"
#include "worker/core/engine_queue.h"
#include "worker/core/generation.h"
#include "worker/grammar/grammar_store.h"
#include "worker/grammar/grammar_thread.h"

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
  std::string weight_version;  // Of the weights that the engine has; empty: "default".
  // KvEndpoint::standstill() of the endpoint at `kv`.
  std::function<Duration()> kv_standstill = [] { return Duration::zero(); };
  // Of this process, now.
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

  // The engine has other weights from now on: tokens that come later are of this version.
  void set_weight_version(std::string version);

  net::WorkerEntry entry(const std::string& host, uint16_t port) const;
  net::WorkerLoad load();

 private:
  struct Route {
    std::string_view path;
    std::string_view method;
    void (*handle)(OpenaiApi&, net::ExchangeId, net::HttpRequest&);
  };
  static std::span<const Route> route_table();

  using ExchangeKey = uint64_t;  // ExchangeId::value: exchanges are looked up in order of arrival.

  // All output of one choice so far; in a stream, only the unsent part.
  struct ChoiceReply {
    std::string text;
    std::vector<GeneratedToken> tokens;
    // Generated tokens that the router does not know yet; it may continue them elsewhere.
    std::vector<Token> untold;
    FinishReason finish = FinishReason::kNone;
    std::optional<Token> stop_token;  // What ended it, if a token or a string did.
    std::string stop_string;
    std::vector<openai::WeightSpan> weights;  // Of all its tokens.
    uint64_t completion_tokens = 0;
    uint64_t tokens_noted = 0;         // Those of `weights` that this worker has seen.
    size_t resumed_left = 0;           // Tokens of pdjob_resume that have not come back yet.
    std::string told_weights;          // The last version that the router knows.
    std::optional<ChoiceCalls> tools;  // If it may call tools.
    std::vector<openai::ToolCallPart> calls;
  };
  struct LatencySum {
    Duration sum{};
    uint64_t count = 0;
  };
  struct PromptReply {
    RequestId generation;
    std::string rid;         // The client's own name of it; empty: none.
    std::vector<Token> ids;  // If the reply reports them.
    uint64_t tokens = 0;
    uint64_t cached_tokens = 0;
    bool scored = false;  // The reply has `logprobs`.
    PromptLogprobs logprobs = {};
    std::vector<float> embedding = {};
    bool abort_wanted = false;  // Once the tokens of pdjob_resume are back.
    bool submitted = false;     // The engine has it, or had it.
    uint32_t choices_left = 1;
  };
  // One HTTP request: one generation per prompt, one reply.
  struct Exchange {
    net::ExchangeId http;
    std::string log_name;
    std::string request_id;  // As it came.
    std::string leg;         // The router's own name of it; empty: a direct caller.
    std::string tenant;
    std::unique_ptr<openai::ReplyForm> writer;
    std::vector<PromptReply> prompts;
    std::deque<GenerationRequest> held;  // Those of its prompts that the engine has not got yet.
    size_t prompts_submitted = 0;        // That have not ended.
    std::vector<ChoiceReply> choices;    // Prompt p has [p * n, p * n + n).
    uint32_t choices_per_prompt = 1;
    uint32_t choices_left = 0;
    bool stream = false;
    bool begun = false;       // The head is out.
    bool embeds = false;      // It has embeddings, and is never aborted: half a reply is useless.
    bool aborted = false;     // At least one of its prompts was.
    bool shows_ends = false;  // The reply's tokens include those that end it.
    bool tells = false;       // Each chunk of the stream tells the router its tokens.
    openai::Usage usage;
    std::string kv_transfer_params;  // For the reply; empty if none.
    std::vector<std::pair<std::string, std::string>> headers;
    Instant arrived{};
    Instant last_token{};
  };

  struct Generation {
    ExchangeKey exchange = 0;
    uint32_t prompt_index = 0;
  };

  // The facts in a request's headers.
  struct Asked {
    net::ExchangeId http;
    std::string request_id;
    std::string leg;     // x-pdjob-leg.
    std::string tenant;  // The owner, as the router says; empty if there are no tenants.
    // Set by a router that may continue the stream at another worker.
    std::optional<int64_t> created;
    size_t bytes = 0;           // Size of its body.
    std::string not_held = {};  // x-pdjob-not-held.
  };

  void on_generate(net::ExchangeId id, openai::ApiKind kind, net::HttpRequest& request);
  void on_parsed(Asked asked, std::variant<openai::ApiRequest, openai::ApiError> parsed);
  void on_bootstrap(Asked asked, openai::ApiRequest request);
  // The steps between a parsed request and its start. Each step ends in the next one or in
  // refuse(). A client that leaves ends them.
  // generate() first compiles the output's grammar or schema, or only checks it if the prompt is
  // only offered.
  void generate(const Asked& asked, openai::ApiRequest request);
  void prepare(const Asked& asked, openai::ApiRequest request,
               std::shared_ptr<const engine::CompiledGrammar> grammar);
  // Small work runs at once; large work takes turns on the thread "prepare".
  enum class Size { kSmall, kLarge };
  void prepare(net::ExchangeId id, size_t bytes, Size size, std::unique_ptr<Preparation> work);
  // Returns a function that replies with its body, unless the client has left.
  BodyThen reply_with_body(net::ExchangeId id);
  // Returns false if it refused the request because too many wait.
  bool begin_waiting(net::ExchangeId id, size_t bytes);
  // Same, for /tokenize and /detokenize.
  bool begin_tokenizing(net::ExchangeId id, size_t bytes);
  // Returns false if the request did not wait, or its client left.
  bool end_waiting(net::ExchangeId id);
  void on_release(net::ExchangeId id, std::string_view transfer);
  void on_tokenize(net::ExchangeId id, const net::HttpRequest& request);
  void on_detokenize(net::ExchangeId id, const net::HttpRequest& request);
  // vLLM's description of its tokenizer: the texts that bound a prompt.
  void on_tokenizer_info(net::ExchangeId id);
  void on_abort(net::ExchangeId id, openai::AbortForm form, const net::HttpRequest& request);
  // Ends the prompts that are meant. Returns how many; the exchange may be gone afterwards.
  size_t abort(Exchange& exchange, const openai::AbortRequest& asked);
  // Ends the choices of this prompt that go on. Returns false if the exchange is gone.
  bool abort_prompt(Exchange& exchange, uint32_t prompt);
  // True if tokens of pdjob_resume are missing in a choice of this prompt that goes on.
  static bool resumes(const Exchange& exchange, uint32_t prompt);
  // `one`: the id of one model, percent-encoded.
  void on_models(net::ExchangeId id, std::optional<std::string_view> one);
  void on_health(net::ExchangeId id);
  void on_metrics(net::ExchangeId id);
  void on_worker_info(net::ExchangeId id);
  // Opens a JSON object that identifies this worker.
  void begin_self(JsonWriter& json) const;
  void on_links(net::ExchangeId id);
  void on_kv_address(net::ExchangeId id);

  void start(const Asked& asked, PreparedRequest prepared);
  // Gives the engine as many of its prompts as it may have at the same time. The exchange may be
  // gone afterwards.
  void submit_held(Exchange& exchange);
  // While draining.
  void report_if_prepared();
  void refuse(net::ExchangeId id, const openai::ApiError& error,
              std::vector<std::pair<std::string, std::string>> headers = {});

  void take_output(TokenOutput& output);
  void take_output(const KvFetched& output);
  void take_output(const PromptReused& output);
  void take_output(PromptScored& output);
  void take_output(PromptEmbedded& output);
  void take_output(const RequestFailed& output);
  // Returns false if the client reads too slowly; the exchange is then gone. `known`: the asker
  // continues a stream and has this part already.
  bool send_part(Exchange& exchange, uint32_t choice, bool known);
  // Text that a choice adds to its reply; calls of tools are taken out of it.
  static void add_text(ChoiceReply& choice, std::string_view text);
  void note_weights(std::vector<openai::WeightSpan>& weights) const;
  openai::ReplyPart part_of(const Exchange& exchange, uint32_t choice) const;
  void begin_stream(Exchange& exchange);
  // The chunk's note of its tokens for the router: "t=CHOICE.TOKEN.TOKEN", and ";w=" with the
  // version of the weights, in hexadecimal, where it is another one than before. Empty if there is
  // none.
  std::string_view told(const Exchange& exchange, ChoiceReply& choice, uint32_t index);
  void finish(Exchange& exchange);
  // Removes the exchange and cancels its running generations.
  void drop(ExchangeKey key);
  // How long the engine stands still, or a helper thread that does so for longer.
  Standstill standstill();

  // Tokens of the prompt that this worker, or the one that the rows come from, had computed before.
  void note_cached(const Generation& generation, uint64_t tokens);

  const OpenaiApiOptions options_;
  const KeyCheck door_;
  const engine::Engine& engine_;
  const GenerationMaker maker_;
  EngineQueue& engine_queue_;
  StarvedTime engine_starved_;
  StarvedTime helper_starved_;
  WorkerMetrics metrics_;
  Metrics& registry_;
  const KvPairsAsker ask_kv_pairs_;
  net::HttpServer* server_ = nullptr;
  net::Loop* loop_ = nullptr;
  std::optional<Bootstrap> bootstrap_;
  std::optional<KvWatch> kv_watch_;
  // A request that has not started: its KV address is looked up, or it is being prepared.
  struct Waiting {
    size_t bytes = 0;  // Of its body.
    std::string request_id;
    std::string leg;
    std::string tenant;
    openai::AbortRequest aborted;  // The part of it that never starts.
  };
  std::unordered_map<ExchangeKey, Waiting> waiting_;
  size_t waiting_bytes_ = 0;
  size_t prompts_held_ = 0;              // Over all exchanges.
  std::function<void()> when_prepared_;  // While draining.

  std::map<ExchangeKey, Exchange> exchanges_;
  std::unordered_map<RequestId, Generation> generations_;
  uint64_t next_request_ = 1;
  std::string buffer_;  // The event being written.
  std::string extension_;
  std::string weight_version_;
  int64_t created_ = 0;  // When this worker began to serve its model, in Unix seconds.
  CoreLoad load_;
  EngineWork work_;
  LatencySum ttft_;
  LatencySum itl_;
  bool draining_ = false;
  std::optional<GrammarThread> grammar_thread_;
  std::optional<GrammarStore> grammars_;
  std::optional<RequestPreparer> preparer_;  // Destroyed first: its thread uses the maker.
};

}  // namespace pdjob::worker
