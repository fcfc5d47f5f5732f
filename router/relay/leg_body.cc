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
#include "net/http/http_parser.h"
#include "net/http/http_server.h"
#include "net/http/multipart_parser.h"
#include "openai/json/json_number.h"
#include "router/streams/engine_request.h"

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

constexpr std::array<std::string_view, 5> kOneWherePresent = {"max_completion_tokens", "n_predict",
                                                              "min_tokens", "n", "best_of"};
// The router writes these itself, whatever the form.
constexpr std::array<std::string_view, 7> kRouterNames = {
    "kv_transfer_params", "bootstrap_host",       "bootstrap_port",    "bootstrap_room",
    "pdjob_resume",       "pdjob_resume_weights", "pdjob_resume_model"};
// Members that shape the prompt, in each form.
constexpr std::array<std::string_view, 11> kShaping = {"tools",
                                                       "documents",
                                                       "chat_template",
                                                       "chat_template_kwargs",
                                                       "reasoning_effort",
                                                       "add_generation_prompt",
                                                       "continue_final_message",
                                                       "add_special_tokens",
                                                       "mm_processor_kwargs",
                                                       "cache_salt",
                                                       "extra_key"};
constexpr std::array<std::string_view, 2> kSaltNames = {"cache_salt", "extra_key"};
constexpr std::array<std::string_view, 6> kResponsesShaping = {
    "instructions", "tools", "reasoning", "chat_template_kwargs", "cache_salt", "extra_key"};

// Written for an engine that schedules by it, if the request is in the background. Otherwise it is
// between the client and the engine.
constexpr std::string_view kPriority = "priority";

// These names, those that shape the prompt, kRouterNames and kPriority.
template <size_t N, size_t M>
constexpr std::array<std::string_view, N + M + kRouterNames.size() + 1> scanned_names(
    const std::string_view (&names)[N], const std::array<std::string_view, M>& shaping) {
  std::array<std::string_view, N + M + kRouterNames.size() + 1> all;
  const auto rest = std::ranges::copy(shaping, std::ranges::copy(names, all.begin()).out).out;
  std::ranges::copy(kRouterNames, rest);
  all.back() = kPriority;
  return all;
}

constexpr auto kNames =
    scanned_names({"model", "max_tokens", "max_completion_tokens", "n_predict", "min_tokens", "n",
                   "best_of", "stream", "stream_options", "prompt", "messages", "user", "echo",
                   "logprobs", "return_token_ids", "service_tier"},
                  kShaping);
constexpr openai::JsonNames kScanned{kNames};

constexpr auto kSglangNames =
    scanned_names({"model", "sampling_params", "stream", "input_ids", "text", "rid",
                   "return_logprob", "logprob_start_len", "routing_key", "session_id"},
                  kSaltNames);
constexpr openai::JsonNames kSglangScanned{kSglangNames};

constexpr auto kTokensNames = scanned_names(
    {"model", "sampling_params", "stream", "stream_options", "token_ids", "request_id"},
    kSaltNames);
constexpr openai::JsonNames kTokensScanned{kTokensNames};

constexpr auto kEmbeddingNames = scanned_names(
    {"model", "input", "user", "dimensions", "service_tier"}, std::array<std::string_view, 0>{});
constexpr openai::JsonNames kEmbeddingScanned{kEmbeddingNames};

constexpr auto kResponsesNames =
    scanned_names({"model", "max_output_tokens", "stream", "stream_options", "background", "store",
                   "input", "user", "service_tier"},
                  kResponsesShaping);
constexpr openai::JsonNames kResponsesScanned{kResponsesNames};

constexpr auto kPassedNames =
    scanned_names({"model", "max_tokens", "stream"}, std::array<std::string_view, 0>{});
constexpr openai::JsonNames kPassedScanned{kPassedNames};

// The names of members in one form of body. Value.
struct FormNames {
  const openai::JsonNames& scanned;
  std::span<const std::string_view> shaping;
  std::string_view prompt;
  std::string_view text;                        // In place of the prompt; empty: there is nothing.
  std::string_view rid;                         // Empty: there is none.
  std::array<std::string_view, 2> params = {};  // In sampling_params: limits of tokens, choices.
  uint64_t output_tokens = kOutputTokensAssumed;
};
constexpr FormNames kForms[] = {
    {.scanned = kScanned, .shaping = kShaping, .prompt = "prompt", .text = "messages", .rid = {}},
    {.scanned = kSglangScanned,
     .shaping = kSaltNames,
     .prompt = "input_ids",
     .text = "text",
     .rid = "rid",
     .params = {"max_new_tokens", "n"},
     .output_tokens = 128},  // SGLang's own.
    {.scanned = kTokensScanned,
     .shaping = kSaltNames,
     .prompt = "token_ids",
     .text = {},
     .rid = "request_id",
     .params = {"max_tokens", "n"}},
    {.scanned = kEmbeddingScanned,
     .shaping = {},
     .prompt = "input",
     .text = {},
     .rid = {},
     .output_tokens = 0},
    {.scanned = kResponsesScanned,
     .shaping = kResponsesShaping,
     .prompt = "input",
     .text = {},
     .rid = {}},
    {.scanned = kPassedScanned, .shaping = {}, .prompt = {}, .text = {}, .rid = {}}};
