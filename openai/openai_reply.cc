#include "openai/openai_reply.h"

#include <algorithm>

#include "common/check.h"
#include "common/hex.h"
#include "common/json/json_writer.h"
#include "openai/openai_embedding.h"
#include "openai/openai_fields.h"
#include "openai/responses.h"
#include "openai/sglang.h"

namespace pdjob::openai {
namespace {

// Counts each character at its first byte, so that offsets are those of the text, whatever bytes a
// token has.
uint64_t characters_in(std::string_view text) {
  return static_cast<uint64_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
  }));
}

// {"id":...,"object":...,"created":...,"model":...,"choices":[
void append_head(std::string& out, const ReplyOptions& options, std::string_view object) {
  JsonWriter json(out);
  json.begin_object();
  if (options.kind == ApiKind::kTokens) {
    json.key("request_id").string(options.rids.empty() ? options.id : options.rids.front());
    json.key("choices").begin_array();
    return;
  }
  json.key("id").string((options.kind == ApiKind::kChat ? "chatcmpl-" : "cmpl-") + options.id);
  json.key("object").string(object);
  json.key("created").integer(options.created);
  json.key("model").string(options.model);
  json.key("choices").begin_array();
}

void append_usage(JsonWriter& json, const Usage& usage) {
  json.key("usage").begin_object();
  json.key("prompt_tokens").integer(usage.prompt_tokens);
  json.key("completion_tokens").integer(usage.completion_tokens);
  json.key("total_tokens").integer(usage.prompt_tokens + usage.completion_tokens);
  json.key("prompt_tokens_details").begin_object();
  json.key("cached_tokens").integer(usage.cached_tokens);
  json.end_object().end_object();
}

void append_card(JsonWriter& json, const ModelCard& model) {
  json.begin_object();
  json.key("id").string(model.id).key("object").string("model");
  json.key("created").integer(model.created).key("owned_by").string("pdjob");
  json.key("root").string(model.id).key("parent");
  if (model.parent.empty()) {
    json.null();
  } else {
    json.string(model.parent);
  }
  if (model.context_max > 0) {
    json.key("max_model_len").integer(model.context_max);
  }
  json.end_object();
}

// `calls`: the word if the choice ends in calls of tools.
void append_finish(JsonWriter& json, FinishReason finish, std::string_view calls = {}) {
  json.key("finish_reason");
  if (finish == FinishReason::kNone) {
    json.null();
  } else if (finish == FinishReason::kStop && !calls.empty()) {
    json.string(calls);
  } else {
    json.string(to_string(finish));
  }
}

void append_call(JsonWriter& json, const ToolCallPart& call, bool whole) {
  json.begin_object();
  if (!whole) {
    json.key("index").integer(call.index);
  }
  const bool first = !call.id.empty();
  if (first) {
    json.key("id").string(call.id).key("type").string("function");
  }
  json.key("function").begin_object();
  if (first) {
    json.key("name").string(call.name);
  }
  json.key("arguments").string(call.arguments).end_object().end_object();
}

// A call in OpenAI's old form, or a part of it.
void append_legacy_call(JsonWriter& json, const ToolCallPart& call) {
  json.key("function_call").begin_object();
  if (!call.id.empty()) {
    json.key("name").string(call.name);
  }
  json.key("arguments").string(call.arguments).end_object();
}

void append_token_ids(JsonWriter& json, std::span<const GeneratedToken> tokens) {
  json.key("token_ids").begin_array();
  for (const GeneratedToken& token : tokens) {
    json.integer(token.token);
  }
  json.end_array();
}

void append_prompt_ids(JsonWriter& json, std::span<const Token> prompt) {
  json.key("prompt_token_ids").begin_array();
  for (const Token token : prompt) {
    json.integer(token);
  }
  json.end_array();
}

}  // namespace

