// The work of RequestPreparer for each kind of request. Bodies become requests, prompts become
// generations one by one, texts become tokens, and tokens become a text. Each passes its result to
// a function on the loop thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "net/openai.h"
#include "net/tokenize_request.h"
#include "worker/generation.h"
#include "worker/generation_maker.h"
#include "worker/request_preparer.h"

namespace pdjob::worker {

using ParsedThen = std::function<void(std::variant<net::ApiRequest, net::ApiError>)>;
// Parses a long body.
std::unique_ptr<Preparation> prepare_request(net::ApiKind kind, std::string body, ParsedThen then);

// A request whose generations can start.
struct PreparedRequest {
  net::ApiRequest request;                     // Without its prompts.
  std::vector<GenerationRequest> generations;  // One per prompt, without ids.
  std::vector<std::string> echoes;             // Each prompt's text, if the reply begins with it.
};
using PreparedThen = std::function<void(std::variant<PreparedRequest, net::ApiError>)>;
// Prepares one prompt per step. All follow `grammar`, if there is one. Requires: maker.check()
// found nothing.
std::unique_ptr<Preparation> prepare_generations(
    const GenerationMaker& maker, net::ApiRequest request,
    std::shared_ptr<const engine::CompiledGrammar> grammar, PreparedThen then);

// The body of the reply.
using BodyThen = std::function<void(std::variant<std::string, net::ApiError>)>;
std::unique_ptr<Preparation> prepare_tokens(const GenerationMaker& maker,
                                            net::TokenizeRequest request, uint32_t context_max,
                                            BodyThen then);
std::unique_ptr<Preparation> prepare_text(const GenerationMaker& maker, std::vector<Token> tokens,
                                          BodyThen then);

}  // namespace pdjob::worker
