// The words of one generation that API, cores and engine share. Values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pdjob {

using Token = int32_t;

// How the next token is chosen. Each default means "off". Defaults come from OpenAI where OpenAI
// has the field, otherwise from vLLM.
struct SamplingParams {
  float temperature = 1.0F;  // 0: greedy.
  int32_t top_k = 0;         // 0: all tokens.
  float top_p = 1.0F;
  float min_p = 0.0F;
  float repetition_penalty = 1.0F;  // Over prompt and output, as in vLLM.
  float presence_penalty = 0.0F;    // Over the output.
  float frequency_penalty = 0.0F;   // Over the output.
  std::vector<std::pair<Token, float>> logit_bias;
  std::vector<Token> allowed_tokens;  // Empty: all.
  // Seed of this choice. Draws are keyed by (seed, position), so a continued stream equals an
  // uninterrupted one.
  uint64_t seed = 0;
  // The structure of the output: at most one of these is not empty.
  std::string grammar;       // GBNF.
  std::string regex;         // The whole text matches it.
  std::string json_schema;   // JSON text of a schema.
  bool schema_exact = true;  // Refuse a schema that cannot be held; otherwise hold what can be.
  bool structured() const { return !(grammar.empty() && regex.empty() && json_schema.empty()); }
  int32_t logprobs = -1;  // Alternatives to report per token; -1: no logprobs.
  // Logprobs of the distribution that was drawn from, before top-k, top-p and min-p: after logit
  // bias, penalties, grammar and temperature. Otherwise of the model's own distribution.
  bool logprobs_at_temperature = false;
  bool ignore_eos = false;

  friend bool operator==(const SamplingParams&, const SamplingParams&) = default;
};

// When a generation ends, and which part of it the reply shows.
struct StopParams {
  int32_t max_tokens = 16;
  int32_t min_tokens = 0;
  std::vector<std::string> strings;  // The text ends before the first match.
  std::vector<Token> token_ids;
  // The text has what ended it, string or token: vLLM's include_stop_str_in_output.
  bool include_stop_string = false;
  bool skip_special_tokens = true;

  friend bool operator==(const StopParams&, const StopParams&) = default;
};

struct TokenLogprob {
  Token token = 0;
  float logprob = 0.0F;
};

// One generated token, as it leaves the engine.
struct GeneratedToken {
  Token token = 0;
  // For `token`, as SamplingParams says. Meaningful only if the request asked for it.
  float logprob = 0.0F;
  std::vector<TokenLogprob> top;  // Most likely first.
};

// Logprobs of a prompt's tokens, by the model's own distribution. The first token has none.
struct PromptLogprobs {
  uint32_t alternatives = 0;      // Per token.
  std::vector<float> logprobs;    // Of the second token, the third one, ...
  std::vector<TokenLogprob> top;  // `alternatives` for each of them, most likely first.
};

enum class FinishReason {
  kNone,    // Still running.
  kStop,    // End token, stop token or stop string.
  kLength,  // max_tokens, or the context is full.
  kAbort,   // Cancelled or failed.
};
// OpenAI's word: "stop", "length"; "abort" as in vLLM.
const char* to_string(FinishReason reason);

}  // namespace pdjob
