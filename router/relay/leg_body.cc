#include "router/relay/leg_body.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "common/limits.h"
#include "net/http/http_server.h"
#include "openai/json/json_number.h"

namespace pdjob::router {
namespace {

// Request bodies are parsed where they are.
static_assert(net::HttpRequest::kBodySlack >= openai::JsonObject::kSlack);

// Assumed if a request names no limit.
constexpr uint64_t kOutputTokensAssumed = 256;
// No model generates more, whatever the client asks for. The cap keeps sums over many requests from
// overflowing.
constexpr uint64_t kOutputTokensMax = 1 << 24;
// Workers refuse more choices. A body has at most as many prompts as bytes.
constexpr uint64_t kChoicesMax = 1 << 12;
static_assert(kOutputTokensMax * kChoicesMax <=
              std::numeric_limits<uint64_t>::max() / limits::kHttpBodyBytesMax / 2);

constexpr std::array<std::string_view, 4> kOneWherePresent = {"max_completion_tokens", "min_tokens",
                                                              "n", "best_of"};
constexpr std::array<std::string_view, 26> kNames = {"model",
                                                     "max_tokens",
                                                     "max_completion_tokens",
                                                     "min_tokens",
                                                     "n",
                                                     "best_of",
                                                     "stream",
                                                     "stream_options",
                                                     "prompt",
                                                     "messages",
                                                     "user",
                                                     "kv_transfer_params",
                                                     "bootstrap_host",
                                                     "bootstrap_port",
                                                     "bootstrap_room",
                                                     "pdjob_resume",
                                                     "tools",
                                                     "documents",
                                                     "chat_template",
                                                     "chat_template_kwargs",
                                                     "reasoning_effort",
                                                     "add_generation_prompt",
                                                     "continue_final_message",
                                                     "add_special_tokens",
                                                     "mm_processor_kwargs",
                                                     "cache_salt"};
constexpr size_t kShapingNames = 10;  // The last ones of kNames.
constexpr openai::JsonNames kScanned{kNames};

constexpr std::array<std::string_view, 16> kSglangNames = {"model",          "sampling_params",
                                                           "stream",         "input_ids",
                                                           "text",           "rid",
                                                           "return_logprob", "routing_key",
                                                           "session_id",     "kv_transfer_params",
                                                           "bootstrap_host", "bootstrap_port",
                                                           "bootstrap_room", "pdjob_resume",
                                                           "cache_salt",     "extra_key"};
constexpr size_t kSglangShapingNames = 2;
constexpr openai::JsonNames kSglangScanned{kSglangNames};
constexpr uint64_t kSglangOutputTokens = 128;  // SGLang's own, without max_new_tokens.

// Edits all four members, even empty ones: a client must not name a source of KV.
std::array<openai::JsonEdit, 4> kv_edits(const KvWords& kv) {
  return {{{"kv_transfer_params", kv.kv_transfer_params},
           {"bootstrap_host", kv.bootstrap_host},
           {"bootstrap_port", kv.bootstrap_port},
           {"bootstrap_room", kv.bootstrap_room}}};
}

// An integer from 0 to `max`; larger ones become `max`, so that products do not overflow. Empty:
// the member is missing or null.
using Limit = std::variant<std::optional<uint64_t>, openai::ApiError>;
Limit limit_of(const openai::JsonObject& object, const char* name, uint64_t max) {
  const std::string_view value = object.value(name);
  if (value.empty() || value == "null") {
    return std::optional<uint64_t>();
  }
  const auto number = openai::json_integer(value);
  // A number too large for an integer is above `max`, too.
  const bool too_many = value.find_first_not_of("0123456789") == std::string_view::npos;
  if ((!number && !too_many) || (number && *number < 0)) {
    return openai::invalid_request(std::string(name) + ": must be an integer that is not negative",
                                   name);
  }
  return std::optional(number ? std::min(static_cast<uint64_t>(*number), max) : max);
}

// The number of prompts and of their token ids. Value.
struct PromptCounts {
  uint64_t prompts = 1;
  uint64_t token_ids = 0;
};

// Skips texts. In one token list, or a list of them, each comma separates two ids.
PromptCounts count_prompts(std::string_view prompt) {
  constexpr std::string_view kSpaces = " \t\r\n";
  PromptCounts counts;
  const size_t first =
      prompt.starts_with('[') ? prompt.find_first_not_of(kSpaces, 1) : std::string_view::npos;
  if (first == std::string_view::npos || prompt[first] == ']') {
    return counts;
  }
  if (prompt.find('"') == std::string_view::npos) {
    const auto inner = static_cast<uint64_t>(std::ranges::count(prompt, '[')) - 1;
    counts.prompts = std::max<uint64_t>(1, inner);
    counts.token_ids = static_cast<uint64_t>(std::ranges::count(prompt, ',')) + 1;
    return counts;
  }
  size_t depth = 0;
  for (size_t at = 0; at < prompt.size(); ++at) {
    const char c = prompt[at];
    if (c == '"') {
      at = openai::end_of_json_string(prompt, at) - 1;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',' && depth == 1) {
      ++counts.prompts;
    }
  }
  return counts;
}

}  // namespace

std::variant<RequestBody, openai::ApiError> RequestBody::scan(std::string text, BodyForm form) {
  RequestBody body;
  body.text_ = std::make_unique<const std::string>(std::move(text));
  body.form_ = form;
  const bool sglang = form == BodyForm::kSglang;
  auto object = openai::JsonObject::scan(*body.text_, sglang ? kSglangScanned : kScanned);
  if (!object) {
    return openai::to_api_error(object.error());
  }
  body.model_ = openai::json_string(object->value("model")).value_or("");
  if (const auto error = sglang ? body.read_sglang_limits(*object) : body.read_limits(*object)) {
    return *error;
  }
  body.object_ = std::move(*object);
  // A list of messages is one prompt.
  const PromptCounts counts = count_prompts(sglang ? body.prompt() : body.object_->value("prompt"));
  body.prompts_ = counts.prompts;
  body.prompt_tokens_ = std::max<uint64_t>(body.text_->size() / 4, counts.token_ids);
  return body;
}

std::optional<openai::ApiError> RequestBody::read_limits(const openai::JsonObject& object) {
  uint64_t output_tokens = 0;
  for (const auto& [name, max, largest] :
       {std::tuple{"max_completion_tokens", kOutputTokensMax, &output_tokens},
        {"max_tokens", kOutputTokensMax, &output_tokens},
        {"n", kChoicesMax, &choices_},
        {"best_of", kChoicesMax, &choices_}}) {
    const Limit limit = limit_of(object, name, max);
    if (const auto* error = std::get_if<openai::ApiError>(&limit)) {
      return *error;
    }
    // Engines differ in which of two names they use.
    *largest = std::max(*largest, std::get<std::optional<uint64_t>>(limit).value_or(0));
  }
  output_tokens_ = output_tokens > 0 ? output_tokens : kOutputTokensAssumed;
  return std::nullopt;
}

// Wrong values are the worker's to refuse, but a limit must be an integer here, too.
std::optional<openai::ApiError> RequestBody::read_sglang_limits(const openai::JsonObject& object) {
  static constexpr std::array<std::string_view, 2> kLimits = {"max_new_tokens", "n"};
  static constexpr openai::JsonNames kNamesOfLimits{kLimits};
  output_tokens_ = kSglangOutputTokens;
  const std::string_view value = object.value("sampling_params");
  if (!value.starts_with('{')) {
    return std::nullopt;
  }
  const std::string text(value);
  const auto params = openai::JsonObject::scan(text, kNamesOfLimits);
  if (!params) {
    return openai::to_api_error(params.error());
  }
  for (const auto& [name, max, out] :
       {std::tuple{"max_new_tokens", kOutputTokensMax, &output_tokens_},
        {"n", kChoicesMax, &choices_}}) {
    const Limit limit = limit_of(*params, name, max);
    if (const auto* error = std::get_if<openai::ApiError>(&limit)) {
      return *error;
    }
    *out = std::max<uint64_t>(1, std::get<std::optional<uint64_t>>(limit).value_or(*out));
  }
  return std::nullopt;
}

BodyForm form_of(std::string_view path) {
  return path == "/generate" ? BodyForm::kSglang : BodyForm::kOpenai;
}

std::string_view RequestBody::prompt() const {
  const bool sglang = form_ == BodyForm::kSglang;
  const std::string_view prompt = object_->value(sglang ? "input_ids" : "prompt");
  return prompt.empty() ? object_->value(sglang ? "text" : "messages") : prompt;
}

std::string_view RequestBody::user() const {
  if (form_ == BodyForm::kOpenai) {
    return object_->value("user");
  }
  const std::string_view key = object_->value("routing_key");
  return key.empty() ? object_->value("session_id") : key;
}

bool RequestBody::resumable() const {
  return form_ != BodyForm::kSglang || object_->value("return_logprob") != "true";
}

std::string RequestBody::shape() const {
  std::string shape;
  const auto names = form_ == BodyForm::kSglang
                         ? std::span<const std::string_view>(kSglangNames).last(kSglangShapingNames)
                         : std::span<const std::string_view>(kNames).last(kShapingNames);
  for (const std::string_view name : names) {
    if (const std::string_view value = object_->value(name); !value.empty()) {
      shape.append(name).append(value).append(1, '\n');
    }
  }
  return shape;
}

// Non-text parts of messages change the KV without changing the tokens.
bool RequestBody::tokenizable() const {
  if (form_ != BodyForm::kOpenai) {
    return false;  // Engines tokenize OpenAI's form only.
  }
  const std::string_view prompt = object_->value("prompt");
  const std::string_view messages = object_->value("messages");
  const bool is_text = prompt.empty() ? !messages.empty() : prompt.starts_with('"');
  return is_text && object_->value("cache_salt").empty() &&
         messages.find("_url\"") == std::string_view::npos &&
         messages.find("\"input_audio\"") == std::string_view::npos;
}

std::string RequestBody::prefill_leg(const KvWords& kv) const {
  std::vector<openai::JsonEdit> edits;
  edits.reserve(kNames.size() - kShapingNames);
  if (form_ == BodyForm::kOpenai) {
    edits.push_back({"max_tokens", "1"});
    edits.push_back({"stream_options", ""});
    for (const std::string_view name : kOneWherePresent) {
      if (!object_->value(name).empty()) {
        edits.push_back({name, "1"});
      }
    }
  }
  if (!object_->value("stream").empty()) {
    edits.push_back({"stream", "false"});
  }
  std::ranges::copy(kv_edits(kv), std::back_inserter(edits));
  return object_->edited(edits);
}

std::string RequestBody::decode_leg(const KvWords& kv, std::string_view resume) const {
  const auto [params, host, port, room] = kv_edits(kv);
  const openai::JsonEdit edits[] = {{"pdjob_resume", resume}, params, host, port, room};
  return object_->edited(edits);
}

}  // namespace pdjob::router
