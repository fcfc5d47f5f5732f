#include "worker/generation_maker.h"

#include <algorithm>

#include "common/random.h"
#include "common/real_clock.h"
#include "engine/sampler.h"
#include "worker/kv_params.h"

namespace pdjob::worker {
namespace {

// Which half of a hand-over the request asks for, if this worker's role can do it.
std::variant<KvMode, net::ApiError> kv_mode(const net::ApiRequest& request, net::Role role) {
  if (!request.kv_transfer) {
    return KvMode::kLocal;
  }
  const net::KvTransferParams& kv = *request.kv_transfer;
  const std::string field = "kv_transfer_params";
  if (!kv.do_remote_decode && !kv.do_remote_prefill) {
    return KvMode::kLocal;
  }
  if (kv.do_remote_decode && kv.do_remote_prefill) {
    return net::invalid_request("a prompt is either prefilled here or fetched, not both", field);
  }
  if (std::max(request.prompts.size(), request.token_prompts.size()) > 1) {
    return net::invalid_request(
        "one hand-over is one prompt: send several prompts without kv_transfer_params", field);
  }
  if (kv.do_remote_decode) {
    if (role != net::Role::kPrefill) {
      return net::invalid_request(std::string("this is a ") + net::to_string(role) +
                                      " worker: send do_remote_decode to a prefill worker",
                                  field);
    }
    return KvMode::kOffer;
  }
  if (role == net::Role::kPrefill) {
    return net::invalid_request(
        "this is a prefill worker: send do_remote_prefill to a decode worker", field);
  }
  const bool has_address =
      kv.remote_port != 0 || !kv.remote_unix_path.empty() || !kv.remote_gpu_path.empty();
  if (!kv.transfer || !has_address) {
    return net::invalid_request(
        "do_remote_prefill needs transfer_id and the prefill worker's address: pass on what it "
        "returned",
        field);
  }
  return KvMode::kFetch;
}

}  // namespace

std::variant<std::vector<GenerationRequest>, net::ApiError> GenerationMaker::make(
    const net::ApiRequest& request) const {
  auto prompts = tokenize_prompts(request);
  if (const auto* error = std::get_if<net::ApiError>(&prompts)) {
    return *error;
  }
  std::vector<GenerationRequest> generations;
  const uint64_t seed = request.seeded ? request.sampling.seed : entropy();
  for (auto& prompt : std::get<0>(prompts)) {
    const auto first_choice = static_cast<uint32_t>(generations.size()) * request.choices;
    auto generation = make_one(request, std::move(prompt), seed + first_choice);
    if (const auto* error = std::get_if<net::ApiError>(&generation)) {
      return *error;
    }
    auto& made = generations.emplace_back(std::move(std::get<GenerationRequest>(generation)));
    if (!request.resumed.empty() && made.kv != KvMode::kOffer) {
      const auto resumed = request.resumed.begin() + first_choice;
      made.resumed.assign(resumed, resumed + request.choices);
      if (const auto error = wrong_with(made)) {
        return *error;
      }
    }
  }
  return generations;
}

std::optional<net::ApiError> GenerationMaker::wrong_with(const GenerationRequest& resumed) const {
  const auto vocabulary = static_cast<Token>(engine_.vocabulary().size());
  for (const std::vector<Token>& tokens : resumed.resumed) {
    if (tokens.size() > static_cast<size_t>(resumed.stop.max_tokens)) {
      return net::invalid_request("more tokens to go on with than max_tokens", "pdjob_resume");
    }
    if (std::ranges::any_of(tokens, [&](Token token) { return token >= vocabulary; })) {
      return net::invalid_request("a token to go on with is not in the vocabulary", "pdjob_resume");
    }
  }
  return std::nullopt;
}

std::variant<std::vector<Token>, net::ApiError> GenerationMaker::tokenize(std::string_view text,
                                                                          bool add_special,
                                                                          const char* field) const {
  // A longer text has more tokens than rows whatever it says: it is refused before the work of
  // tokenizing it.
  const size_t room = engine_.config().tokens_per_sequence;
  if (text.size() > room * engine_.vocabulary().piece_bytes_max()) {
    return net::invalid_request("this model's maximum context length is " + std::to_string(room) +
                                    " tokens, but the text has " + std::to_string(text.size()) +
                                    " bytes",
                                field, "context_length_exceeded");
  }
  return engine_.vocabulary().tokenize(text, add_special, /*parse_special=*/true);
}

std::variant<std::vector<Token>, net::ApiError> GenerationMaker::tokenize(
    const std::vector<net::ApiMessage>& messages) const {
  std::vector<engine::ChatMessage> chat;
  for (const net::ApiMessage& message : messages) {
    chat.push_back({.role = message.role, .content = message.content});
  }
  const auto text = engine_.vocabulary().apply_chat_template(chat);
  if (!text) {
    return net::invalid_request(text.error().message, "messages");
  }
  return tokenize(*text, /*add_special=*/true, "messages");
}

std::variant<std::vector<std::vector<Token>>, net::ApiError> GenerationMaker::tokenize_prompts(
    const net::ApiRequest& request) const {
  std::vector<std::vector<Token>> prompts = request.token_prompts;
  if (request.kind == net::ApiKind::kChat) {
    auto tokens = tokenize(request.messages);
    if (const auto* error = std::get_if<net::ApiError>(&tokens)) {
      return *error;
    }
    prompts.push_back(std::move(std::get<0>(tokens)));
  }
  for (const std::string& text : request.prompts) {
    auto tokens = tokenize(text, /*add_special=*/true);
    if (const auto* error = std::get_if<net::ApiError>(&tokens)) {
      return *error;
    }
    prompts.push_back(std::move(std::get<0>(tokens)));
  }
  const auto vocabulary = static_cast<Token>(engine_.vocabulary().size());
  for (const auto& prompt : prompts) {
    if (prompt.empty()) {
      return net::invalid_request("the prompt has no tokens", "prompt");
    }
    const auto bad = std::find_if(prompt.begin(), prompt.end(),
                                  [&](Token t) { return t < 0 || t >= vocabulary; });
    if (bad != prompt.end()) {
      return net::invalid_request("token id " + std::to_string(*bad) +
                                      " is not in the vocabulary (0.." +
                                      std::to_string(vocabulary - 1) + ")",
                                  "prompt");
    }
  }
  return prompts;
}

std::variant<GenerationRequest, net::ApiError> GenerationMaker::make_one(
    const net::ApiRequest& request, std::vector<Token> prompt, uint64_t seed) const {
  const auto mode = kv_mode(request, role_);
  if (const auto* error = std::get_if<net::ApiError>(&mode)) {
    return *error;
  }
  GenerationRequest generation{.stop = request.stop,
                               .ignore_eos = request.sampling.ignore_eos,
                               .shares_prompt = request.cache_salt.empty(),
                               .kv = std::get<KvMode>(mode),
                               .deadline = real_now() + queue_timeout_};
  const bool offered = generation.kv == KvMode::kOffer;
  const uint32_t room = engine_.config().tokens_per_sequence;
  const auto prompt_size = static_cast<uint32_t>(prompt.size());
  if (prompt_size >= room) {
    return net::invalid_request("this model's maximum context length is " + std::to_string(room) +
                                    " tokens, but the prompt has " + std::to_string(prompt_size),
                                request.kind == net::ApiKind::kChat ? "messages" : "prompt",
                                "context_length_exceeded");
  }
  if (offered) {
    generation.stop = {.max_tokens = 1};
  } else if (request.kind == net::ApiKind::kChat && !request.max_tokens_given) {
    generation.stop.max_tokens = static_cast<int32_t>(room - prompt_size);
  }
  if (prompt_size + static_cast<uint64_t>(generation.stop.max_tokens) > room) {
    return net::invalid_request("this model's maximum context length is " + std::to_string(room) +
                                    " tokens, but " + std::to_string(prompt_size) +
                                    " of the prompt and max_tokens = " +
                                    std::to_string(generation.stop.max_tokens) + " were asked for",
                                "max_tokens", "context_length_exceeded");
  }
  if (request.kv_transfer) {
    generation.transfer = request.kv_transfer->transfer.value_or(TransferId{entropy(), entropy()});
    generation.two_hop = !request.kv_transfer->transfer;
    generation.peer = peer_address(*request.kv_transfer);
  }
  // The token of an offered prompt is vLLM's convention; nobody shows it. The decode worker samples
  // from the logits itself.
  const uint32_t choices = offered ? 1 : request.choices;
  for (uint32_t choice = 0; choice < choices; ++choice) {
    SamplingParams params = offered ? SamplingParams{.temperature = 0} : request.sampling;
    params.seed = seed + choice;
    auto sampler = engine::open_sampler(engine_, params, prompt, generation.stop);
    if (!sampler) {
      return net::to_api_error(sampler.error());
    }
    generation.samplers.push_back(std::move(*sampler));
  }
  generation.prompt = std::move(prompt);
  return generation;
}

}  // namespace pdjob::worker
