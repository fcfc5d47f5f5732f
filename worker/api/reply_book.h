// ReplyBook: the requests that the engine has or will have, from their first prompt to the last
// byte of their replies. It gives prompts to the engine, and turns outputs into replies.
// Loop-bound.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "kvtransfer/kv_endpoint.h"
#include "net/http/http_server.h"
#include "net/loop/loop.h"
#include "openai/abort_request.h"
#include "openai/openai.h"
#include "openai/openai_reply.h"
#include "worker/api/load_meter.h"
#include "worker/api/preparations.h"
#include "worker/api/tool_replies.h"
#include "worker/api/worker_metrics.h"
#include "worker/core/engine_queue.h"
#include "worker/core/generation.h"

namespace pdjob::worker {

class ReplyBook {
 public:
  struct Options {
    std::string name;                // The worker's, for x-pdjob-worker.
    kvtransfer::EndpointAddress kv;  // The address for fetching this worker's rows.
    Duration queue_timeout{};
    std::string weight_version;  // The version of the engine's weights; empty: "default".
    std::string meaning;         // meaning_of() the engine.
    // What comes from a store is kept for other requests, so only a job's router may name one.
    bool trusts_store = false;
  };
  // All must outlive this. Calls `let_go` whenever fewer prompts are held.
  ReplyBook(Options options, const engine::Engine& engine, EngineQueue& engine_queue,
            net::HttpServer& server, net::Loop& loop, WorkerMetrics& metrics, LoadMeter& meter,
            std::function<void()> let_go);

  // `aborted`: the part of it that never starts.
  void start(const Asked& asked, PreparedRequest prepared, const openai::AbortRequest& aborted);
  void take(Output& output);
  // Ignores clients without a request here.
  void client_left(net::ExchangeId id);
  // As OpenaiApi::abort().
  size_t abort(const openai::AbortRequest& asked, std::string_view tenant);
  // Prompts that the engine has not got yet, over all requests.
  size_t prompts_held() const { return prompts_held_; }

 private:
  using ExchangeKey = uint64_t;  // ExchangeId::value: exchanges are looked up in order of arrival.

  // All output of one choice so far; in a stream, only the unsent part.
  struct ChoiceReply {
    std::string text;
    std::vector<GeneratedToken> tokens;
    // Generated tokens that the asker does not know yet; it may continue them elsewhere.
    std::vector<Token> untold;
    size_t told = 0;  // Before these. In a stream, it does not count.
    FinishReason finish = FinishReason::kNone;
    std::optional<Token> stop_token;  // The token that ended it, if one did.
    std::string stop_string;
    std::vector<openai::WeightSpan> weights;  // The versions that made its tokens.
    uint64_t completion_tokens = 0;
    uint64_t tokens_noted = 0;         // Those of `weights` that this worker has seen.
    size_t resumed_left = 0;           // Tokens of pdjob_resume that have not come back yet.
    std::string told_weights;          // The last version that the router knows.
    std::optional<ChoiceCalls> tools;  // If it may call tools.
    std::vector<openai::ToolCallPart> calls;
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
    uint32_t tell_every =
        0;  // A whole reply: so many tokens of a choice are told at once; 0: none.
    bool background = false;  // Asked::background.
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

  // Gives the engine as many of its prompts as it may have at the same time. The exchange may be
  // gone afterwards.
  void submit_held(Exchange& exchange);
  // Ends the prompts that are meant. Returns how many; the exchange may be gone afterwards.
  size_t abort(Exchange& exchange, const openai::AbortRequest& asked);
  // Ends the choices of this prompt that go on. Returns false if the exchange is gone.
  bool abort_prompt(Exchange& exchange, uint32_t prompt);
  // True if tokens of pdjob_resume are missing in a choice of this prompt that goes on.
  static bool resumes(const Exchange& exchange, uint32_t prompt);
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
  // Tells the asker of a whole reply the tokens so far, in interim responses.
  void tell_progress(Exchange& exchange, uint32_t index);
  void finish(Exchange& exchange);
  // Removes the exchange and cancels its running generations.
  void drop(ExchangeKey key);
  // Tokens of the prompt that this worker, or the one that the rows come from, had computed before.
  void note_cached(const Generation& generation, uint64_t tokens);

  const Options options_;
  const std::string weight_version_;
  const engine::Engine& engine_;
  EngineQueue& engine_queue_;
  net::HttpServer& server_;
  net::Loop& loop_;
  WorkerMetrics& metrics_;
  LoadMeter& meter_;
  const std::function<void()> let_go_;
  size_t prompts_held_ = 0;
  std::map<ExchangeKey, Exchange> exchanges_;
  std::unordered_map<RequestId, Generation> generations_;
  uint64_t next_request_ = 1;
  std::string buffer_;  // The event being written.
  std::string extension_;
};

}  // namespace pdjob::worker
