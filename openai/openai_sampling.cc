#include "openai/openai_sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include <simdjson.h>

#include "common/limits.h"
#include "common/parse_number.h"

namespace pdjob::openai {
namespace {

namespace dom = simdjson::dom;

constexpr int kRepetitionPenaltyMax = 1000;
constexpr int64_t kAnySeed = -1;     // As in vLLM and llama.cpp: a new seed.
constexpr int64_t kAllThatFit = -1;  // As in llama.cpp: a limit that is none.

void read_logit_bias(const Fields& fields, SamplingParams& sampling) {
  const auto value = fields.find("logit_bias");
  if (!value) {
    return;
  }
  Reading& reading = fields.reading();
  dom::object object;
  if (value->get(object) != simdjson::SUCCESS) {
    return must_be(reading, fields.param("logit_bias"), "an object", *value);
  }
  if (object.size() > limits::kLogitBiasMax) {
    return fields.wrong("logit_bias",
                        "must have at most " + std::to_string(limits::kLogitBiasMax) + " tokens");
  }
  std::map<Token, float> biases;  // "7" and "07" are one token.
  for (const auto [key, bias] : object) {
    const Token token = parse_number<Token>(key).value_or(-1);
    if (token < 0) {
      return fields.wrong("logit_bias", "must have token ids as names, got " + excerpt(key));
    }
    double number = 0;
    if (bias.get(number) != simdjson::SUCCESS || std::abs(number) > 100) {
      return must_be(reading, fields.param("logit_bias.") + std::string(key),
                     to_string(NumberRange{-100, 100}), bias);
    }
    biases[token] = static_cast<float>(number);
  }
  sampling.logit_bias.assign(biases.begin(), biases.end());
}

}  // namespace

void read_draw(const Fields& fields, const DrawNames& names, ApiRequest& request) {
  SamplingParams& sampling = request.sampling;
  fields.number("temperature", {0, names.temperature_max}, sampling.temperature);
  fields.number("top_p", {0, 1}, sampling.top_p);
  fields.number("min_p", {0, 1}, sampling.min_p);
  fields.number("presence_penalty", {-2, 2}, sampling.presence_penalty);
  fields.number("frequency_penalty", {-2, 2}, sampling.frequency_penalty);
  fields.number("repetition_penalty", {0, kRepetitionPenaltyMax, true},
                sampling.repetition_penalty);
  if (fields.integer("top_k", {-1, kTokenMax}, sampling.top_k) && sampling.top_k == -1) {
    sampling.top_k = 0;  // Both mean "all".
  }
  int64_t seed = 0;
  const bool given = fields.integer(
      names.seed, {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}, seed);
  request.seeded = given && seed != kAnySeed;
  sampling.seed = static_cast<uint64_t>(seed);
  fields.boolean("ignore_eos", sampling.ignore_eos);
  read_logit_bias(fields, sampling);
  if (const auto list = fields.list("allowed_token_ids", limits::kAllowedTokensMax)) {
    read_tokens(fields.reading(), fields.param("allowed_token_ids"), *list,
                sampling.allowed_tokens);
  }
}

void read_choice_count(const Fields& fields, ApiRequest& request) {
  fields.integer("n", {1, limits::kChoicesMax}, request.choices);
  const size_t prompts = std::max<size_t>(1, request.prompts.size() + request.token_prompts.size());
  if (prompts * request.choices > limits::kRequestChoicesMax) {
    fields.wrong("n", "times " + std::to_string(prompts) + " prompts must be at most " +
                          std::to_string(limits::kRequestChoicesMax) + " choices, got " +
                          std::to_string(prompts * request.choices));
  }
}

void read_max_tokens(const Fields& fields, const char* name, int64_t least, ApiRequest& request) {
  int64_t tokens = 0;
  if (!fields.integer(name, {kAllThatFit, kTokenMax}, tokens)) {
    return;
  }
  request.fills_context = tokens == kAllThatFit;
  if (!request.fills_context && tokens < least) {
    fields.wrong(name, "must be at least " + std::to_string(least) +
                           ", or -1 for as many as fit, got " + std::to_string(tokens));
  }
  request.stop.max_tokens = request.fills_context ? 0 : static_cast<int32_t>(tokens);
}

void read_min_tokens(const Fields& fields, const char* name, const char* limit,
                     ApiRequest& request) {
  StopParams& stop = request.stop;
  fields.integer(name, {0, kTokenMax}, stop.min_tokens);
  if (!request.fills_context && stop.min_tokens > stop.max_tokens) {
    fields.wrong(name, std::string("must be at most ") + limit + ", " +
                           std::to_string(stop.max_tokens) + ", got " +
                           std::to_string(stop.min_tokens));
  }
}

void read_salt(const Fields& fields, ApiRequest& request) {
  std::string key;
  fields.text("extra_key", key);
  fields.text("cache_salt", request.cache_salt);
  if (request.cache_salt.empty()) {
    request.cache_salt = std::move(key);
  }
}

void read_stop(const Fields& fields, StopParams& stop) {
  const auto value = fields.find("stop");
  if (value && value->is_string()) {
    fields.text("stop", stop.strings.emplace_back());
  } else if (const auto list = fields.list("stop", limits::kStopStringsMax)) {
    for (const dom::element text : *list) {
      const std::string param = element_name(fields.param("stop"), stop.strings.size());
      read_text(fields.reading(), param, text, stop.strings.emplace_back());
    }
  }
  std::erase(stop.strings, "");  // Clients that have no stop string send an empty one.
  for (const std::string& text : stop.strings) {
    if (text.size() > limits::kStopStringBytesMax) {
      fields.wrong("stop", "must be strings of at most " +
                               std::to_string(limits::kStopStringBytesMax) + " bytes, got " +
                               std::to_string(text.size()));
    }
  }
  if (const auto list = fields.list("stop_token_ids", limits::kStopTokensMax)) {
    read_tokens(fields.reading(), fields.param("stop_token_ids"), *list, stop.token_ids);
  }
  fields.boolean("skip_special_tokens", stop.skip_special_tokens);
}

}  // namespace pdjob::openai