ReplyOptions reply_options(const ApiRequest& request) {
  const size_t prompts =
      is_chat(request.kind) ? 1 : request.prompts.size() + request.token_prompts.size();
  return {.kind = request.kind,
          .rids = request.rids,
          .model = request.model,
          .choices = static_cast<uint32_t>(prompts) * request.choices,
          .choices_per_prompt = request.choices,
          .list = request.prompts_listed,
          .logprobs = request.sampling.logprobs >= 0,
          .alternatives = request.sampling.logprobs > 0,
          .text_in_logprobs = request.text_in_logprobs,
          .return_token_ids = request.return_token_ids,
          .return_weight_versions = request.return_weight_versions,
          .tokens_as_ids = request.tokens_as_ids,
          .include_usage = request.include_usage,
          .continuous_usage = request.continuous_usage,
          .dimensions = request.dimensions,
          .base64 = request.base64,
          .tools = !request.tools.empty(),
          .legacy_functions = request.legacy_functions,
          .logprob_start = request.logprob_start,
          .response_settings = request.response_settings};
}

float finite_logprob(float logprob) {
  constexpr float kMin = -9999.0F;  // vLLM's floor.
  return logprob >= kMin ? logprob : kMin;
}

std::unique_ptr<ReplyForm> reply_form(ReplyOptions options, AppendPiece append_piece) {
  if (options.kind == ApiKind::kSglang) {
    return std::make_unique<SglangReplyWriter>(std::move(options), std::move(append_piece));
  }
  if (options.kind == ApiKind::kEmbedding) {
    return std::make_unique<EmbeddingReplyWriter>(std::move(options));
  }
  if (options.kind == ApiKind::kResponses) {
    return std::make_unique<ResponsesReplyWriter>(std::move(options), std::move(append_piece));
  }
  return std::make_unique<ReplyWriter>(std::move(options), std::move(append_piece));
}

std::string aborted_reply(const ApiRequest& request, const ReplyOptions& options,
                          const ReplyPart& part) {
  const auto form = reply_form(options, [](Token /*token*/, std::string& /*out*/) {});
  std::vector<ReplyPart> parts(options.choices, part);
  for (uint32_t choice = 0; choice < options.choices; ++choice) {
    ReplyPart& each = parts[choice];
    each.choice = choice;
    each.finish = FinishReason::kAbort;
    // Only an engine can count the tokens of text.
    if (const size_t prompt = choice / options.choices_per_prompt;
        prompt < request.token_prompts.size()) {
      each.prompt = request.token_prompts[prompt];
      each.prompt_tokens = each.prompt.size();
    }
  }
  Usage usage;
  for (const std::vector<Token>& prompt : request.token_prompts) {
    usage.prompt_tokens += prompt.size();
  }
  std::string body;
  if (!request.stream) {
    form->append_whole(body, parts, usage, {});
    return body;
  }
  for (const ReplyPart& each : parts) {
    form->append_part(body, each);
  }
  form->append_end(body, usage);
  return body;
}

ReplyWriter::ReplyWriter(ReplyOptions options, AppendPiece append_piece)
    : options_(std::move(options)),
      names_(std::move(append_piece), options_.tokens_as_ids),
      event_begin_("data: "),
      // As in OpenAI's API: with include_usage, usage is null in all events except the last.
      event_end_(options_.include_usage ? ",\"usage\":null}\n\n" : "}\n\n"),
      choices_(options_.choices) {
  append_head(event_begin_, options_,
              options_.kind == ApiKind::kChat ? "chat.completion.chunk" : "text_completion");
}

void ReplyWriter::append_part(std::string& out, const ReplyPart& part) {
  PDJOB_CHECK(part.choice < choices_.size(), part.choice, choices_.size());
  const bool shows_tokens = !part.tokens.empty() && (options_.logprobs || shows_ids());
  if (part.text.empty() && part.calls.empty() && !shows_tokens &&
      part.finish == FinishReason::kNone) {
    return;
  }
  if (options_.kind == ApiKind::kChat && !choices_[part.choice].started) {
    append_role_event(out, part);
  }
  out += event_begin_;
  JsonWriter json(out);
  append_choice(json, part, "delta");
  out += ']';
  end_event(out, part, part.completion_tokens);
}

