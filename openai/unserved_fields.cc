#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <vector>

#include <simdjson.h>

#include "openai/openai_fields.h"
#include "openai/openai_sampling.h"

// The lists that tests/data/request_fields.json is walked against. A field is refused if a client
// that asks for it would get another reply than it expects. It is idle if the reply is the same.
namespace pdjob::openai {
namespace {

// Values as JSON that ask for nothing, besides null, false and empty ones.
using Neutral = std::array<std::string_view, 2>;
struct Refused {
  std::string_view name;
  Neutral neutral = {};
  std::string_view why = "is not supported";
};
using Idle = std::string_view;

// --- Completions, chats and responses

constexpr Refused kRefused[] = {
    // OpenAI's.
    {"audio"},
    {"moderation"},
    {"suffix"},
    {"web_search_options"},
    // vLLM's.
    {"bad_words"},
    {"chat_template"},
    {"documents"},
    {"ec_transfer_params"},
    {"logits_processors"},
    {"logprob_token_ids"},
    {"prompt_embeds"},
    {"prompt_logprobs"},
    {"repetition_detection"},
    {"return_prompt_text"},
    {"return_token_offsets"},
    {"thinking_token_budget"},
    {"truncate_prompt_tokens"},
    {"use_beam_search"},
    {"vllm_xargs"},
    {"watermarking"},
    // SGLang's.
    {"custom_logit_processor"},
    {"custom_params"},
    {"input_ids"},
    {"lora_path"},
    {"return_cached_tokens_details"},
    {"return_flat_raw_output_top_logprobs"},
    {"return_hidden_states"},
    {"return_input_ids_in_sglext"},
    {"return_meta_info"},
    {"return_output_ids_in_sglext"},
    {"return_prompt_token_ids", {}, "is not supported: use return_token_ids"},
    {"return_routed_experts"},
    {"return_sampling_mask"},
    {"return_spec_tokens_details"},
    {"sampling_logprobs_mode"},
    {"session_params"},
    {"task"},
    {"watermark"},
    // llama.cpp's.
    {"adaptive_target", {"-1"}},
    {"chat_format", {"0"}},
    {"chat_parser"},
    {"dry_multiplier", {"0"}},
    {"dynatemp_range", {"0"}},
    {"generation_prompt"},
    {"grammar_lazy"},
    {"grammar_triggers"},
    {"lora"},
    {"min_keep", {"0", "1"}},
    {"mirostat", {"0"}},
    {"n_cmpl", {"1"}, "is not supported: use n"},
    {"n_indent", {"0"}},
    {"n_probs", {"0"}, "is not supported: use logprobs"},
    {"post_sampling_probs"},
    {"preserved_tokens"},
    {"reasoning_budget_message"},
    {"reasoning_budget_tokens", {"-1"}},
    {"reasoning_control"},
    {"reasoning_format", {"\"none\"", "\"auto\""}},
    {"repeat_penalty", {"1"}, "is not supported: use repetition_penalty, over all tokens"},
    {"response_fields"},
    {"return_tokens", {}, "is not supported: use return_token_ids"},
    {"samplers"},
    {"t_max_predict_ms", {"-1", "0"}},
    {"thinking_budget_tokens", {"-1"}},
    {"top_n_sigma", {"-1", "0"}},
    {"typ_p", {"1"}},
    {"typical_p", {"1"}},
    {"xtc_probability", {"0"}},
    // Of servers with another API: Anthropic's, Hugging Face's, Mistral's, Ollama's and others.
    {"ban_eos_token", {}, "is not supported: use ignore_eos"},
    {"banned_strings"},
    {"banned_tokens"},
    {"custom_token_bans"},
    {"early_stopping"},
    {"encoder_repetition_penalty", {"1"}},
    {"epsilon_cutoff", {"0"}},
    {"eta_cutoff", {"0"}},
    {"guidance_scale", {"1"}},
    {"images"},
    {"max_length", {}, "is not supported: use max_tokens"},
    {"max_new_tokens", {}, "is not supported: use max_tokens"},
    {"mirostat_mode", {"0"}},
    {"negative_prompt"},
    {"no_repeat_ngram_size", {"0"}},
    {"num_beams", {"1"}},
    {"num_predict", {}, "is not supported: use max_tokens"},
    {"num_return_sequences", {"1"}, "is not supported: use n"},
    {"options", {}, "is not supported: its members have names of their own here"},
    {"penalty_alpha", {"0"}},
    {"random_seed", {}, "is not supported: use seed"},
    {"raw"},
    {"safe_prompt"},
    {"smoothing_factor", {"0"}},
    {"stop_sequences", {}, "is not supported: use stop"},
    {"system", {}, "is not supported: send a message of the role system"},
    {"template"},
    {"tfs", {"1"}},
    {"tfs_z", {"1"}},
    {"think", {}, "is not supported: use enable_thinking"},
    {"top_a", {"0"}},
};
// Those of /v1/responses that a client may send to the other routes.
constexpr Refused kOfResponses[] = {
    {"input"},
    {"instructions", {}, "is not supported: send a message of the role system"},
    {"max_output_tokens", {}, "is not supported: use max_tokens"},
    {"previous_response_id"},
    {"reasoning", {}, "is not supported: use reasoning_effort"},
    {"text"},
};

constexpr Idle kIdle[] = {
    // OpenAI's: names, prices and speeds.
    "metadata",
    "prediction",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "user",
    "verbosity",
    // Names, places and order of requests.
    "custom_labels",
    "data_parallel_rank",
    "disagg_prefill_dp_rank",
    "id_slot",
    "priority",
    "request_id",
    "rid",
    "routed_dp_rank",
    "session_id",
    // Pictures and sound, which messages cannot have.
    "images_config",
    "max_dynamic_patch",
    "media_io_kwargs",
    "min_dynamic_patch",
    "mm_payload",
    "mm_processor_kwargs",
    "return_mm_kwargs",
    "use_audio_in_video",
    "video_config",
    // Settings of something that is refused.
    "adaptive_decay",
    "dry_allowed_length",
    "dry_base",
    "dry_penalty_last_n",
    "dry_sequence_breakers",
    "dynatemp_exponent",
    "grammar_type",
    "length_penalty",
    "mirostat_eta",
    "mirostat_tau",
    "reasoning_budget_end_tag",
    "reasoning_budget_end_tags",
    "reasoning_budget_start_tag",
    "return_flat_raw_top_logprobs_b64",
    "routed_experts_prompt_start",
    "routed_experts_start_len",
    "truncation_side",
    "xtc_threshold",
    // Vocabularies here have spaces of their own.
    "spaces_between_special_tokens",
    // Thoughts stay in the text.
    "separate_reasoning",
    "stream_reasoning",
    // How an engine works, and how it reports.
    "backend_sampling",
    "cache_prompt",
    "message_delimiters",
    "n_cache_reuse",
    "n_discard",
    "n_keep",
    "return_progress",
    "sse_ping_interval",
    "stream_interval",
    "timings_per_token",
    "verbose",
};

// --- Embeddings

constexpr Refused kRefusedOfEmbeddings[] = {
    {"add_generation_prompt"},
    {"chat_template"},
    {"chat_template_kwargs"},
    {"content", {}, "is not supported: use input"},
    {"continue_final_message"},
    {"embd_normalize", {"2"}},
    {"embed_dtype", {"\"float32\""}},
    {"embed_override_token_id"},
    {"embed_overrides"},
    {"embedding_type", {"\"float\""}, "is not supported: use encoding_format"},
    {"endianness", {"\"native\"", "\"little\""}},
    {"input_type", {}, "is not supported: put its words into the input"},
    {"lora_path"},
    {"messages"},
    {"output_dimension", {}, "is not supported: use dimensions"},
    {"output_dtype", {"\"float\""}},
    {"padding", {"\"do_not_pad\""}},
    {"prompt_name"},
    {"task"},
    {"truncate", {"\"NONE\""}},
};
constexpr Idle kIdleOfEmbeddings[] = {
    "media_io_kwargs",
    "mm_processor_kwargs",
    "priority",
    "request_id",
    "rid",
    "truncation_side",
    "user",
};

// --- SGLang's POST /generate

constexpr std::string_view kInParams = "is a member of sampling_params";

constexpr Refused kRefusedOfSglang[] = {
    {"audio_data"},
    {"background"},
    {"custom_logit_processor"},
    {"image_data"},
    {"input_embeds"},
    {"lora_id"},
    {"lora_path"},
    {"max_new_tokens", {}, kInParams},
    {"max_thinking_tokens"},
    {"max_tokens", {}, "is not supported: use sampling_params.max_new_tokens"},
    {"messages"},
    {"multi_item_delimiter_indices"},
    {"n", {"1"}, kInParams},
    {"parameters", {}, "is not supported: use sampling_params"},
    {"positional_embed_overrides"},
    {"require_reasoning"},
    {"return_bytes"},
    {"return_entropy"},
    {"return_flat_raw_output_top_logprobs"},
    {"return_flat_raw_top_logprobs"},
    {"return_hidden_states"},
    {"return_indexer_topk"},
    {"return_routed_experts"},
    {"return_sampling_mask"},
    {"sampling_logprobs_mode"},
    {"session_params"},
    {"stop", {}, kInParams},
    {"temperature", {}, kInParams},
    {"token_ids_logprob"},
    {"token_indices_to_pool"},
    {"video_data"},
    {"watermark"},
};
constexpr Idle kIdleOfSglang[] = {
    // Names, places and order of requests.
    "conversation_id",
    "custom_labels",
    "data_parallel_rank",
    "disagg_prefill_dp_rank",
    "external_trace_header",
    "priority",
    "received_time",
    "routed_dp_rank",
    "routing_key",
    "session_id",
    // Pictures and sound, which are refused.
    "encoder_urls",
    "image_max_dynamic_patch",
    "images_config",
    "max_dynamic_patch",
    "min_dynamic_patch",
    "mm_content_hashes",
    "mm_hashes",
    "mm_processor_kwargs",
    "modalities",
    "need_wait_for_mm_inputs",
    "num_items_assigned",
    "use_audio_in_video",
    "video_config",
    "video_max_dynamic_patch",
    // Settings of something else that is refused.
    "return_flat_raw_top_logprobs_b64",
    "routed_experts_start_len",
    // How an engine works, and what it logs.
    "bootstrap_pair_key",
    "decode_tp_size",
    "http_worker_ipc",
    "kv_hints",
    "log_metrics",
    "no_logs",
};
constexpr Refused kRefusedOfSglangParams[] = {
    {"beam_width", {"1"}},
    {"custom_params"},
    {"max_tokens", {}, "is not supported: use max_new_tokens"},
    {"min_tokens", {}, "is not supported: use min_new_tokens"},
    {"seed", {}, "is not supported: use sampling_seed"},
    {"stop_regex"},
    {"structural_tag"},
    {"watermark"},
};
constexpr Idle kIdleOfSglangParams[] = {"spaces_between_special_tokens", "stream_interval"};

// --- vLLM's POST /inference/v1/generate

constexpr Refused kRefusedOfTokens[] = {
    {"content_parts"},
    {"ec_transfer_params"},
    {"features"},
    {"max_tokens", {}, kInParams},
    {"messages"},
    {"output_mode", {"\"tokens\""}},
    {"prompt", {}, "is not supported: use token_ids"},
    {"return_token_ids"},
    {"stop", {}, kInParams},
    {"temperature", {}, kInParams},
};
constexpr Idle kIdleOfTokens[] = {"parse_context", "priority", "reasoning_parser_kwargs",
                                  "token_offsets"};
constexpr Refused kRefusedOfTokensParams[] = {
    {"bad_words"},
    {"extra_args"},
    {"logits_processors"},
    {"logprob_token_ids"},
    {"max_completion_tokens", {}, "is not supported: use max_tokens"},
    {"max_new_tokens", {}, "is not supported: use max_tokens"},
    {"prompt_logprob_token_ids"},
    {"prompt_logprobs"},
    {"repetition_detection"},
    {"thinking_token_budget"},
    {"trace_decode_token_ids"},
    {"truncate_prompt_tokens"},
    {"watermarking"},
};
constexpr Idle kIdleOfTokensParams[] = {
    "detokenize",
    "flat_logprobs",
    "output_kind",
    "output_text_buffer_length",
    "prompt_logprob_start",
    "routed_experts_prompt_start",
    "skip_clone",
    "skip_reading_prefix_cache",
    "spaces_between_special_tokens",
    "stream_interval",
};

void read_lists(const Fields& fields, std::span<const Refused> refused,
                std::span<const Idle> idle) {
  for (const auto& [name, neutral, why] : refused) {
    fields.unsupported(name, why, neutral);
  }
  for (const Idle name : idle) {
    fields.idle(name);
  }
}

// SGLang refuses sampling parameters that it does not know, too.
void refuse_unknown_params(const Fields& params) {
  if (params.reading().known != nullptr) {
    return;
  }
  static const std::vector<KnownField> known = [] {
    std::vector<KnownField> fields;
    (void)parse_api_request(ApiKind::kSglang, R"({"text":"a","sampling_params":{}})", &fields);
    return fields;
  }();
  for (const auto& [name, value] : params.members()) {
    if (!value.is_null() &&
        std::ranges::find(known, params.param(name), &KnownField::name) == known.end()) {
      params.wrong(name, "is no sampling parameter");
    }
  }
}

// llama.cpp counts its penalties over so many tokens, and 64 is its default. Here they count over
// the output.
void read_penalized_tokens(const Fields& fields, const SamplingParams& sampling) {
  if (sampling.presence_penalty != 0 || sampling.frequency_penalty != 0) {
    fields.unsupported("repeat_last_n", "is not supported beside penalties", {{"64", "-1"}});
  } else {
    fields.idle("repeat_last_n");
  }
}

// Hugging Face's word for a temperature of 0.
void read_sample(const Fields& fields, const SamplingParams& sampling) {
  if (sampling.temperature > 0) {
    fields.only("do_sample", true);
  } else {
    fields.idle("do_sample");
  }
}

}  // namespace

void read_unserved(const Fields& fields, const ApiRequest& request) {
  switch (request.kind) {
    case ApiKind::kChat:
    case ApiKind::kCompletion:
      read_lists(fields, kOfResponses, {});
      [[fallthrough]];
    case ApiKind::kResponses:
      read_lists(fields, kRefused, kIdle);
      read_sample(fields, request.sampling);
      fields.only("include_reasoning", true);
      fields.only("parse_tool_calls", true);
      return read_penalized_tokens(fields, request.sampling);
    case ApiKind::kEmbedding:
      return read_lists(fields, kRefusedOfEmbeddings, kIdleOfEmbeddings);
    case ApiKind::kSglang:
      return read_lists(fields, kRefusedOfSglang, kIdleOfSglang);
    case ApiKind::kTokens:
      // Structure holds from the first token on.
      fields.only("reasoning_ended", true);
      return read_lists(fields, kRefusedOfTokens, kIdleOfTokens);
  }
}

void read_unserved_params(const Fields& params, ApiKind kind) {
  if (kind == ApiKind::kSglang) {
    read_lists(params, kRefusedOfSglangParams, kIdleOfSglangParams);
    return refuse_unknown_params(params);
  }
  read_lists(params, kRefusedOfTokensParams, kIdleOfTokensParams);
}

}  // namespace pdjob::openai
