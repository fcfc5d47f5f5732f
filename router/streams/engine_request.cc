#include "router/streams/engine_request.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "common/check.h"
#include "openai/json/json_edit.h"
#include "openai/json/json_number.h"

namespace pdjob::router {
namespace {

constexpr std::string_view kCompletions = "/v1/completions";
constexpr std::string_view kChat = "/v1/chat/completions";
constexpr uint64_t kCompletionTokens = 16;  // Of a completion that names no limit.

// What a member does to the tokens that follow.
enum class Effect : uint8_t {
  kPlain,   // It means the same in the new request, or nothing for it.
  kPrompt,  // It makes the prompt, whose tokens take its place, or is a chat's alone.
  kLimit,   // A number of tokens: the new request has its own.
};
struct Known {
  std::string_view name;
  Effect effect = Effect::kPlain;
};
constexpr auto kKnown = std::to_array<Known>({
    {"add_generation_prompt", Effect::kPrompt},
    {"add_special_tokens", Effect::kPrompt},
    {"allowed_token_ids"},
    {"best_of", Effect::kPrompt},
    {"bootstrap_host"},
    {"bootstrap_port"},
    {"bootstrap_room"},
    {"cache_salt"},
    {"chat_template", Effect::kPrompt},
    {"chat_template_kwargs", Effect::kPrompt},
    {"continue_final_message", Effect::kPrompt},
    {"documents", Effect::kPrompt},
    {"extra_key"},
    {"ignore_eos"},
    {"include_reasoning", Effect::kPrompt},
    {"include_stop_str_in_output"},
    {"kv_transfer_params"},
    {"logit_bias"},
    {"logprobs"},
    {"lora_path"},
    {"max_completion_tokens", Effect::kLimit},
    {"max_tokens", Effect::kLimit},
    {"messages", Effect::kPrompt},
    {"metadata"},
    {"min_p"},
    {"min_tokens", Effect::kLimit},
    {"model"},
    {"n", Effect::kPrompt},
    {"parallel_tool_calls", Effect::kPrompt},
    {"priority"},
    {"prompt", Effect::kPrompt},
    {"prompt_cache_key"},
    {"reasoning_effort", Effect::kPrompt},
    {"request_id"},
    {"rid"},
    {"return_token_ids"},
    {"safety_identifier"},
    {"seed"},
    {"service_tier"},
    {"session_id"},
    {"skip_special_tokens"},
    {"spaces_between_special_tokens"},
    {"stop_token_ids"},
    {"store"},
    {"stream"},
    {"stream_options"},
    {"temperature"},
    {"tool_choice", Effect::kPrompt},
    {"top_k"},
    {"top_logprobs", Effect::kPrompt},
    {"top_p"},
    {"truncate_prompt_tokens", Effect::kPrompt},
    {"truncation_side", Effect::kPrompt},
    {"user"},
});

const Known* find_known(std::string_view name) {
  const auto found = std::ranges::find(kKnown, name, &Known::name);
  return found == kKnown.end() ? nullptr : &*found;
}

bool is_empty_value(std::string_view value) {
  return value.empty() || value == "null" || value == "[]" || value == "\"\"" || value == "{}" ||
         value == "false";
}

bool is_number(std::string_view value, int64_t number) {
  return openai::json_integer(value) == number;
}

uint64_t count_of(std::string_view value) {
  return static_cast<uint64_t>(std::max<int64_t>(0, openai::json_integer(value).value_or(0)));
}

// One text, or one list of token ids.
bool is_one_prompt(std::string_view value) {
  if (value.starts_with('"')) {
    return true;
  }
  const size_t first = value.find_first_not_of(" \t\r\n", 1);
  return value.starts_with('[') && first != std::string_view::npos && value[first] >= '0' &&
         value[first] <= '9';
}

std::string_view member_of(std::string_view object, std::string_view name) {
  if (!object.starts_with('{')) {
    return {};
  }
  const std::string text(object);
  const auto members = openai::json_members(text);
  if (!members) {
    return {};
  }
  for (const openai::JsonMember& member : *members) {
    if (member.name == name) {
      // A view of the caller's text.
      return object.substr(static_cast<size_t>(member.value.data() - text.data()),
                           member.value.size());
    }
  }
  return {};
}

void append_member(std::string& body, std::string_view name, std::string_view value) {
  body.append(body.size() > 1 ? ",\"" : "\"").append(name).append("\":").append(value);
}

}  // namespace

// Text has its quotes escaped, so these are names.
bool has_more_than_text(std::string_view messages) {
  static constexpr std::string_view kParts[] = {"_url\"", "\"input_audio\"", "_embeds\""};
  return std::ranges::any_of(
      kParts, [&](std::string_view part) { return messages.find(part) != std::string_view::npos; });
}

// What the members say, one after the other.
struct EngineRequest::Reading {
  EngineRequest& request;
  bool greedy = false;
  bool seeded = false;
  bool has_tools = false;
  bool tools_off = false;
  bool several = false;
  std::optional<uint64_t> max_tokens = {};
  std::optional<uint64_t> max_completion_tokens = {};