const FormNames& names_of(BodyForm form) { return kForms[static_cast<size_t>(form)]; }

// Edits all four members, even empty ones: a client must not name a source of KV.
std::array<openai::JsonEdit, 4> kv_edits(const KvWords& kv) {
  return {{{"kv_transfer_params", kv.kv_transfer_params},
           {"bootstrap_host", kv.bootstrap_host},
           {"bootstrap_port", kv.bootstrap_port},
           {"bootstrap_room", kv.bootstrap_room}}};
}

// An integer from 0 to `max`; larger ones become `max`, so that products do not overflow. Empty:
// the member is missing or null, or a limit of tokens is -1, which is none.
Result<std::optional<uint64_t>, openai::ApiError> limit_of(const openai::JsonObject& object,
                                                           std::string_view name, uint64_t max) {
  const std::string_view value = object.value(name);
  if (value.empty() || value == "null") {
    return std::optional<uint64_t>();
  }
  const auto number = openai::json_integer(value);
  if (number == -1 && max == kOutputTokensMax) {
    return std::optional<uint64_t>();
  }
  // A number too large for an integer is above `max`, too.
  const bool too_many = value.find_first_not_of("0123456789") == std::string_view::npos;
  if ((!number && !too_many) || (number && *number < 0)) {
    return openai::invalid_request(std::string(name) + ": must be an integer that is not negative",
                                   std::string(name));
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

// sampling_params of a prefill leg, as vLLM names them.
std::string one_token(std::string_view sampling_params) {
  static constexpr std::array<std::string_view, 3> kOne = {"max_tokens", "min_tokens", "n"};
  std::string text(sampling_params.starts_with('{') ? sampling_params : "{}");
  const auto params = openai::JsonObject::scan(text, kOne);
  if (!params) {
    return text;
  }
  std::vector<openai::JsonEdit> edits = {{"max_tokens", "1"}};
  for (const std::string_view name : std::span(kOne).last(2)) {
    if (!params->value(name).empty()) {
      edits.push_back({name, "1"});
    }
  }
  return params->edited(edits);
}

// Of a Content-Type; clients leave it out for JSON.
enum class BodyType { kJson, kForm, kOther };
BodyType type_of(std::string_view content_type) {
  const std::string_view type = content_type.substr(0, content_type.find_first_of("; "));
  if (type.empty() || net::equal_ignoring_case(type, "application/json")) {
    return BodyType::kJson;
  }
  return net::equal_ignoring_case(type, "multipart/form-data") ? BodyType::kForm : BodyType::kOther;
}

}  // namespace

Result<RequestBody, openai::ApiError> RequestBody::scan(std::string text, BodyForm form) {
  RequestBody body;
  body.text_ = std::make_unique<const std::string>(std::move(text));
  body.form_ = form;
  auto object = openai::JsonObject::scan(*body.text_, names_of(form).scanned);
  if (!object) {
    return openai::to_api_error(object.error());
  }
  body.model_ = openai::json_string(object->value("model")).value_or("");
  PDJOB_TRY_STATUS(form == BodyForm::kOpenai ? body.read_limits(*object)
                                             : body.read_inner_limits(*object));
  body.object_ = std::move(*object);
  // A conversation is one prompt.
  const PromptCounts counts =
      form == BodyForm::kResponses
          ? PromptCounts{}
          : count_prompts(form == BodyForm::kOpenai ? body.object_->value("prompt")
                                                    : body.prompt());
  body.prompts_ = counts.prompts;
  body.prompt_tokens_ = std::max<uint64_t>(body.text_->size() / 4, counts.token_ids);
  return body;
}

Result<RequestBody, openai::ApiError> RequestBody::pass(std::string text,
                                                        std::string_view content_type) {
  static const std::string nothing = "{}";
  const BodyType type = type_of(content_type);
  RequestBody body;
  body.text_ = std::make_unique<const std::string>(std::move(text));
  body.form_ = BodyForm::kPassed;
  body.unread_ = type != BodyType::kJson;
  auto object = openai::JsonObject::scan(body.unread_ ? nothing : *body.text_, kPassedScanned);
  if (!object) {
    return openai::to_api_error(object.error());
  }
  if (type == BodyType::kForm) {
    const auto model = net::form_field(content_type, *body.text_, "model");
    if (!model) {
      return openai::to_api_error(model.error());
    }
    body.model_ = model->value_or("");
  } else {
    body.model_ = openai::json_string(object->value("model")).value_or("");
  }
  const int64_t limit = openai::json_integer(object->value("max_tokens")).value_or(-1);
  body.output_tokens_ =
      limit < 0 ? kOutputTokensAssumed : std::min(static_cast<uint64_t>(limit), kOutputTokensMax);
  // A file of a form has no tokens that could be counted here.
  body.prompt_tokens_ = body.unread_ ? 0 : body.text_->size() / 4;
  body.object_ = std::move(*object);
  return body;
}

Result<Done, openai::ApiError> RequestBody::read_limits(const openai::JsonObject& object) {
  std::optional<uint64_t> output_tokens;
  std::optional<uint64_t> choices;
  for (const auto& [name, max, largest] :
       {std::tuple{"max_completion_tokens", kOutputTokensMax, &output_tokens},
        {"max_tokens", kOutputTokensMax, &output_tokens},
        {"n_predict", kOutputTokensMax, &output_tokens},
        {"n", kChoicesMax, &choices},
        {"best_of", kChoicesMax, &choices}}) {
    PDJOB_TRY(const auto limit, limit_of(object, name, max));
    // Engines differ in which of these names they use. An empty limit is less than any.
    *largest = std::max(*largest, limit);
  }
  output_tokens_ = output_tokens.value_or(kOutputTokensAssumed);
  choices_ = std::max<uint64_t>(1, choices.value_or(1));
  return ok();
}

// Wrong values are the worker's to refuse, but a limit must be an integer here, too.
Result<Done, openai::ApiError> RequestBody::read_inner_limits(const openai::JsonObject& object) {
  const FormNames& names = names_of(form_);
  output_tokens_ = names.output_tokens;
  if (embeds()) {
    return ok();
  }
  if (form_ == BodyForm::kResponses) {
    PDJOB_TRY(const auto limit, limit_of(object, "max_output_tokens", kOutputTokensMax));
    output_tokens_ = limit.value_or(output_tokens_);
    return ok();
  }
  const std::string_view value = object.value("sampling_params");
  if (!value.starts_with('{')) {
    return ok();
  }
  const std::string text(value);
  const auto params = openai::JsonObject::scan(text, names.params);
  if (!params) {
    return openai::to_api_error(params.error());
  }
  for (const auto& [name, max, out] :
       {std::tuple{names.params[0], kOutputTokensMax, &output_tokens_},
        {names.params[1], kChoicesMax, &choices_}}) {
    PDJOB_TRY(const auto limit, limit_of(*params, name, max));
    *out = std::max<uint64_t>(1, limit.value_or(*out));
  }
  return ok();
}

RouterMembers router_members(BodyForm form) {
  const openai::JsonNames& names = names_of(form).scanned;
  RouterMembers members;
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == kPriority) {
      continue;
    }
    const bool written = std::ranges::find(kRouterNames, names[i]) != kRouterNames.end();
    (written ? members.written : members.read).push_back(names[i]);
  }
  return members;
}

