#include "openai/openai.h"

#include <cmath>
#include <limits>

#include <simdjson.h>

#include "common/hex.h"
#include "common/limits.h"
#include "openai/openai_embedding.h"
#include "openai/openai_fields.h"
#include "openai/openai_prompt.h"
#include "openai/openai_sampling.h"
#include "openai/responses.h"
#include "openai/sglang.h"
#include "openai/structure_fields.h"
#include "openai/tokens_request.h"

namespace pdjob::openai {
namespace {

namespace dom = simdjson::dom;

// --- Fields that only some of the forms have. unserved_fields.cc has those that none has.

void refuse_of_other_forms(const Fields& fields, ApiKind kind) {
  if (kind != ApiKind::kChat) {
    for (const char* name : {"chat_template_kwargs", "continue_final_message", "enable_thinking",
                             "functions", "thinking"}) {
      fields.unsupported(name);
    }
    fields.only("add_generation_prompt", true);
  }
  if (kind == ApiKind::kChat) {
    fields.unsupported("prompt", "is a field of completions: use messages");
  } else {
    fields.unsupported("messages", "is a field of chats: use prompt");
  }
  // A chat's template writes its special tokens itself.
  fields.only("add_special_tokens", kind == ApiKind::kCompletion);
}

void refuse_tools_beside_chat(const Fields& fields) {
  const auto choice = fields.find("tool_choice");
  std::string_view word;
  if (choice && choice->get(word) == simdjson::SUCCESS && word == "none") {
    return;
  }
  fields.unsupported("tools");
  if (choice && word != "auto") {
    fields.wrong("tool_choice", "must be \"none\": tools are supported for chat only");
  }
}

void refuse_modalities(const Fields& fields) {
  const auto modalities = fields.list("modalities", limits::kJsonFieldsMax);
  if (!modalities) {
    return;
  }
  for (const dom::element modality : *modalities) {
    std::string_view word;
    if (modality.get(word) != simdjson::SUCCESS || word != "text") {
      return must_be(fields.reading(), "modalities", "[\"text\"]", modality);
    }
  }
}

// --- Sampling

void read_logprobs(const Fields& fields, ApiRequest& request) {
  constexpr IntegerRange kRange = {0, limits::kLogprobsMax};
  if (request.kind == ApiKind::kCompletion) {
    fields.integer("logprobs", kRange, request.sampling.logprobs);
    return;
  }
  bool wanted = false;
  int32_t alternatives = 0;
  fields.boolean("logprobs", wanted);
  fields.integer("top_logprobs", kRange, alternatives);
  if (alternatives > 0 && !wanted) {
    fields.wrong("top_logprobs", "needs logprobs to be true");
  }
  if (wanted) {
    request.sampling.logprobs = alternatives;
  }
}

void read_sampling(const Fields& fields, ApiRequest& request) {
  read_draw(fields, {}, request);
  read_logprobs(fields, request);
}

// --- The rest

// Two names of one thing: vLLM's and SGLang's.
void read_stop_form(const Fields& fields, StopParams& stop) {
  bool untrimmed = false;
  fields.boolean("include_stop_str_in_output", stop.include_stop_string);
  fields.boolean("no_stop_trim", untrimmed);
  stop.include_stop_string |= untrimmed;
}

void read_length(const Fields& fields, ApiRequest& request) {
  request.fills_context = request.kind == ApiKind::kChat;
  // 0: the prompt comes back, and nothing else.
  const int64_t least = request.echo ? 0 : 1;
  read_max_tokens(fields, "max_tokens", least, request);
  read_max_tokens(fields, "max_completion_tokens", 1, request);
  read_max_tokens(fields, "n_predict", least, request);  // llama.cpp's name, which counts there.
  read_min_tokens(fields, "min_tokens", "max_tokens", request);
}

void read_reply_form(const Fields& fields, ApiRequest& request) {
  fields.boolean("stream", request.stream);
  fields.boolean("return_token_ids", request.return_token_ids);
  fields.boolean("return_weight_versions", request.return_weight_versions);
  fields.boolean("return_tokens_as_token_ids", request.tokens_as_ids);
  read_salt(fields, request);
  fields.boolean("echo", request.echo);
  if (request.echo && request.kind == ApiKind::kChat) {
    fields.wrong("echo", "is not supported for chat");
  }
  if (const auto options = fields.object("stream_options")) {
    options->boolean("include_usage", request.include_usage);
    options->boolean("continuous_usage_stats", request.continuous_usage);
    if (!request.stream) {
      fields.wrong("stream_options", "must only be given with stream");
    }
  }
}

void read_choices(const Fields& fields, ApiRequest& request) {
  read_choice_count(fields, request);
  uint32_t best_of = request.choices;
  fields.integer("best_of", {1, limits::kChoicesMax}, best_of);
  if (best_of != request.choices) {
    fields.wrong("best_of", "must be equal to n: picking the best is not supported");
  }
}

void read_kv_transfer(const Fields& fields, ApiRequest& request) {
  const auto transfer = fields.object("kv_transfer_params");
  if (!transfer) {
    return;
  }
  KvTransferParams& params = request.kv_transfer.emplace();
  transfer->boolean("do_remote_decode", params.do_remote_decode);
  transfer->boolean("do_remote_prefill", params.do_remote_prefill);
  if (params.do_remote_decode && params.do_remote_prefill) {
    transfer->wrong("do_remote_prefill", "must not be true together with do_remote_decode");
  }
  std::string id;
  transfer->text("transfer_id", id);
  params.transfer = TransferId::parse(id);
  if (!params.transfer && transfer->find("transfer_id")) {
    transfer->wrong("transfer_id", "must be 32 hexadecimal digits");
  }
  transfer->text("remote_engine_id", params.remote_engine_id);
  transfer->text("remote_host", params.remote_host);
  transfer->integer("remote_port", {0, std::numeric_limits<uint16_t>::max()}, params.remote_port);
  transfer->text("remote_unix_path", params.remote_unix_path);
  transfer->text("remote_host_id", params.remote_host_id);
  transfer->text("remote_gpu_path", params.remote_gpu_path);
}

void read_bootstrap(const Fields& fields, ApiRequest& request) {
  BootstrapParams params;
  fields.text("bootstrap_host", params.host);
  fields.integer("bootstrap_port", {1, std::numeric_limits<uint16_t>::max()}, params.port);
  if (fields.integer("bootstrap_room", {0, std::numeric_limits<int64_t>::max()}, params.room) &&
      !request.kv_transfer) {
    request.bootstrap = std::move(params);
  }
}

void read_resumed(const Fields& fields, ApiRequest& request) {
  const std::string list = "pdjob_resume";
  const auto choices = fields.list(list, limits::kRequestChoicesMax);
  if (!choices) {
    return;
  }
  for (const dom::element choice : *choices) {
    const std::string name = element_name(list, request.resumed.size());
    dom::array tokens;
    if (choice.get(tokens) != simdjson::SUCCESS) {
      return must_be(fields.reading(), fields.param(name), "a list of token ids", choice);
    }
    read_tokens(fields.reading(), name, tokens, request.resumed.emplace_back());
  }
  const size_t prompts =
      std::max<size_t>({request.prompts.size(), request.token_prompts.size(), 1});
  if (request.resumed.size() > prompts * request.choices) {
    fields.wrong(list, "must have at most one list for each of " +
                           std::to_string(prompts * request.choices) + " choices, got " +
                           std::to_string(request.resumed.size()));
  }
  request.resumed.resize(prompts * request.choices);
}

// Two digits for each byte, so that a version of any characters fits into a chunk extension.
std::optional<std::string> text_of_hex(std::string_view hex) {
  std::string text;
  for (; hex.size() >= 2; hex.remove_prefix(2)) {
    const auto byte = parse_hex(hex.substr(0, 2));
    if (!byte) {
      return std::nullopt;
    }
    text.push_back(static_cast<char>(*byte));
  }
  return hex.empty() && !text.empty() ? std::optional(std::move(text)) : std::nullopt;
}

// Spans of one choice; they must cover its tokens without a gap.
void read_spans(Reading& reading, const std::string& name, const dom::array& spans, size_t tokens,
                std::vector<WeightSpan>& out) {
  for (const dom::element element : spans) {
    dom::object object;
    if (element.get(object) != simdjson::SUCCESS) {
      return must_be(reading, name, "a list of objects", element);
    }
    const Fields fields(object, name + ".", reading);
    WeightSpan& span = out.emplace_back();
    std::string hex;
    fields.text("version", hex);
    const auto version = text_of_hex(hex);
    span.version = version.value_or("");
    fields.integer("start", {0, kTokenMax}, span.start);
    fields.integer("end", {0, kTokenMax}, span.end);
    const uint64_t before = out.size() == 1 ? 0 : out[out.size() - 2].end;
    if (!version || version->size() > limits::kWeightVersionBytesMax || span.start != before ||
        span.end <= span.start) {
      return refuse(reading, name, "must be spans one after another");
    }
  }
  if ((out.empty() ? 0 : out.back().end) != tokens) {
    refuse(reading, name, "must cover all tokens of its choice");
  }
}

void read_resumed_weights(const Fields& fields, ApiRequest& request) {
  const std::string list = "pdjob_resume_weights";
  const auto choices = fields.list(list, request.resumed.size());
  if (!choices) {
    return;
  }
  request.resumed_weights.resize(request.resumed.size());
  size_t index = 0;
  for (const dom::element choice : *choices) {
    const std::string name = element_name(list, index);
    dom::array spans;
    if (choice.get(spans) != simdjson::SUCCESS) {
      return must_be(fields.reading(), fields.param(name), "a list of spans", choice);
    }
    read_spans(fields.reading(), name, spans, request.resumed[index].size(),
               request.resumed_weights[index]);
    ++index;
  }
}

void read_openai_request(const Fields& fields, ApiRequest& request) {
  if (request.kind == ApiKind::kChat) {
    read_messages(fields, request);
    read_template(fields, request);
  } else {
    read_prompts(fields, "prompt", request);
  }
  read_choices(fields, request);
  read_reply_form(fields, request);
  read_sampling(fields, request);
  read_structure(fields, request);
  read_stop(fields, request.stop);
  read_stop_form(fields, request.stop);
  read_length(fields, request);
  refuse_of_other_forms(fields, request.kind);
  refuse_modalities(fields);
  if (request.kind == ApiKind::kChat) {
    read_tools(fields, inner_function, request);
  } else {
    refuse_tools_beside_chat(fields);
  }
}

void read_request(const Fields& fields, ApiRequest& request) {
  fields.text("model", request.model);
  if (request.kind == ApiKind::kEmbedding) {
    read_embedding_request(fields, request);
    return read_unserved(fields, request);
  }
  if (request.kind == ApiKind::kSglang) {
    read_sglang_request(fields, request);
  } else if (request.kind == ApiKind::kResponses) {
    read_responses_request(fields, request);
  } else if (request.kind == ApiKind::kTokens) {
    read_tokens_request(fields, request);
  } else {
    read_openai_request(fields, request);
  }
  read_unserved(fields, request);
  read_kv_transfer(fields, request);
  read_bootstrap(fields, request);
  read_resumed(fields, request);
  read_resumed_weights(fields, request);
  fields.text("pdjob_resume_model", request.resumed_model);
}

}  // namespace

Result<ApiRequest, ApiError> parse_api_request(ApiKind kind, std::string_view body,
                                               std::vector<KnownField>* known) {
  ApiRequest request{.kind = kind};
  PDJOB_TRY_STATUS(read_object(
      body, [&request](const Fields& fields) { read_request(fields, request); }, known));
  return request;
}

}  // namespace pdjob::openai
