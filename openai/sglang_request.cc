#include <simdjson.h>

#include "common/limits.h"
#include "openai/openai_prompt.h"
#include "openai/openai_sampling.h"
#include "openai/sglang.h"
#include "openai/structure_fields.h"

namespace pdjob::openai {
namespace {

namespace dom = simdjson::dom;

constexpr int32_t kNewTokensDefault = 128;

void read_ids_or_text(const Fields& fields, ApiRequest& request) {
  const bool ids = fields.find("input_ids").has_value();
  if (ids == fields.find("text").has_value()) {
    return fields.wrong("input_ids", "must be given, or text, but not both");
  }
  read_prompts(fields, ids ? "input_ids" : "text", request);
  if (ids && !request.prompts.empty()) {
    fields.wrong("input_ids", "must be token ids");
  } else if (!ids && !request.token_prompts.empty()) {
    fields.wrong("text", "must be a string or a list of strings");
  }
}

void read_rids(const Fields& fields, ApiRequest& request) {
  const auto value = fields.find("rid");
  if (value && value->is_string()) {
    fields.text("rid", request.rids.emplace_back());
  } else if (const auto list = fields.list("rid", limits::kPromptsMax)) {
    for (const dom::element rid : *list) {
      const std::string param = element_name("rid", request.rids.size());
      read_text(fields.reading(), param, rid, request.rids.emplace_back());
    }
  }
  const size_t prompts = request.prompts.size() + request.token_prompts.size();
  for (const std::string& rid : request.rids) {
    if (rid.empty() || rid.size() > limits::kRidBytesMax) {
      fields.wrong("rid", "must have 1 to " + std::to_string(limits::kRidBytesMax) + " bytes");
    }
  }
  if (value && value->is_string()) {
    // SGLang numbers the prompts of a batch.
    const std::string rid = request.rids.front();
    request.rids.resize(prompts, rid);
    for (size_t i = 0; prompts > 1 && i < prompts; ++i) {
      request.rids[i] = rid + "_" + std::to_string(i);
    }
  } else if (value && request.rids.size() != prompts) {
    fields.wrong("rid", "must be one name for each of " + std::to_string(prompts) + " prompts");
  }
}

void read_sglang_logprobs(const Fields& fields, ApiRequest& request) {
  bool wanted = false;
  int32_t alternatives = 0;
  int64_t start = -1;
  fields.boolean("return_logprob", wanted);
  fields.integer("top_logprobs_num", {0, limits::kLogprobsMax}, alternatives);
  fields.integer("logprob_start_len", {-1, kTokenMax}, start);
  fields.boolean("return_text_in_logprobs", request.text_in_logprobs);
  if (!wanted) {
    return;
  }
  if (start >= 0) {
    request.logprob_start = static_cast<uint32_t>(start);
  }
  request.sampling.logprobs = alternatives;
  request.sampling.logprobs_at_temperature = true;
}

void read_sglang_sampling(const Fields& params, ApiRequest& request) {
  SamplingParams& sampling = request.sampling;
  StopParams& stop = request.stop;
  read_draw(params, {.seed = "sampling_seed", .temperature_max = kTemperatureMaxOfEngines},
            request);
  if (sampling.top_k == 1) {
    sampling.temperature = 0;  // SGLang counts it as greedy, so logprobs have no temperature.
  }
  read_stop(params, stop);
  params.boolean("no_stop_trim", stop.include_stop_string);
  request.fills_context = params.is_null("max_new_tokens");
  read_max_tokens(params, "max_new_tokens", 0, request);
  read_min_tokens(params, "min_new_tokens", "max_new_tokens", request);
  read_choice_count(params, request);
  read_schema(params, "json_schema", sampling);
  read_grammar(params, "ebnf", sampling);
  read_regex(params, "regex", sampling);
  read_unserved_params(params, request.kind);
}

// Each event of the stream repeats all logprobs.
void bound_stream(const Fields& fields, const ApiRequest& request) {
  if (!request.stream || request.sampling.logprobs < 0) {
    return;
  }
  if (request.logprob_start) {
    return fields.wrong("stream",
                        "must not be true with logprob_start_len: each event would repeat "
                        "the prompt's logprobs");
  }
  const auto logprobs = static_cast<uint64_t>(request.stop.max_tokens) *
                        (1 + static_cast<uint64_t>(request.sampling.logprobs));
  if (request.fills_context || logprobs > limits::kCumulativeLogprobsMax) {
    fields.wrong("stream", "with return_logprob, at most " +
                               std::to_string(limits::kCumulativeLogprobsMax) +
                               " tokens and alternatives can be streamed: lower max_new_tokens or "
                               "top_logprobs_num, or do not stream");
  }
}

}  // namespace

void read_sglang_request(const Fields& fields, ApiRequest& request) {
  request.stop.max_tokens = kNewTokensDefault;
  read_ids_or_text(fields, request);
  read_rids(fields, request);
  if (const auto params = fields.object("sampling_params")) {
    read_sglang_sampling(*params, request);
  }
  read_sglang_logprobs(fields, request);
  fields.boolean("stream", request.stream);
  fields.boolean("return_prompt_token_ids", request.return_token_ids);
  read_salt(fields, request);
  bound_stream(fields, request);
}

}  // namespace pdjob::openai
