// GenerationMaker: turns an OpenAI request into what the engine runs, or says what is wrong with
// it: prompts as tokens that exist and fit, their half of a hand-over, a seed and a sampler per
// choice. Const and Thread-safe: long requests are made on the thread "prepare".
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/engine.h"
#include "engine/grammar/compiled_grammar.h"
#include "net/message.h"
#include "net/openai.h"
#include "worker/generation.h"

namespace pdjob::worker {

class GenerationMaker {
 public:
  GenerationMaker(const engine::Engine& engine, net::Role role, Duration queue_timeout)
      : engine_(engine), role_(role), queue_timeout_(queue_timeout) {}

  // What is wrong with a request, as far as lengths and fields tell. Looks at no text, so it is
  // cheap however long the request is.
  std::optional<net::ApiError> check(const net::ApiRequest& request) const;

  static size_t prompts(const net::ApiRequest& request);
  // The generation of one prompt, without an id; choice c of it is drawn with `seed` + c. The
  // prompt is taken out of the request. `grammar` is what the request's structure became, null
  // without one; a prompt that is only offered follows none. Requires: check() found nothing,
  // index < prompts().
  std::variant<GenerationRequest, net::ApiError> make(
      net::ApiRequest& request, size_t index, uint64_t seed,
      const std::shared_ptr<const engine::CompiledGrammar>& grammar = {}) const;

  // The tokens of a text, or of a chat in the model's template, whether or not they fit.
  std::variant<std::vector<Token>, net::ApiError> tokenize(std::string_view text,
                                                           bool add_special) const;
  std::variant<std::vector<Token>, net::ApiError> tokenize(
      const std::vector<net::ApiMessage>& messages) const;
  // The bytes of these tokens.
  std::variant<std::string, net::ApiError> detokenize(const std::vector<Token>& tokens) const;
  // Of a prompt that generations begin with.
  std::string text_of(const std::vector<Token>& prompt) const;

 private:
  std::variant<std::vector<Token>, net::ApiError> take_prompt(net::ApiRequest& request,
                                                              size_t index) const;
  // The tokens of a prompt that must fit. A text that does not is refused by its beginning.
  std::variant<std::vector<Token>, net::ApiError> tokenize_to_fit(std::string_view text,
                                                                  const char* field) const;
  Result<std::string> render(const std::vector<net::ApiMessage>& messages) const;
  size_t text_bytes_max() const;
  net::ApiError too_long(const std::string& what, const char* field) const;
  // Samplers of all choices, and the limits of their generations.
  std::optional<net::ApiError> open_choices(
      const net::ApiRequest& request, uint64_t seed,
      const std::shared_ptr<const engine::CompiledGrammar>& grammar,
      GenerationRequest& generation) const;
  // Its `resumed` cannot be what an engine of this model has generated.
  std::optional<net::ApiError> wrong_with(const GenerationRequest& resumed) const;

  const engine::Engine& engine_;
  const net::Role role_;
  const Duration queue_timeout_;
};

}  // namespace pdjob::worker
