// GenerationIntake takes requests from their bodies to what the engine computes: it parses, looks
// up KV addresses, compiles grammars and prepares prompts, at once or on helper threads. It also
// tokenizes texts for clients. Loop-bound.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "common/result.h"
#include "engine/engine.h"
#include "net/control/message.h"
#include "net/http/http_server.h"
#include "net/loop/loop.h"
#include "openai/abort_request.h"
#include "openai/openai.h"
#include "worker/api/bootstrap.h"
#include "worker/api/generation_maker.h"
#include "worker/api/plain_replies.h"
#include "worker/api/preparations.h"
#include "worker/api/request_preparer.h"
#include "worker/grammar/grammar_store.h"
#include "worker/grammar/grammar_thread.h"

namespace pdjob::worker {

class GenerationIntake {
 public:
  // `aborted`: the part of the request that must not start.
  using Start = std::function<void(const Asked& asked, PreparedRequest prepared,
                                   const openai::AbortRequest& aborted)>;

  // All must outlive this. Calls `let_go` whenever a request waits no longer.
  // `meaning`: meaning_of() the engine.
  GenerationIntake(net::Loop& loop, const engine::Engine& engine, std::string meaning,
                   net::Role role, const GrammarProgram& grammar_program, PlainReplies& replies,
                   Start start, std::function<void()> let_go);

  // Each request ends in `start`, or is refused, unless its client leaves.
  void take(net::ExchangeId id, openai::ApiKind kind, net::HttpRequest& request);
  void tokenize(net::ExchangeId id, const net::HttpRequest& request);
  void detokenize(net::ExchangeId id, const net::HttpRequest& request);
  // Returns false if no request of this client waits here.
  bool client_left(net::ExchangeId id);
  // As OpenaiApi::abort(). The requests end once they have started.
  size_t abort(const openai::AbortRequest& asked, std::string_view tenant);

  bool empty() const { return waiting_.empty(); }
  // How long a helper thread has not returned from its work.
  Duration standstill() const {
    return std::max(preparer_.standstill(), grammar_thread_.standstill());
  }

 private:
  void on_parsed(Asked asked, Result<openai::ApiRequest, openai::ApiError> parsed);
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
  // As begin_waiting(), for /tokenize and /detokenize.
  bool begin_tokenizing(net::ExchangeId id, size_t bytes);
  // Returns false if the request did not wait, or its client left.
  bool end_waiting(net::ExchangeId id);
  void refuse(net::ExchangeId id, const openai::ApiError& error);

  net::Loop& loop_;
  const engine::Engine& engine_;
  const std::string meaning_;
  const net::Role role_;
  const GenerationMaker maker_;
  PlainReplies& replies_;
  const Start start_;
  const std::function<void()> let_go_;
  // A request that has not started: its KV address is looked up, or it is being prepared.
  struct Waiting {
    size_t bytes = 0;  // The size of its body.
    std::string request_id;
    std::string leg;
    std::string tenant;
    openai::AbortRequest aborted;  // The part of it that never starts.
  };
  std::unordered_map<net::ExchangeId, Waiting> waiting_;
  size_t waiting_bytes_ = 0;
  Bootstrap bootstrap_;
  GrammarThread grammar_thread_;
  GrammarStore grammars_;
  RequestPreparer preparer_;  // Destroyed first: its thread uses the maker.
};

}  // namespace pdjob::worker