void ReplyWriter::end_event(std::string& out, const ReplyPart& part,
                            uint64_t completion_tokens) const {
  if (!options_.continuous_usage) {
    out += event_end_;
    return;
  }
  out += ',';
  JsonWriter json(out);
  append_usage(json, {.prompt_tokens = part.prompt_tokens,
                      .cached_tokens = part.cached_tokens,
                      .completion_tokens = completion_tokens});
  out += "}\n\n";
}

void ReplyWriter::append_end(std::string& out, const Usage& usage) {
  if (options_.include_usage) {
    out += event_begin_;
    out += "],";
    JsonWriter json(out);
    append_usage(json, usage);
    out += "}\n\n";
  }
  append_done(out);
}

void ReplyWriter::append_whole(std::string& out, std::span<const ReplyPart> parts,
                               const Usage& usage, std::string_view kv_transfer_params) {
  const bool chat = options_.kind == ApiKind::kChat;
  append_head(out, options_, chat ? "chat.completion" : "text_completion");
  JsonWriter choices(out);
  for (const ReplyPart& part : parts) {
    PDJOB_CHECK(part.choice < choices_.size(), part.choice, choices_.size());
    append_choice(choices, part, "message");
  }
  out += "],";
  JsonWriter json(out);
  append_usage(json, usage);
  if (shows_ids() && !parts.empty()) {
    json.key("weight_version").string(parts.back().weight_version);
  }
  if (chat && options_.return_token_ids && !parts.empty()) {
    append_prompt_ids(json, parts.front().prompt);
  }
  json.key("kv_transfer_params").raw(kv_transfer_params.empty() ? "null" : kv_transfer_params);
  json.end_object();  // Opened by the head.
}

// As in vLLM, it also carries the ids of the prompt.
void ReplyWriter::append_role_event(std::string& out, const ReplyPart& part) {
  const bool first_choice = std::none_of(choices_.begin(), choices_.end(),
                                         [](const ChoiceState& choice) { return choice.started; });
  choices_[part.choice].started = true;
  out += event_begin_;
  JsonWriter choice(out);
  choice.begin_object().key("index").integer(part.choice);
  choice.key("delta").begin_object().key("role").string("assistant").key("content");
  if (options_.tools) {
    choice.null();
  } else {
    choice.string("");
  }
  choice.end_object();
  choice.key("logprobs").null();
  append_finish(choice, FinishReason::kNone);
  choice.end_object();
  out += ']';
  if (options_.return_token_ids && first_choice) {
    out += ',';
    JsonWriter json(out);
    append_prompt_ids(json, part.prompt);
  }
  end_event(out, part, 0);
}

void ReplyWriter::append_choice(JsonWriter& json, const ReplyPart& part,
                                std::string_view message_name) {
  const bool chat = options_.kind == ApiKind::kChat;
  const bool completion = options_.kind == ApiKind::kCompletion;
  json.begin_object().key("index").integer(part.choice);
  if (completion) {
    json.key("text").string(part.text);
  } else if (chat) {
    json.key(message_name);
    append_message(json, part, message_name == "message");
  }
  json.key("logprobs");
  // Clients of vLLM's own route read the list even if there are no tokens.
  const bool scores_prompt = part.prompt_logprobs != nullptr && !choices_[part.choice].started;
  const bool none = part.tokens.empty() && !scores_prompt && options_.kind != ApiKind::kTokens;
  if (!options_.logprobs || none) {
    json.null();
  } else if (completion) {
    append_completion_logprobs(json, part);
  } else {
    append_chat_logprobs(json, part);
  }
  const std::string_view calls = options_.legacy_functions ? "function_call" : "tool_calls";
  append_finish(json, part.finish, part.ends_in_calls ? calls : std::string_view());
  if (shows_ids()) {
    append_token_ids(json, part.tokens);
  }
  if (completion && options_.return_token_ids && !choices_[part.choice].started) {
    append_prompt_ids(json, part.prompt);
  }
  if ((shows_ids() || options_.return_weight_versions) && part.finish != FinishReason::kNone) {
    append_weight_versions(json, part);
  }
  json.end_object();
  choices_[part.choice].started = true;
}

