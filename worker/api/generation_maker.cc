#include "worker/api/generation_maker.h"

#include <algorithm>
#include <utility>

#include "common/limits.h"
#include "engine/sampler.h"
#include "worker/core/kv_params.h"

namespace pdjob::worker {
namespace {

// The half of a hand-over that the request asks for, or an error if this worker's role excludes it.
Result<KvMode, openai::ApiError> kv_mode(const openai::ApiRequest& request, net::Role role) {
  if (!request.kv_transfer) {
    return KvMode::kLocal;
  }
  const openai::KvTransferParams& kv = *request.kv_transfer;
  const std::string field = "kv_transfer_params";
  if (!kv.do_remote_decode && !kv.do_remote_prefill) {
    return KvMode::kLocal;
  }
  if (kv.do_remote_decode && kv.do_remote_prefill) {
    return openai::invalid_request("a prompt is either prefilled here or fetched, not both", field);
  }
  if (std::max(request.prompts.size(), request.token_prompts.size()) > 1) {
    return openai::invalid_request(
        "one hand-over is one prompt: send several prompts without kv_transfer_params", field);
  }
  if (request.scores_prompt()) {
    return openai::invalid_request(
        "a prompt whose logprobs are asked is computed by one worker: send it without "
        "kv_transfer_params, or do not ask for them",
        field);
  }
  if (kv.do_remote_decode) {
    if (role != net::Role::kPrefill) {
      return openai::invalid_request(std::string("this is a ") + net::to_string(role) +
                                         " worker: send do_remote_decode to a prefill worker",
                                     field);
    }
    return KvMode::kOffer;
  }
  if (role == net::Role::kPrefill) {
    return openai::invalid_request(
        "this is a prefill worker: send do_remote_prefill to a decode worker", field);
  }
  const bool has_address =
      kv.remote_port != 0 || !kv.remote_unix_path.empty() || !kv.remote_gpu_path.empty();
  if (!kv.transfer || !has_address) {
    return openai::invalid_request(
        "do_remote_prefill needs transfer_id and the prefill worker's address: pass on what it "
        "returned",
        field);
  }
  return KvMode::kFetch;
}

// The fields of this kind of request, for errors.
const char* prompt_field(const openai::ApiRequest& request) {
  if (request.kind == openai::ApiKind::kChat) {
    return "messages";
  }
  if (request.kind == openai::ApiKind::kSglang) {
    return request.token_prompts.empty() ? "text" : "input_ids";
  }
  if (request.kind == openai::ApiKind::kTokens) {
    return "token_ids";
  }
  if (request.kind == openai::ApiKind::kEmbedding || request.kind == openai::ApiKind::kResponses) {
    return "input";
  }
  return "prompt";
}
const char* limit_field(const openai::ApiRequest& request) {
  switch (request.kind) {
    case openai::ApiKind::kSglang:
      return "sampling_params.max_new_tokens";
    case openai::ApiKind::kTokens:
      return "sampling_params.max_tokens";
    case openai::ApiKind::kResponses:
      return "max_output_tokens";
    default:
      return "max_tokens";
  }
}
const char* prompt_ids_field(const openai::ApiRequest& request) {
  return request.kind == openai::ApiKind::kSglang ? "return_prompt_token_ids" : "return_token_ids";
}

}  // namespace

size_t GenerationMaker::prompts(const openai::ApiRequest& request) {
  return openai::is_chat(request.kind) ? 1 : request.prompts.size() + request.token_prompts.size();
}

Result<Done, openai::ApiError> GenerationMaker::check(const openai::ApiRequest& request) const {
  if (const auto mode = kv_mode(request, role_); !mode) {
    return mode.error();
  }
  PDJOB_TRY_STATUS(can_embed(request));
  size_t bytes_all = 0;
  for (const std::string& text : request.prompts) {
    bytes_all += text.size();
    if (text.size() > text_bytes_max()) {
      return too_long("the text has " + std::to_string(text.size()) + " bytes",
                      prompt_field(request));
    }
  }
  size_t tokens_all = 0;
  for (const auto& tokens : request.token_prompts) {
    bytes_all += tokens.size() * sizeof(Token);
    tokens_all += tokens.size();
    if (tokens.size() >= engine_.config().tokens_per_sequence) {
      return too_long("the prompt has " + std::to_string(tokens.size()), prompt_field(request));
    }
  }
  PDJOB_TRY_STATUS(logprobs_fit(request, tokens_all));
  size_t chat_bytes = 0;
  for (const openai::ApiMessage& message : request.messages) {
    chat_bytes += message.content.size() + message.reasoning.size();
    for (const openai::ApiToolCall& call : message.tool_calls) {
      chat_bytes += call.name.size() + call.arguments.size();
    }
  }
  for (const openai::ApiTool& tool : request.tools) {
    chat_bytes += tool.name.size() + tool.description.size() + tool.parameters.size();
  }
  for (const auto& [name, value] : request.chat_template.values) {
    chat_bytes += name.size() + value.size();
  }
  if (chat_bytes > text_bytes_max()) {
    return too_long("the messages and tools have " + std::to_string(chat_bytes) + " bytes",
                    prompt_field(request));
  }
  const bool repeats = request.echo || request.return_token_ids;
  if (repeats && (bytes_all + chat_bytes) * request.choices > limits::kRepeatedPromptBytesMax) {
    return openai::invalid_request("must not be given with so much text: the reply would repeat " +
                                       std::to_string(bytes_all + chat_bytes) +
                                       " bytes of prompts for each of n choices",
                                   request.echo ? "echo" : prompt_ids_field(request));
  }
  return ok();
}

Result<Done, openai::ApiError> GenerationMaker::can_embed(const openai::ApiRequest& request) const {
  if (request.kind != openai::ApiKind::kEmbedding) {
    return ok();
  }
  const engine::ModelFacts& facts = engine_.facts();
  if (facts.embedding_dim == 0 || facts.pooling == engine::Pooling::kNone) {
    return openai::invalid_request("the model `" + facts.name +
                                       "` makes no embeddings: it pools neither the mean of its "
                                       "tokens nor the last one",
                                   "model");
  }
  if (request.dimensions > facts.embedding_dim) {
    return openai::invalid_request(
        "embeddings of this model have " + std::to_string(facts.embedding_dim) + " dimensions",
        "dimensions");
  }
  return ok();
}

Result<Done, openai::ApiError> GenerationMaker::logprobs_fit(const openai::ApiRequest& request,
                                                             size_t prompt_tokens) {
  // An event of a stream must fit into the queue to its client.
  const size_t most = request.stream ? limits::kCumulativeLogprobsMax : limits::kPromptLogprobsMax;
  const std::string field =
      request.kind == openai::ApiKind::kSglang ? "top_logprobs_num" : "logprobs";
  const size_t each =
      (1 + static_cast<size_t>(std::max(0, request.sampling.logprobs))) * request.choices;
  if (!request.scores_prompt() || prompt_tokens * each <= most) {
    return ok();
  }
  return openai::invalid_request(
      "a reply has at most " + std::to_string(most) +
          " logprobs of prompts, but this one would have " + std::to_string(prompt_tokens * each) +
          ": " + std::to_string(prompt_tokens) + " tokens, times choices, times one and `" + field +
          "`" + "; send fewer prompts at a time, or do not stream",
      field);
}

Result<GenerationRequest, openai::ApiError> GenerationMaker::make(
    openai::ApiRequest& request, size_t index, uint64_t seed,
    const std::shared_ptr<const engine::CompiledGrammar>& grammar) const {
  PDJOB_TRY(std::vector<Token> prompt, take_prompt(request, index));
  PDJOB_TRY(const KvMode mode, kv_mode(request, role_));
  GenerationRequest generation{
      .prompt = std::move(prompt),
      .stop = request.stop,
      .ignore_eos = request.sampling.ignore_eos,
      .prompt_only = request.stop.max_tokens == 0 && !request.fills_context,
      .shares_prompt = request.cache_salt.empty(),
      .kv = mode};
  if (request.kind == openai::ApiKind::kEmbedding) {
    generation.reading = PromptReading::kEmbedding;
  } else if (request.scores_prompt()) {
    generation.reading = PromptReading::kLogprobs;
    generation.prompt_alternatives = static_cast<uint32_t>(request.sampling.logprobs);
  }
  if (request.logprob_start && *request.logprob_start >= generation.prompt.size()) {
    return openai::invalid_request(
        "must be less than the prompt's " + std::to_string(generation.prompt.size()) + " tokens",
        "logprob_start_len");
  }
  PDJOB_TRY_STATUS(open_choices(request, seed, grammar, generation));
  if (request.kv_transfer) {
    generation.transfer = request.kv_transfer->transfer.value_or(TransferId{});
    generation.two_hop = !request.kv_transfer->transfer;
    generation.peer = peer_address(*request.kv_transfer);
  }
  if (!request.resumed.empty() && generation.kv != KvMode::kOffer) {
    const auto resumed = request.resumed.begin() + static_cast<ptrdiff_t>(index * request.choices);
    generation.resumed.assign(resumed, resumed + request.choices);
    PDJOB_TRY_STATUS(can_resume(generation));
  }
  return generation;
}

Result<Done, openai::ApiError> GenerationMaker::can_resume(const GenerationRequest& resumed) const {
  const auto vocabulary = static_cast<Token>(engine_.vocabulary().size());
  for (const std::vector<Token>& tokens : resumed.resumed) {
    if (tokens.size() > static_cast<size_t>(resumed.stop.max_tokens)) {
      return openai::invalid_request("more tokens to go on with than max_tokens", "pdjob_resume");
    }
    if (std::ranges::any_of(tokens, [&](Token token) { return token >= vocabulary; })) {
      return openai::invalid_request("a token to go on with is not in the vocabulary",
                                     "pdjob_resume");
    }
  }
  return ok();
}

// A longer text has more tokens than rows, or costs more time and memory to tokenize than one
// request may use.
size_t GenerationMaker::text_bytes_max() const {
  return std::min<size_t>(
      size_t{engine_.config().tokens_per_sequence} * engine_.vocabulary().piece_bytes_max(),
      limits::kPromptBytesMax);
}

openai::ApiError GenerationMaker::too_long(const std::string& what, const char* field) const {
  return openai::invalid_request("this model's maximum context length is " +
                                     std::to_string(engine_.config().tokens_per_sequence) +
                                     " tokens, but " + what,
                                 field, "context_length_exceeded");
}

Result<std::vector<Token>, openai::ApiError> GenerationMaker::tokenize_to_fit(
    std::string_view text, const char* field) const {
  if (text.size() > text_bytes_max()) {
    return too_long("the text has " + std::to_string(text.size()) + " bytes", field);
  }
  const size_t room = engine_.config().tokens_per_sequence;
  // Tokenizing takes microseconds per byte, so a text that is much too long must not be tokenized
  // to its end. A text longer than the first prefix fits only if it has more than four bytes per
  // token. At the cut, a few tokens may differ from those of the whole text.
  constexpr size_t kBytesPerToken = 4;
  constexpr size_t kGrowth = 4;
  for (size_t bytes = room * kBytesPerToken; bytes < text.size() / 2; bytes *= kGrowth) {
    size_t cut = bytes;
    while (cut > 0 && (static_cast<uint8_t>(text[cut]) & 0xC0U) == 0x80U) {
      --cut;  // Cut between characters.
    }
    const size_t tokens = engine_.vocabulary()
                              .tokenize(text.substr(0, cut), /*add_special=*/true,
                                        /*parse_special=*/true)
                              .size();
    if (tokens > room + room / 8 + kBytesPerToken) {
      return too_long("the first " + std::to_string(cut) + " of " + std::to_string(text.size()) +
                          " bytes have " + std::to_string(tokens),
                      field);
    }
  }
  return engine_.vocabulary().tokenize(text, /*add_special=*/true, /*parse_special=*/true);
}

Result<std::vector<Token>, openai::ApiError> GenerationMaker::tokenize(std::string_view text,
                                                                       bool add_special) const {
  if (text.size() > limits::kTokenizeBytesMax) {
    return openai::invalid_request("the text must have at most " +
                                       std::to_string(limits::kTokenizeBytesMax) + " bytes, got " +
                                       std::to_string(text.size()),
                                   "prompt");
  }
  return engine_.vocabulary().tokenize(text, add_special, /*parse_special=*/true);
}

Result<std::string> GenerationMaker::render(const Chat& chat) const {
  std::vector<engine::ChatMessage> messages;
  messages.reserve(chat.messages.size());
  for (const openai::ApiMessage& message : chat.messages) {
    engine::ChatMessage& out = messages.emplace_back();
    out = {.role = message.role,
           .content = message.content,
           .reasoning = message.reasoning,
           .tool_call_id = message.tool_call_id,
           .tool_name = message.tool_name};
    for (const openai::ApiToolCall& call : message.tool_calls) {
      out.tool_calls.push_back({.id = call.id, .name = call.name, .arguments = call.arguments});
    }
  }
  std::vector<engine::ChatTool> known;
  known.reserve(chat.tools.size());
  for (const openai::ApiTool& tool : chat.tools) {
    known.push_back(
        {.name = tool.name, .description = tool.description, .parameters = tool.parameters});
  }
  return engine_.vocabulary().apply_chat_template(messages, known,
                                                  {.values = chat.filling.values,
                                                   .opens_turn = chat.filling.opens_turn,
                                                   .continues_last = chat.filling.continues_last});
}

Result<std::vector<Token>, openai::ApiError> GenerationMaker::tokenize(const Chat& chat) const {
  const auto text = render(chat);
  if (!text) {
    return openai::invalid_request(text.error().message, "messages");
  }
  return tokenize(*text, /*add_special=*/true);
}

Result<std::string, openai::ApiError> GenerationMaker::detokenize(const std::vector<Token>& tokens,
                                                                  bool render_special) const {
  std::string text;
  for (const Token token : tokens) {
    if (static_cast<uint32_t>(token) >= engine_.vocabulary().size()) {
      return openai::invalid_request(
          "token id " + std::to_string(token) + " is not in the vocabulary", "tokens");
    }
    text += engine_.vocabulary().piece(token, render_special);
  }
  return text;
}

std::string GenerationMaker::text_of(const std::vector<Token>& prompt, bool render_special) const {
  std::string text;
  for (const Token token : prompt) {
    text += engine_.vocabulary().piece(token, render_special);
  }
  return text;
}

Result<std::vector<Token>, openai::ApiError> GenerationMaker::take_prompt(
    openai::ApiRequest& request, size_t index) const {
  Result<std::vector<Token>, openai::ApiError> prompt = std::vector<Token>();
  if (openai::is_chat(request.kind)) {
    const auto text = render({request.messages, request.tools, request.chat_template});
    if (!text) {
      return openai::invalid_request(text.error().message, prompt_field(request));
    }
    prompt = tokenize_to_fit(*text, prompt_field(request));
  } else if (index < request.token_prompts.size()) {
    prompt = std::exchange(request.token_prompts[index], {});
  } else {
    prompt =
        tokenize_to_fit(std::exchange(request.prompts[index - request.token_prompts.size()], {}),
                        prompt_field(request));
  }
  if (!prompt) {
    return prompt;
  }
  if (prompt->empty()) {
    return openai::invalid_request("the prompt has no tokens", prompt_field(request));
  }
  const auto vocabulary = static_cast<Token>(engine_.vocabulary().size());
  const auto bad = std::ranges::find_if(*prompt, [&](Token t) { return t < 0 || t >= vocabulary; });
  if (bad != prompt->end()) {
    return openai::invalid_request("token id " + std::to_string(*bad) +
                                       " is not in the vocabulary (0.." +
                                       std::to_string(vocabulary - 1) + ")",
                                   prompt_field(request));
  }
  return prompt;
}

Result<Done, openai::ApiError> GenerationMaker::open_choices(
    const openai::ApiRequest& request, uint64_t seed,
    const std::shared_ptr<const engine::CompiledGrammar>& grammar,
    GenerationRequest& generation) const {
  const bool offered = generation.kv == KvMode::kOffer;
  const uint32_t room = engine_.config().tokens_per_sequence;
  const auto prompt_size = static_cast<uint32_t>(generation.prompt.size());
  if (prompt_size >= room) {
    return too_long("the prompt has " + std::to_string(prompt_size), prompt_field(request));
  }
  if (offered) {
    generation.stop = {.max_tokens = 1};
  } else if (request.fills_context) {
    generation.stop.max_tokens = static_cast<int32_t>(room - prompt_size);
  }
  if (prompt_size + static_cast<uint64_t>(generation.stop.max_tokens) > room) {
    return too_long(std::to_string(prompt_size) + " of the prompt and " + limit_field(request) +
                        " = " + std::to_string(generation.stop.max_tokens) +
                        " were asked for: at most " + std::to_string(room - prompt_size) + " fit",
                    limit_field(request));
  }
  // The single token of an offered prompt is vLLM's convention and is never shown. The decode
  // worker samples from the logits itself.
  const uint32_t choices = offered ? 1 : request.choices;
  if (generation.prompt_only) {
    generation.samplers.resize(choices);
    return ok();
  }
  for (uint32_t choice = 0; choice < choices; ++choice) {
    SamplingParams params = offered ? SamplingParams{.temperature = 0} : request.sampling;
    params.seed = seed + choice;
    auto sampler = engine::open_sampler(engine_, params, generation.prompt, generation.stop,
                                        offered ? nullptr : grammar);
    if (!sampler) {
      return openai::to_api_error(sampler.error());
    }
    generation.samplers.push_back(std::move(*sampler));
  }
  return ok();
}

}  // namespace pdjob::worker