BodyForm form_of(std::string_view path) {
  if (path == "/generate") {
    return BodyForm::kSglang;
  }
  if (path == "/v1/embeddings") {
    return BodyForm::kEmbedding;
  }
  if (path == "/v1/responses") {
    return BodyForm::kResponses;
  }
  return path == "/inference/v1/generate" ? BodyForm::kTokens : BodyForm::kOpenai;
}

openai::ApiKind kind_of(std::string_view path) {
  switch (form_of(path)) {
    case BodyForm::kSglang:
      return openai::ApiKind::kSglang;
    case BodyForm::kTokens:
      return openai::ApiKind::kTokens;
    case BodyForm::kEmbedding:
      return openai::ApiKind::kEmbedding;
    case BodyForm::kResponses:
      return openai::ApiKind::kResponses;
    case BodyForm::kOpenai:
    case BodyForm::kPassed:
      break;
  }
  return path == "/v1/chat/completions" ? openai::ApiKind::kChat : openai::ApiKind::kCompletion;
}

std::string_view RequestBody::prompt() const {
  const FormNames& names = names_of(form_);
  if (passes()) {
    return {};
  }
  const std::string_view prompt = object_->value(names.prompt);
  return prompt.empty() && !names.text.empty() ? object_->value(names.text) : prompt;
}

bool RequestBody::is_flex() const {
  const bool has_tiers =
      form_ == BodyForm::kOpenai || form_ == BodyForm::kEmbedding || form_ == BodyForm::kResponses;
  return has_tiers && object_->value("service_tier") == "\"flex\"";
}