// With tools, a message without text has null, and a delta nothing, as in OpenAI's API.
void ReplyWriter::append_message(JsonWriter& json, const ReplyPart& part, bool whole) const {
  json.begin_object();
  if (whole) {
    json.key("role").string("assistant");
  }
  if (!part.text.empty() || !options_.tools) {
    json.key("content").string(part.text);
  } else if (whole) {
    json.key("content").null();
  }
  if (!part.calls.empty() && options_.legacy_functions) {
    append_legacy_call(json, part.calls.front());
  } else if (!part.calls.empty()) {
    json.key("tool_calls").begin_array();
    for (const ToolCallPart& call : part.calls) {
      append_call(json, call, whole);
    }
    json.end_array();
  }
  json.end_object();
}

void ReplyWriter::append_chat_logprobs(JsonWriter& json, const ReplyPart& part) {
  json.begin_object().key("content").begin_array();
  for (const GeneratedToken& token : part.tokens) {
    // Clients of vLLM's own route find the token itself there, also without alternatives.
    const TokenLogprob own{.token = token.token, .logprob = token.logprob};
    const bool only_own = options_.kind == ApiKind::kTokens && token.top.empty();
    names_.append_logprobs(json, token, only_own ? std::span(&own, 1) : std::span(token.top));
  }
  json.end_array().end_object();
}

void ReplyWriter::append_completion_logprobs(JsonWriter& json, const ReplyPart& part) {
  std::vector<Scored> scored;
  if (part.prompt_logprobs != nullptr && !choices_[part.choice].started) {
    const PromptLogprobs& of_prompt = *part.prompt_logprobs;
    PDJOB_CHECK(of_prompt.logprobs.size() + 1 == part.prompt.size(), part.prompt.size());
    scored.push_back({.token = part.prompt.front()});
    for (size_t at = 0; at < of_prompt.logprobs.size(); ++at) {
      scored.push_back({.token = part.prompt[at + 1],
                        .logprob = of_prompt.logprobs[at],
                        .top = std::span(of_prompt.top)
                                   .subspan(at * of_prompt.alternatives, of_prompt.alternatives)});
    }
  }
  for (const GeneratedToken& token : part.tokens) {
    scored.push_back({.token = token.token, .logprob = token.logprob, .top = token.top});
  }
  json.begin_object().key("text_offset").begin_array();
  uint64_t& characters = choices_[part.choice].characters;
  for (const Scored& each : scored) {
    json.integer(characters);
    characters += characters_in(names_.piece_of(each.token));
  }
  json.end_array().key("token_logprobs").begin_array();
  for (const Scored& each : scored) {
    each.logprob ? json.number(finite_logprob(*each.logprob)) : json.null();
  }
  json.end_array().key("tokens").begin_array();
  for (const Scored& each : scored) {
    json.string(names_.name_of(each.token));
  }
  json.end_array().key("top_logprobs").begin_array();
  for (const Scored& each : scored) {
    append_top(json, each);
  }
  json.end_array().end_object();
}

// The token itself is always included, so there may be one more than requested.
void ReplyWriter::append_top(JsonWriter& json, const Scored& scored) {
  if (!scored.logprob) {
    json.null();
    return;
  }
  keys_.clear();
  key_ends_.clear();
  json.begin_object();
  append_top_key(json, scored.token);
  json.number(finite_logprob(*scored.logprob));
  for (const TokenLogprob& top : scored.top) {
    if (top.token != scored.token) {
      append_top_key(json, top.token);
      json.number(finite_logprob(top.logprob));
    }
  }
  json.end_object();
}

