// GenerationMaker: turns an OpenAI request into generations for the engine, or says what is wrong
// with it. A generation has prompt tokens that are valid and fit, its half of a hand-over, and a
// seed and a sampler per choice. Const and Thread-safe: long requests are made on the thread
// "prepare".
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "engine/engine.h"
#include "engine/grammar/compiled_grammar.h"
#include "net/control/message.h"
#include "openai/openai.h"
#include "worker/core/generation.h"

namespace pdjob::worker {

class GenerationMaker {
 public:
  GenerationMaker(const engine::Engine& engine, net::Role role) : engine_(engine), role_(role) {}

  // Whether its lengths and fields are right. Reads no text, so it is cheap for a request of any
  // length.
  Result<Done, openai::ApiError> check(const openai::ApiRequest& request) const;

  // An error if its reply would have too many logprobs of so many tokens of prompts.
  static Result<Done, openai::ApiError> logprobs_fit(const openai::ApiRequest& request,
                                                     size_t prompt_tokens);

  static size_t prompts(const openai::ApiRequest& request);
  // Makes the generation of one prompt. The caller adds an id, a deadline, and the id of a transfer
  // that the request leaves open. Choice c is sampled with `seed` + c. The prompt is moved out of
  // the request. `grammar` is the request's compiled structure, or null; a prompt that is only
  // offered ignores it. Requires: check() succeeded, index < prompts().
  Result<GenerationRequest, openai::ApiError> make(
      openai::ApiRequest& request, size_t index, uint64_t seed,
      const std::shared_ptr<const engine::CompiledGrammar>& grammar = {}) const;

  struct Chat {
    const std::vector<openai::ApiMessage>& messages;
    const std::vector<openai::ApiTool>& tools;
    const openai::ApiTemplate& filling;
  };
  // The tokens of a text, or of a chat in the model's template. They need not fit.
  Result<std::vector<Token>, openai::ApiError> tokenize(std::string_view text,
                                                        bool add_special) const;
  Result<std::vector<Token>, openai::ApiError> tokenize(const Chat& chat) const;
  // The bytes of these tokens. Special tokens have none unless `render_special`.
  Result<std::string, openai::ApiError> detokenize(const std::vector<Token>& tokens,
                                                   bool render_special) const;
  // The text of a prompt that a reply echoes. Beside logprobs it is all its tokens' texts, so that
  // offsets into it are right.
  std::string text_of(const std::vector<Token>& prompt, bool render_special) const;

 private:
  Result<Done, openai::ApiError> can_embed(const openai::ApiRequest& request) const;
  Result<std::vector<Token>, openai::ApiError> take_prompt(openai::ApiRequest& request,
                                                           size_t index) const;
  // The tokens of a prompt that must fit. A text that is much too long is refused after tokenizing
  // only its beginning.
  Result<std::vector<Token>, openai::ApiError> tokenize_to_fit(std::string_view text,
                                                               const char* field) const;
  Result<std::string> render(const Chat& chat) const;
  size_t text_bytes_max() const;
  openai::ApiError too_long(const std::string& what, const char* field) const;
  // Opens the samplers of all choices and sets the limits of their generations.
  Result<Done, openai::ApiError> open_choices(
      const openai::ApiRequest& request, uint64_t seed,
      const std::shared_ptr<const engine::CompiledGrammar>& grammar,
      GenerationRequest& generation) const;
  // Returns an error if an engine of this model cannot have generated its `resumed`.
  Result<Done, openai::ApiError> can_resume(const GenerationRequest& resumed) const;

  const engine::Engine& engine_;
  const net::Role role_;
};

}  // namespace pdjob::worker
