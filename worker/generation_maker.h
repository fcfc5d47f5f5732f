// GenerationMaker: turns an OpenAI request into what the engine runs, or says what is wrong with
// it: prompts as tokens that exist and fit, their half of a hand-over, a seed and a sampler per
// choice. Loop-bound.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/engine.h"
#include "net/message.h"
#include "net/openai.h"
#include "worker/generation.h"

namespace pdjob::worker {

class GenerationMaker {
 public:
  GenerationMaker(const engine::Engine& engine, net::Role role, Duration queue_timeout)
      : engine_(engine), role_(role), queue_timeout_(queue_timeout) {}

  // One generation per prompt, without ids.
  std::variant<std::vector<GenerationRequest>, net::ApiError> make(
      const net::ApiRequest& request) const;

  // The tokens of a text, or of a chat in the model's template. `field` is named if it is too long.
  std::variant<std::vector<Token>, net::ApiError> tokenize(std::string_view text, bool add_special,
                                                           const char* field = "prompt") const;
  std::variant<std::vector<Token>, net::ApiError> tokenize(
      const std::vector<net::ApiMessage>& messages) const;

 private:
  std::variant<std::vector<std::vector<Token>>, net::ApiError> tokenize_prompts(
      const net::ApiRequest& request) const;
  // Choice c is drawn with `seed` + c.
  std::variant<GenerationRequest, net::ApiError> make_one(const net::ApiRequest& request,
                                                          std::vector<Token> prompt,
                                                          uint64_t seed) const;

  // Its `resumed` cannot be what an engine of this model has generated.
  std::optional<net::ApiError> wrong_with(const GenerationRequest& resumed) const;

  const engine::Engine& engine_;
  const net::Role role_;
  const Duration queue_timeout_;
};

}  // namespace pdjob::worker
