#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include <simdjson.h>

#include "common/limits.h"
#include "openai/json/call_arguments.h"
#include "openai/openai_prompt.h"

namespace pdjob::openai {
namespace {

namespace dom = simdjson::dom;

// The text of a content, and the thoughts in it. Value.
struct Content {
  std::string text;
  size_t texts = 0;  // Parts of `text`.
  std::string reasoning;

  // As vLLM does for templates that support only text.
  void add(std::string_view part) { text.append(texts++ > 0 ? "\n" : "").append(part); }
};

// The member that has the text of a part. Empty: the part has no text that a prompt may have.
std::string_view text_member(std::string_view type) {
  if (type == "text" || type == "input_text" || type == "output_text") {
    return "text";
  }
  return type == "refusal" ? "refusal" : "";
}

// A part "thinking" or "reasoning" has its thoughts in the member of that name, or in "text".
// Mistral writes them as a list of text parts, others as a string.
void read_thoughts(const Fields& part, std::string& out) {
  const auto value = part.find("thinking");
  if (!value || !value->is_array()) {
    for (const char* name : {"thinking", "reasoning", "text"}) {
      std::string text;
      part.text(name, text);
      out += text;
    }
    return;
  }
  read_objects(part, "thinking", limits::kMessagesMax, [&out](const Fields& thought) {
    std::string text;
    thought.text("text", text);
    out += text;
  });
}

void read_part(const Fields& message, const std::string& param, dom::element part,
               const std::string& role, Content& out) {
  Reading& reading = message.reading();
  dom::object object;
  std::string text;
  if (part.is_string()) {
    read_text(reading, param, part, text);
    return out.add(text);
  }
  if (part.get(object) != simdjson::SUCCESS) {
    return must_be(reading, param, "an object", part);
  }
  const Fields fields(object, param + ".", reading);
  std::string type;
  fields.text("type", type);
  if (role == "assistant" && (type == "thinking" || type == "reasoning")) {
    return read_thoughts(fields, out.reasoning);
  }
  if (role == "assistant" && type == "redacted_thinking") {
    return;  // Only the server that wrote it can read it.
  }
  const std::string_view name = text_member(type);
  if (name.empty()) {
    return refuse(reading, param, "must be of type \"text\", got " + excerpt(type));
  }
  if (!fields.find(name)) {
    return fields.wrong(name, "is missing");
  }
  fields.text(name, text);
  out.add(text);
}

Content content_of(const Fields& message, const char* name, const std::string& role) {
  Content out;
  const auto content = message.find(name);
  if (!content) {
    if (role == "user" || role == "system" || role == "developer") {
      message.wrong(name, "must be a string or a list of text parts");
    }
    return out;
  }
  dom::array parts;
  if (content->get(parts) != simdjson::SUCCESS) {
    if (!content->is_string()) {
      must_be(message.reading(), message.param(name), "a string or a list of text parts", *content);
    }
    std::string text;
    read_text(message.reading(), message.param(name), *content, text);
    out.add(text);
    return out;
  }
  size_t index = 0;
  for (const dom::element part : parts) {
    read_part(message, element_name(message.param(name), index++), part, role, out);
    if (!message.reading().outcome) {
      break;
    }
  }
  return out;
}

}  // namespace

void read_content(const Fields& fields, const char* name, ApiMessage& message) {
  Content content = content_of(fields, name, message.role);
  message.content = std::move(content.text);
  message.reasoning = std::move(content.reasoning);
}

void read_id(const Fields& fields, const char* name, std::string& out) {
  fields.text(name, out);
  if (out.size() > limits::kToolCallIdBytesMax) {
    fields.wrong(name, "must have at most " + std::to_string(limits::kToolCallIdBytesMax) +
                           " bytes, got " + std::to_string(out.size()));
  }
}

void read_call(const Fields& function, ApiToolCall& call) {
  read_tool_name(function, call.name);
  const auto value = function.find("arguments");
  if (value && value->is_object()) {
    call.arguments = simdjson::minify(*value);
  } else {
    function.text("arguments", call.arguments);
  }
  call.arguments = readable_arguments(std::move(call.arguments));
}

void complete_results(std::vector<ApiMessage>& messages) {
  std::vector<ApiToolCall> calls;
  for (ApiMessage& message : messages) {
    if (!message.tool_calls.empty()) {
      calls = message.tool_calls;
    }
    if (message.role == "function") {
      message.role = "tool";
      message.tool_call_id = calls.empty() ? "" : calls.back().id;
    }
    const auto call = std::ranges::find(calls, message.tool_call_id, &ApiToolCall::id);
    if (message.role == "tool" && message.tool_name.empty() && call != calls.end()) {
      message.tool_name = call->name;
    }
  }
}

namespace {

bool asks(const Fields& fields, const char* name) {
  const auto value = fields.find(name);
  return value && asks_for_something(*value);
}

// A call in OpenAI's old form has no id. Some templates need one of exactly nine letters and
// digits.
std::string made_id(size_t message) {
  char id[32];
  std::snprintf(id, sizeof id, "call%05zu", message);
  return id;
}

// What an assistant has beside its content.
void read_assistant(const Fields& message, size_t index, ApiMessage& out) {
  for (const char* name : {"reasoning_content", "reasoning"}) {
    std::string text;
    message.text(name, text);
    out.reasoning += text;
  }
  std::string refusal;
  message.text("refusal", refusal);
  out.content.append(out.content.empty() || refusal.empty() ? "" : "\n").append(refusal);
  if (asks(message, "tool_calls")) {
    read_objects(message, "tool_calls", limits::kToolsMax, [&out](const Fields& fields) {
      ApiToolCall& call = out.tool_calls.emplace_back();
      read_id(fields, "id", call.id);
      if (const auto function = inner_function(fields)) {
        read_call(*function, call);
      }
    });
  }
  const auto call = asks(message, "function_call") ? message.object("function_call") : std::nullopt;
  if (call && out.tool_calls.empty()) {
    ApiToolCall& made = out.tool_calls.emplace_back();
    made.id = made_id(index);
    read_call(*call, made);
  } else if (call) {
    message.wrong("function_call", "must not be given beside tool_calls");
  }
}

void read_message(const Fields& message, size_t index, ApiMessage& out) {
  message.text("role", out.role);
  static constexpr std::string_view kRoles[] = {"system",    "developer", "user",
                                                "assistant", "tool",      "function"};
  if (std::find(std::begin(kRoles), std::end(kRoles), out.role) == std::end(kRoles)) {
    return message.wrong("role",
                         "must be one of system, developer, user, assistant, tool, function, got " +
                             excerpt(out.role));
  }
  message.unsupported("audio");
  read_content(message, "content", out);
  if (out.role == "assistant") {
    return read_assistant(message, index, out);
  }
  if (out.role == "tool") {
    read_id(message, "tool_call_id", out.tool_call_id);
  }
  if (out.role == "tool" || out.role == "function") {
    read_id(message, "name", out.tool_name);
  }
  for (const char* name : {"tool_calls", "function_call"}) {
    if (asks(message, name) && out.role != "tool") {
      message.wrong(name, "must only be given in messages of an assistant");
    }
  }
}

}  // namespace

void read_messages(const Fields& fields, ApiRequest& request) {
  const auto messages = fields.list("messages", limits::kMessagesMax);
  if (!messages || messages->size() == 0) {
    return fields.wrong("messages", "must be a list of at least one message");
  }
  request.messages.reserve(messages->size());
  read_objects(fields, "messages", limits::kMessagesMax, [&request](const Fields& message) {
    const size_t index = request.messages.size();
    read_message(message, index, request.messages.emplace_back());
  });
  complete_results(request.messages);
}

namespace {

// Names given in chat_template_kwargs count.
void give(ApiTemplate& out, std::string_view variable, std::string json) {
  if (std::ranges::find(out.values, variable, &std::pair<std::string, std::string>::first) ==
      out.values.end()) {
    out.values.emplace_back(variable, std::move(json));
  }
}

void give_thinking(ApiTemplate& out, bool thinks) {
  give(out, "enable_thinking", thinks ? "true" : "false");
}

// What Qwen's and DeepSeek's own servers call `enable_thinking` of chat_template_kwargs.
void read_thinking(const Fields& fields, ApiTemplate& out) {
  bool thinks = true;
  fields.boolean("enable_thinking", thinks);
  if (fields.find("enable_thinking")) {
    give_thinking(out, thinks);
  }
  const auto thinking = fields.object("thinking");
  std::string type;
  if (thinking) {
    thinking->text("type", type);
    thinking->unsupported("budget_tokens");
  }
  if (type == "enabled" || type == "disabled") {
    give_thinking(out, type == "enabled");
  } else if (!type.empty()) {
    thinking->wrong("type", "must be one of enabled, disabled, got " + excerpt(type));
  }
}

void read_template_values(const Fields& fields, ApiTemplate& out) {
  // The request itself decides these.
  static constexpr std::string_view kOwn[] = {"messages",  "tools",     "add_generation_prompt",
                                              "bos_token", "eos_token", "chat_template",
                                              "tokenize",  "documents"};
  const auto values = fields.object("chat_template_kwargs");
  if (!values) {
    return;
  }
  for (const auto& [name, value] : values->members()) {
    if (std::find(std::begin(kOwn), std::end(kOwn), name) != std::end(kOwn)) {
      return values->wrong(name, "must not be given here");
    }
    out.values.emplace_back(name, simdjson::minify(value));
  }
}

}  // namespace

void read_template(const Fields& fields, ApiRequest& request) {
  ApiTemplate& out = request.chat_template;
  fields.boolean("continue_final_message", out.continues_last);
  bool opens = !out.continues_last;
  fields.boolean("add_generation_prompt", opens);
  if (opens && out.continues_last) {
    fields.wrong("continue_final_message", "must not be true together with add_generation_prompt");
  }
  out.opens_turn = opens;
  if (out.continues_last && !request.messages.empty() &&
      !request.messages.back().tool_calls.empty()) {
    fields.wrong("continue_final_message", "needs a last message of text, without calls");
  }
  read_template_values(fields, out);
  read_thinking(fields, out);
  read_effort(fields, "reasoning_effort", out);
}

// As vLLM does. A template without these variables ignores them.
void read_effort(const Fields& fields, const char* name, ApiTemplate& out) {
  static constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium",
                                                  "high", "xhigh",   "max"};
  std::string effort;
  fields.text(name, effort);
  if (effort.empty()) {
    return;
  }
  if (std::ranges::find(kEfforts, effort) == std::end(kEfforts)) {
    return fields.wrong(name, "must be one of none, minimal, low, medium, high, xhigh, max, got " +
                                  excerpt(effort));
  }
  give_thinking(out, effort != "none");
  give(out, "reasoning_effort", "\"" + effort + "\"");
}

}  // namespace pdjob::openai
