#include "openai/tokens_request.h"

#include <string>

#include "common/limits.h"
#include "openai/openai_prompt.h"
#include "openai/openai_sampling.h"
#include "openai/structure_fields.h"

namespace pdjob::openai {
namespace {

void read_tokens_sampling(const Fields& params, ApiRequest& request) {
  StopParams& stop = request.stop;
  read_draw(params, {.temperature_max = kTemperatureMaxOfEngines}, request);
  params.integer("logprobs", {0, limits::kLogprobsMax}, request.sampling.logprobs);
  read_choice_count(params, request);
  read_stop(params, stop);
  params.boolean("include_stop_str_in_output", stop.include_stop_string);
  read_max_tokens(params, "max_tokens", 1, request);
  read_min_tokens(params, "min_tokens", "max_tokens", request);
  read_structured_outputs(params, request.sampling);
  read_unserved_params(params, request.kind);
}

}  // namespace

void read_tokens_request(const Fields& fields, ApiRequest& request) {
  request.fills_context = true;
  request.tokens_as_ids = true;
  read_prompts(fields, "token_ids", request);
  if (request.prompts_listed || !request.prompts.empty()) {
    fields.wrong("token_ids", "must be a list of token ids");
  }
  if (const auto params = fields.object("sampling_params")) {
    read_tokens_sampling(*params, request);
  }
  std::string id;
  fields.text("request_id", id);
  if (id.size() > limits::kRidBytesMax) {
    fields.wrong("request_id",
                 "must have at most " + std::to_string(limits::kRidBytesMax) + " bytes");
  } else if (!id.empty()) {
    request.rids = {id};
  }
  fields.boolean("stream", request.stream);
  read_salt(fields, request);
  if (const auto options = fields.object("stream_options")) {
    options->boolean("include_usage", request.include_usage);
    options->boolean("continuous_usage_stats", request.continuous_usage);
  }
}

}  // namespace pdjob::openai
