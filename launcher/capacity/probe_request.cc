#include "launcher/capacity/probe_request.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "common/config/config_text.h"
#include "common/json/json_writer.h"
#include "openai/json/json_edit.h"
#include "openai/json/json_number.h"

namespace pdjob::launcher {
namespace {

using openai::JsonObject;

// Short common words: one token each for most tokenizers.
constexpr auto kWords = std::to_array<std::string_view>(
    {"the",   "of",   "and",   "to",   "in",    "is",   "that",  "for",  "was",   "on",   "are",
     "with",  "as",   "be",    "at",   "one",   "have", "this",  "from", "by",    "hot",  "but",
     "some",  "what", "there", "we",   "can",   "out",  "other", "were", "all",   "your", "when",
     "up",    "use",  "word",  "how",  "said",  "an",   "each",  "she",  "which", "do",   "their",
     "time",  "if",   "will",  "way",  "about", "many", "then",  "them", "would", "like", "so",
     "these", "her",  "long",  "make", "thing", "see",  "him",   "two",  "has"});

// A scanned object holds views of its names.
constexpr auto kUsageNames =
    std::to_array<std::string_view>({"prompt_tokens", "completion_tokens"});
constexpr auto kMessageNames = std::to_array<std::string_view>({"message"});
constexpr auto kParamsNames = std::to_array<std::string_view>({"kv_transfer_params"});
constexpr auto kEventNames = std::to_array<std::string_view>({"choices", "usage", "error"});
constexpr auto kChoiceNames = std::to_array<std::string_view>({"text", "finish_reason"});
constexpr auto kReplyNames = std::to_array<std::string_view>({"usage"});
constexpr auto kRefusalNames = std::to_array<std::string_view>({"error", "message", "detail"});

constexpr size_t kEventBytesMax = size_t{1} << 20;
constexpr double kTokensPerWordMax = 64;

size_t words_of(const std::string& prompt) {
  return static_cast<size_t>(std::ranges::count(prompt, ' ')) + 1;
}

std::optional<uint32_t> count_of(const JsonObject& object, std::string_view name) {
  const auto number = openai::json_integer(object.value(name));
  return number && *number >= 0 && *number <= UINT32_MAX
             ? std::optional(static_cast<uint32_t>(*number))
             : std::nullopt;
}

std::optional<ProbeUsage> usage_of(std::string_view value) {
  const std::string text(value);
  const auto usage = JsonObject::scan(text, kUsageNames);
  if (!usage) {
    return std::nullopt;
  }
  const auto prompt = count_of(*usage, "prompt_tokens");
  return prompt ? std::optional(ProbeUsage{
                      .prompt_tokens = *prompt,
                      .completion_tokens = count_of(*usage, "completion_tokens").value_or(0)})
                : std::nullopt;
}

// The `message` of an error object, or all of it.
std::string message_of(std::string_view error) {
  const std::string text(error);
  const auto object = JsonObject::scan(text, kMessageNames);
  return object ? openai::json_string(object->value("message")).value_or(text)
                : openai::json_string(error).value_or(text);
}

}  // namespace

std::string ProbePrompts::prompt(uint32_t tokens) {
  const auto words = static_cast<size_t>(std::max(1.0, std::round(tokens / tokens_per_word_)));
  std::string text;
  for (size_t i = 0; i < words; ++i) {
    text += (i == 0 ? "" : " ");
    text += kWords[random_.below(kWords.size())];
  }
  return text;
}

void ProbePrompts::learn(const std::string& prompt, uint32_t tokens) {
  tokens_per_word_ = std::clamp(static_cast<double>(tokens) / static_cast<double>(words_of(prompt)),
                                0.1, kTokensPerWordMax);
}

std::string body_of(const ProbeRequest& request) {
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("model").string(request.model).key("prompt").string(request.prompt);
  json.key("max_tokens").integer(request.output_tokens);
  json.key("temperature").integer(0).key("ignore_eos").boolean(true);
  json.key("stream").boolean(request.stream);
  if (request.stream) {
    json.key("stream_options").begin_object().key("include_usage").boolean(true).end_object();
  }
  if (!request.kv_transfer_params.empty()) {
    json.key("kv_transfer_params").raw(request.kv_transfer_params);
  }
  json.end_object();
  return body;
}

Result<std::string> transfer_params_of(const std::string& reply) {
  const auto object = JsonObject::scan(reply, kParamsNames);
  if (!object || !object->value("kv_transfer_params").starts_with('{')) {
    return Error{ErrorCode::kUnsupported, "its reply has no kv_transfer_params"};
  }
  return std::string(object->value("kv_transfer_params"));
}

ProbeEvents::Seen ProbeEvents::add(std::string_view bytes) {
  Seen seen;
  rest_.append(bytes);
  size_t begin = 0;
  for (size_t end = 0; (end = rest_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    take(std::string_view(rest_).substr(begin, end - begin), seen);
  }
  rest_.erase(0, begin);
  if (rest_.size() > kEventBytesMax) {
    seen.error = "an event of its stream is too long";
  }
  return seen;
}

void ProbeEvents::take(std::string_view line, Seen& seen) {
  constexpr std::string_view kData = "data:";
  if (!line.starts_with(kData)) {
    return;
  }
  line.remove_prefix(kData.size());
  while (line.starts_with(' ')) {
    line.remove_prefix(1);
  }
  while (line.ends_with('\r') || line.ends_with(' ')) {
    line.remove_suffix(1);
  }
  if (line == "[DONE]") {
    done_ = true;
    return;
  }
  const std::string text(line);
  const auto event = JsonObject::scan(text, kEventNames);
  if (!event) {
    return;
  }
  if (const std::string_view error = event->value("error"); !error.empty() && error != "null") {
    seen.error = seen.error.empty() ? message_of(error) : seen.error;
  }
  if (const auto usage = usage_of(event->value("usage"))) {
    usage_ = usage;
  }
  for (const std::string& choice : openai::json_array_items(event->value("choices"))) {
    const auto output = JsonObject::scan(choice, kChoiceNames);
    const bool ends = output && !output->value("finish_reason").empty() &&
                      output->value("finish_reason") != "null";
    if (output && (!ends || output->value("text").size() > 2)) {
      ++seen.tokens;
    }
  }
}

std::optional<ProbeUsage> usage_of_reply(const std::string& reply) {
  const auto object = JsonObject::scan(reply, kReplyNames);
  return object ? usage_of(object->value("usage")) : std::nullopt;
}

std::string refusal_text(int status, const std::string& body) {
  constexpr size_t kShownMax = 300;
  const auto object = JsonObject::scan(body, kRefusalNames);
  std::string text = body.substr(0, body.find('\n'));
  if (object) {
    const std::string_view error = object->value("error");
    const std::string_view message =
        object->value(!object->value("message").empty() ? "message" : "detail");
    text = !error.empty()     ? message_of(error)
           : !message.empty() ? openai::json_string(message).value_or(std::string(message))
                              : text;
  }
  return std::to_string(status) + (text.empty() ? "" : ": ") + printable(text, kShownMax);
}

}  // namespace pdjob::launcher
