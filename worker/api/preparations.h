// The work of RequestPreparer for each kind of request. Bodies become requests, prompts become
// generations one by one, texts become tokens, and tokens become a text. Each passes its result to
// a function on the loop thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "net/http/http_server.h"
#include "openai/openai.h"
#include "openai/tokenize_request.h"
#include "worker/api/generation_maker.h"
#include "worker/api/request_preparer.h"
#include "worker/core/generation.h"

namespace pdjob::worker {

using ParsedThen = std::function<void(Result<openai::ApiRequest, openai::ApiError>)>;
// Parses a long body.
std::unique_ptr<Preparation> prepare_request(openai::ApiKind kind, std::string body,
                                             ParsedThen then);

// The facts in a request's headers.
struct Asked {
  net::ExchangeId http;
  std::string request_id;
  std::string leg;     // x-pdjob-leg.
  std::string tenant;  // The owner, as the router says; empty if there are no tenants.
  std::optional<kvtransfer::EndpointAddress> store;      // x-pdjob-kv-store.
  std::optional<kvtransfer::EndpointAddress> elsewhere;  // x-pdjob-kv-elsewhere.
  // Set by a router that may continue the stream at another worker.
  std::optional<int64_t> created;
  bool background = false;    // x-pdjob-background.
  uint32_t progress = 0;      // x-pdjob-progress; 0: it is not asked.
  size_t bytes = 0;           // Size of its body.
  std::string not_held = {};  // x-pdjob-not-held.
};

// A request whose generations can start.
struct PreparedRequest {
  openai::ApiRequest request;                  // Without its prompts.
  std::vector<GenerationRequest> generations;  // One per prompt, without ids.
  std::vector<std::string> echoes;             // Each prompt's text, if the reply begins with it.
};
using PreparedThen = std::function<void(Result<PreparedRequest, openai::ApiError>)>;
// Prepares one prompt per step. All follow `grammar`, if there is one. `seed` is for a request
// without one. Requires: maker.check() succeeded.
std::unique_ptr<Preparation> prepare_generations(
    const GenerationMaker& maker, openai::ApiRequest request, uint64_t seed,
    std::shared_ptr<const engine::CompiledGrammar> grammar, PreparedThen then);

// The body of the reply.
using BodyThen = std::function<void(Result<std::string, openai::ApiError>)>;
std::unique_ptr<Preparation> prepare_tokens(const GenerationMaker& maker,
                                            openai::TokenizeRequest request, uint32_t context_max,
                                            BodyThen then);
std::unique_ptr<Preparation> prepare_text(const GenerationMaker& maker,
                                          openai::DetokenizeRequest request, BodyThen then);

}  // namespace pdjob::worker