  // The first obstacle stays, but several choices are worse than any.
  void meet(Obstacle obstacle) {
    if (request.obstacle_ == Obstacle::kNone || obstacle == Obstacle::kChoices) {
      request.obstacle_ = obstacle;
    }
    several = several || obstacle == Obstacle::kChoices;
  }
  void take(std::string_view name, std::string_view value);
  bool take_obstacle(std::string_view name, std::string_view value);
  void take_known(std::string_view name, std::string_view value);
};

// Members that may be in the way. Returns false for others.
bool EngineRequest::Reading::take_obstacle(std::string_view name, std::string_view value) {
  constexpr auto kBlocking = std::to_array<std::pair<std::string_view, Obstacle>>({
      {"bad_words", Obstacle::kSampling},
      {"ebnf", Obstacle::kStructure},
      {"echo", Obstacle::kChoices},
      {"frequency_penalty", Obstacle::kSampling},
      {"guided_choice", Obstacle::kStructure},
      {"guided_grammar", Obstacle::kStructure},
      {"guided_json", Obstacle::kStructure},
      {"guided_regex", Obstacle::kStructure},
      {"json_schema", Obstacle::kStructure},
      {"presence_penalty", Obstacle::kSampling},
      {"prompt_logprobs", Obstacle::kChoices},
      {"regex", Obstacle::kStructure},
      {"repetition_penalty", Obstacle::kSampling},
      {"response_format", Obstacle::kStructure},
      {"stop", Obstacle::kText},
      {"stop_regex", Obstacle::kText},
      {"structured_outputs", Obstacle::kStructure},
      {"use_beam_search", Obstacle::kChoices},
  });
  const auto found =
      std::ranges::find(kBlocking, name, &std::pair<std::string_view, Obstacle>::first);
  if (found == kBlocking.end()) {
    return false;
  }
  const bool idle = is_empty_value(value) ||
                    is_number(value, name == "repetition_penalty" ? 1 : 0) ||
                    (name == "response_format" && member_of(value, "type") == "\"text\"");
  if (!idle) {
    meet(found->second);
  }
  return true;
}

void EngineRequest::Reading::take_known(std::string_view name, std::string_view value) {
  if (name == "logprobs") {
    request.wants_logprobs_ = value != "false";
  } else if (name == "temperature") {
    greedy = is_number(value, 0);
  } else if (name == "seed") {
    seeded = true;
  } else if (name == "tool_choice") {
    tools_off = value == "\"none\"";
  } else if (name == "n" || name == "best_of") {
    if (!is_number(value, 1)) {
      meet(Obstacle::kChoices);
    }
  } else if (name == "prompt") {
    if (!is_one_prompt(value)) {
      meet(Obstacle::kChoices);
    }
  } else if (name == "messages") {
    if (has_more_than_text(value)) {
      meet(Obstacle::kMember);  // The tokens alone do not make its prompt.
    }
  } else if (name == "return_token_ids") {
    request.wants_tokens_ = value == "true";
  } else if (name == "stream_options") {
    request.wants_usage_ = member_of(value, "include_usage") == "true";
  } else if (name == "max_tokens") {
    max_tokens = count_of(value);
  } else if (name == "max_completion_tokens" && request.chat_) {
    max_completion_tokens = count_of(value);
  } else if (name == "min_tokens") {
    request.output_min_ = count_of(value);
  }
}

void EngineRequest::Reading::take(std::string_view name, std::string_view value) {
  if (value == "null" || take_obstacle(name, value)) {
    return;
  }
  if (name == "tools") {
    has_tools = !is_empty_value(value);
  } else if (find_known(name) != nullptr) {
    take_known(name, value);
  } else if (!name.starts_with("pdjob_")) {
    meet(Obstacle::kMember);
  }
}

EngineRequest EngineRequest::read(std::string_view target, const std::string& body,
                                  const EngineFacts& engine) {
  EngineRequest request;
  request.target_ = target;
  request.body_ = &body;
  request.engine_ = engine;
  request.chat_ = target == kChat;
  const auto members = openai::json_members(body);
  if ((!request.chat_ && target != kCompletions) || !members) {
    request.obstacle_ = Obstacle::kMember;
    return request;
  }
  Reading reading{.request = request};
  for (const openai::JsonMember& member : *members) {
    reading.take(member.name, member.value);
  }
  if (reading.has_tools && !reading.tools_off) {
    reading.meet(Obstacle::kTools);
  }
  if (request.wants_logprobs_ && request.is_converted()) {
    reading.meet(Obstacle::kMember);  // A completion tells them in another form.
  }
  if (reading.seeded && !reading.greedy) {
    reading.meet(Obstacle::kSampling);
  }
  request.output_max_ =
      reading.max_completion_tokens ? reading.max_completion_tokens : reading.max_tokens;
  if (!request.chat_ && !request.output_max_) {
    request.output_max_ = kCompletionTokens;
  }
  if (request.is_converted() && !request.output_max_ && engine.context_max == 0) {
    reading.meet(Obstacle::kMember);  // A completion needs a limit.
  }
  request.may_replay_ = !reading.several && (reading.greedy || reading.seeded);
  return request;
}

std::optional<uint64_t> EngineRequest::left_behind(const Tokens& tokens) const {
  if (output_max_) {
    return *output_max_ - std::min(*output_max_, tokens.output_count);
  }
  if (engine_.context_max == 0) {
    return std::nullopt;
  }
  const uint64_t taken = tokens.prompt_count + tokens.output_count;
  return engine_.context_max - std::min<uint64_t>(engine_.context_max, taken);
}

Resumption EngineRequest::by_tokens(const Tokens& tokens) const {
  const std::optional<uint64_t> left = left_behind(tokens);
  PDJOB_CHECK(left != 0);
  Resumption next{.tokens = {}, .weights = {}, .target = target_, .body = "{"};
  const bool stays_chat = chat_ && engine_.sglang;
  next.target = stays_chat ? target_ : kCompletions;
  next.body.reserve(body_->size() + tokens.prompt.size() + tokens.output.size() + 128);
  const auto members = openai::json_members(*body_);
  PDJOB_CHECK(members.has_value());
  for (const openai::JsonMember& member : *members) {
    const Known* known = find_known(member.name);
    if (member.value != "null" && known != nullptr &&
        (known->effect == Effect::kPlain || (stays_chat && known->effect == Effect::kPrompt)) &&
        member.name != "return_token_ids") {
      append_member(next.body, member.name, member.value);
    }
  }
  std::string ids = "[";
  ids.append(tokens.prompt).append(tokens.prompt.empty() || tokens.output.empty() ? "" : ",");
  ids.append(tokens.output).append("]");
  append_member(next.body, stays_chat ? "input_ids" : "prompt", ids);
  if (left) {
    append_member(next.body, "max_tokens", std::to_string(*left));
  }
  if (output_min_ > tokens.output_count) {
    append_member(next.body, "min_tokens", std::to_string(output_min_ - tokens.output_count));
  }
  if (stays_chat) {
    append_member(next.body, "separate_reasoning", "false");  // The reasoning is over.
  }
  append_member(next.body, "return_token_ids", "true");
  next.body.push_back('}');
  return next;
}

Resumption EngineRequest::by_replay() const {
  const openai::JsonEdit asks[] = {{"return_token_ids", "true"}};
  auto body = openai::edit_json_object(*body_, asks);
  PDJOB_CHECK(body.has_value());
  return {.tokens = {}, .weights = {}, .target = target_, .body = std::move(*body)};
}

}  // namespace pdjob::router