// Several tokens may have the same text in JSON. Readers keep one value of a key, so the later ones
// are named by their ids, as vLLM does it.
void ReplyWriter::append_top_key(JsonWriter& json, Token token) {
  const size_t begin = keys_.size();
  append_json_escaped(keys_, names_.name_of(token));
  const std::string_view key = std::string_view(keys_).substr(begin);
  size_t other = 0;
  bool taken = false;
  for (const size_t end : key_ends_) {
    taken = taken || std::string_view(keys_).substr(other, end - other) == key;
    other = end;
  }
  key_ends_.push_back(keys_.size());
  json.key(taken ? names_.id_name(token) : names_.name_of(token));
}

void append_weight_versions(JsonWriter& json, const ReplyPart& part) {
  json.key("weight_version")
      .string(part.weights.empty() ? part.weight_version : part.weights.back().version);
  json.key("weight_versions").begin_array();
  for (const WeightSpan& span : part.weights) {
    json.begin_object().key("version").string(span.version);
    json.key("start").integer(span.start).key("end").integer(span.end).end_object();
  }
  json.end_array();
}

void ReplyForm::append_error(std::string& out, const ApiError& error) {
  append_error_event(out, error);
}

void TokenNames::append_logprobs(JsonWriter& json, const GeneratedToken& token,
                                 std::span<const TokenLogprob> top) {
  json.begin_object();
  append_logprob(json, token.token, token.logprob);
  json.key("top_logprobs").begin_array();
  for (const TokenLogprob& each : top) {
    json.begin_object();
    append_logprob(json, each.token, each.logprob);
    json.end_object();
  }
  json.end_array().end_object();
}

void TokenNames::append_logprob(JsonWriter& json, Token token, float logprob) {
  json.key("token").string(name_of(token));
  json.key("logprob").number(finite_logprob(logprob));
  json.key("bytes").begin_array();
  for (const char byte : piece_of(token)) {
    json.integer(static_cast<unsigned char>(byte));
  }
  json.end_array();
}

std::string_view TokenNames::name_of(Token token) {
  return as_ids_ ? id_name(token) : piece_of(token);
}

std::string_view TokenNames::id_name(Token token) {
  name_ = "token_id:";
  name_ += std::to_string(token);
  return name_;
}

std::string_view TokenNames::piece_of(Token token) {
  piece_.clear();
  append_piece_(token, piece_);
  return piece_;
}

void append_error_event(std::string& out, const ApiError& error) {
  out += "data: ";
  out += error_body(error);
  out += "\n\n";
}

void append_done(std::string& out) { out += "data: [DONE]\n\n"; }

std::string models_body(std::span<const ModelCard> models) {
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("object").string("list").key("data").begin_array();
  for (const ModelCard& model : models) {
    append_card(json, model);
  }
  json.end_array().end_object();
  return body;
}

std::string percent_decoded(std::string_view encoded) {
  std::string text;
  for (size_t at = 0; at < encoded.size(); ++at) {
    const auto byte = encoded[at] == '%' && encoded.size() - at > 2
                          ? parse_hex(encoded.substr(at + 1, 2))
                          : std::nullopt;
    text += byte ? static_cast<char>(*byte) : encoded[at];
    at += byte ? 2 : 0;
  }
  return text;
}

Result<std::string, ApiError> model_body(std::span<const ModelCard> models,
                                         std::string_view encoded) {
  const std::string id = percent_decoded(encoded);
  const auto found = std::ranges::find(models, id, &ModelCard::id);
  if (found == models.end()) {
    return invalid_request("the model " + excerpt(id) + " does not exist", "model",
                           "model_not_found", 404);
  }
  std::string body;
  JsonWriter json(body);
  append_card(json, *found);
  return body;
}

}  // namespace pdjob::openai