std::string_view RequestBody::user() const {
  if (form_ == BodyForm::kOpenai || form_ == BodyForm::kResponses || embeds()) {
    return object_->value("user");
  }
  if (form_ == BodyForm::kTokens || passes()) {
    return {};
  }
  const std::string_view key = object_->value("routing_key");
  return key.empty() ? object_->value("session_id") : key;
}

std::vector<std::string> RequestBody::rids() const {
  const std::string_view name = names_of(form_).rid;
  const std::string_view value = name.empty() ? name : object_->value(name);
  constexpr size_t kBytesMax = 6 * limits::kRidBytesMax;  // With every character escaped.
  std::vector<std::string> rids;
  for (size_t at = value.find('"'); at < value.size() && rids.size() < limits::kPromptsMax;) {
    const size_t end = openai::end_of_json_string(value, at);
    if (end - at > kBytesMax) {
      return {};  // The worker refuses it.
    }
    rids.push_back(openai::json_string(value.substr(at, end - at)).value_or(""));
    at = value.find('"', end);
  }
  if (value.starts_with('"') && prompts_ > 1) {  // The worker numbers them.
    rids.resize(std::min<uint64_t>(prompts_, limits::kPromptsMax), rids.front());
    for (size_t i = 0; i < rids.size(); ++i) {
      rids[i] += "_" + std::to_string(i);
    }
  }
  return rids;
}

bool RequestBody::scores_prompt() const {
  if (form_ == BodyForm::kSglang) {
    const std::string_view start = object_->value("logprob_start_len");
    return object_->value("return_logprob") == "true" && !start.empty() && start != "null" &&
           start != "-1";
  }
  if (form_ != BodyForm::kOpenai) {
    return false;
  }
  const std::string_view logprobs = object_->value("logprobs");
  return !object_->value("prompt").empty() && object_->value("echo") == "true" &&
         !logprobs.empty() && logprobs != "null";
}

bool RequestBody::resumable() const {
  return !passes() && (form_ != BodyForm::kSglang || object_->value("return_logprob") != "true");
}

std::string RequestBody::shape() const {
  std::string shape;
  for (const std::string_view name : names_of(form_).shaping) {
    if (const std::string_view value = object_->value(name); !value.empty()) {
      shape.append(name).append(value).append(1, '\n');
    }
  }
  return shape;
}

bool RequestBody::tokenizable() const {
  if (form_ != BodyForm::kOpenai) {
    return false;  // Engines tokenize OpenAI's form only.
  }
  const std::string_view prompt = object_->value("prompt");
  const std::string_view messages = object_->value("messages");
  const bool is_text = prompt.empty() ? !messages.empty() : prompt.starts_with('"');
  return is_text && object_->value("cache_salt").empty() && object_->value("extra_key").empty() &&
         !has_more_than_text(messages);
}

std::string RequestBody::prefill_leg(const KvWords& kv, std::string_view priority) const {
  std::vector<openai::JsonEdit> edits;
  edits.reserve(kNames.size() - kShaping.size());
  if (form_ == BodyForm::kOpenai) {
    edits.push_back({"max_tokens", "1"});
    edits.push_back({"stream_options", ""});
    for (const std::string_view name : kOneWherePresent) {
      if (!object_->value(name).empty()) {
        edits.push_back({name, "1"});
      }
    }
  }
  if (form_ == BodyForm::kResponses) {
    edits.push_back({"max_output_tokens", "1"});
    edits.push_back({"stream_options", ""});
    edits.push_back({"background", ""});
    edits.push_back({"store", "false"});  // An engine may keep what it answers.
  }
  std::string params;
  if (form_ == BodyForm::kTokens) {
    params = one_token(object_->value("sampling_params"));
    edits.push_back({"sampling_params", params});
    edits.push_back({"stream_options", ""});
  }
  if (!object_->value("stream").empty()) {
    edits.push_back({"stream", "false"});
  }
  if (!priority.empty()) {
    edits.push_back({kPriority, priority});
  }
  std::ranges::copy(kv_edits(kv), std::back_inserter(edits));
  return object_->edited(edits);
}

std::string RequestBody::decode_leg(const KvWords& kv, const More& more) const {
  if (unread_) {
    return *text_;
  }
  const auto [params, host, port, room] = kv_edits(kv);
  std::vector<openai::JsonEdit> edits = {params, host, port, room};
  if (!more.keeps_resume) {
    edits.push_back({"pdjob_resume", more.resume});
    edits.push_back({"pdjob_resume_weights", more.weights});
    edits.push_back({"pdjob_resume_model", more.model});
  }
  if (more.token_ids) {
    edits.push_back({"return_token_ids", "true"});
  }
  if (!more.priority.empty()) {
    edits.push_back({kPriority, more.priority});
  }
  return object_->edited(edits);
}

}  // namespace pdjob::router
