#include "router/leg_body.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "common/parse_number.h"

namespace pdjob::router {
namespace {

// For a request that names no limit; only load estimates see it.
constexpr uint64_t kOutputTokensAssumed = 256;
// No model writes more, whatever its client asks for: sums of many requests do not overflow.
constexpr uint64_t kOutputTokensMax = 1 << 24;

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
constexpr size_t kShapingNames = 10;  // The last of these.
constexpr net::JsonNames kScanned{kNames};

// All of them, also those that say nothing: a client must not name a source of KV.
std::array<net::JsonEdit, 4> kv_edits(const KvWords& kv) {
  return {{{"kv_transfer_params", kv.kv_transfer_params},
           {"bootstrap_host", kv.bootstrap_host},
           {"bootstrap_port", kv.bootstrap_port},
           {"bootstrap_room", kv.bootstrap_room}}};
}

// Nothing: it says nothing.
std::optional<uint64_t> limit_of(std::string_view value) {
  if (value.empty() || value == "null") {
    return std::nullopt;
  }
  const bool digits_only = value.find_first_not_of("0123456789") == std::string_view::npos;
  // What no number holds is too many, too.
  return std::min(parse_number<uint64_t>(value).value_or(digits_only ? kOutputTokensMax : 0),
                  kOutputTokensMax);
}

// Where the string or list that opens at text[0] ends: the position after it; npos if it does not.
size_t end_of_element(std::string_view text) {
  const char closing = text.front() == '[' ? ']' : '"';
  for (size_t at = 1; at < text.size(); ++at) {
    if (text[at] == '\\') {
      ++at;
    } else if (text[at] == closing) {
      return at + 1;
    }
  }
  return std::string_view::npos;
}

// A list of strings or of token lists that goes on after its first element. A list of one is one
// prompt.
bool is_list_of_prompts(std::string_view prompt) {
  constexpr std::string_view kSpaces = " \t\r\n";
  if (!prompt.starts_with('[')) {
    return false;
  }
  const size_t first = prompt.find_first_not_of(kSpaces, 1);
  if (first == std::string_view::npos || (prompt[first] != '"' && prompt[first] != '[')) {
    return false;
  }
  const std::string_view from_first = prompt.substr(first);
  const size_t after = from_first.find_first_not_of(kSpaces, end_of_element(from_first));
  return after != std::string_view::npos && from_first[after] == ',';
}

}  // namespace

std::variant<RequestBody, net::ApiError> RequestBody::scan(std::string text) {
  RequestBody body;
  body.text_ = std::make_unique<const std::string>(std::move(text));
  auto object = net::JsonObject::scan(*body.text_, kScanned);
  if (!object) {
    return net::to_api_error(object.error());
  }
  body.model_ = net::json_string(object->value("model")).value_or("");
  const auto limit = limit_of(object->value("max_completion_tokens"));
  body.output_tokens_ =
      limit ? *limit : limit_of(object->value("max_tokens")).value_or(kOutputTokensAssumed);
  body.several_prompts_ = is_list_of_prompts(object->value("prompt"));
  body.object_ = std::move(*object);
  return body;
}

std::string_view RequestBody::prompt() const {
  const std::string_view prompt = object_->value("prompt");
  return prompt.empty() ? object_->value("messages") : prompt;
}

std::string RequestBody::shape() const {
  std::string shape;
  for (const std::string_view name : std::span(kNames).last(kShapingNames)) {
    if (const std::string_view value = object_->value(name); !value.empty()) {
      shape.append(name).append(value).append(1, '\n');
    }
  }
  return shape;
}

// Parts of messages that are no text have KV that their tokens do not tell apart.
bool RequestBody::tokenizable() const {
  const std::string_view prompt = object_->value("prompt");
  const std::string_view messages = object_->value("messages");
  const bool is_text = prompt.empty() ? !messages.empty() : prompt.starts_with('"');
  return is_text && object_->value("cache_salt").empty() &&
         messages.find("_url\"") == std::string_view::npos &&
         messages.find("\"input_audio\"") == std::string_view::npos;
}

std::string RequestBody::prefill_leg(const KvWords& kv) const {
  std::vector<net::JsonEdit> edits;
  edits.reserve(kNames.size() - kShapingNames);
  edits.push_back({"max_tokens", "1"});
  edits.push_back({"stream_options", ""});
  for (const std::string_view name : kOneWherePresent) {
    if (!object_->value(name).empty()) {
      edits.push_back({name, "1"});
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
  const net::JsonEdit edits[] = {{"pdjob_resume", resume}, params, host, port, room};
  return object_->edited(edits);
}

}  // namespace pdjob::router
