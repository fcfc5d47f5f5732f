#include "engine/tool_prompt.h"

#include <string>
#include <string_view>

#include "common/json/json_writer.h"
#include "engine/grammar/tool_calls.h"

namespace pdjob::engine {
namespace {

constexpr std::string_view kIntroduction =
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>";
constexpr std::string_view kInstruction =
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
    "within <tool_call></tool_call> XML tags:\n<tool_call>\n"
    "{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>";

std::string described(std::span<const ChatTool> tools) {
  std::string text(kIntroduction);
  for (const ChatTool& tool : tools) {
    text += '\n';
    JsonWriter json(text);
    json.begin_object().key("type").string("function").key("function").begin_object();
    json.key("name").string(tool.name);
    json.key("description").string(tool.description);
    json.key("parameters").raw(tool.parameters);
    json.end_object().end_object();
  }
  return text.append(kInstruction);
}

std::string written(const ChatMessage& message) {
  std::string text = message.content;
  for (const ChatToolCall& call : message.tool_calls) {
    text += text.empty() ? "" : "\n";
    text.append(kCallOpen).append(kCallName).append(call.name).append(kCallArguments);
    text.append(call.arguments).append(kCallClose);
  }
  return text;
}

bool instructs(const ChatMessage& message) {
  return message.role == "system" || message.role == "developer";
}

}  // namespace

std::vector<ChatMessage> tools_as_text(std::span<const ChatMessage> messages,
                                       std::span<const ChatTool> tools) {
  std::vector<ChatMessage> out;
  if (!tools.empty()) {
    const bool has_system = !messages.empty() && instructs(messages.front());
    std::string text = has_system ? messages.front().content + "\n\n" : "";
    out.push_back({.role = has_system ? messages.front().role : "system",
                   .content = text.append(described(tools))});
    messages = messages.subspan(has_system ? 1 : 0);
  }
  bool after_result = false;
  for (const ChatMessage& message : messages) {
    const bool result = message.role == "tool";
    if (!result) {
      out.push_back(
          {.role = message.role, .content = written(message), .reasoning = message.reasoning});
    } else {
      const std::string text = "<tool_response>\n" + message.content + "\n</tool_response>";
      if (after_result) {
        out.back().content.append("\n").append(text);
      } else {
        out.push_back({.role = "user", .content = text});
      }
    }
    after_result = result;
  }
  return out;
}

}  // namespace pdjob::engine
