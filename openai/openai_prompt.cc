#include "openai/openai_prompt.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <simdjson.h>

#include "common/limits.h"

namespace pdjob::openai {
namespace {

namespace dom = simdjson::dom;

constexpr const char* kNoParameters = R"({"type":"object","properties":{}})";

void read_tool_calls(const Fields& message, ApiMessage& out);

constexpr std::string_view kChatParts[] = {"text"};

void read_content_part(Problem& problem, const std::string& param, dom::element part,
                       std::span<const std::string_view> types, std::string& out) {
  dom::object object;
  if (part.get(object) != simdjson::SUCCESS) {
    return must_be(problem, param, "an object", part);
  }
  const Fields fields(object, param + ".", problem);
  std::string type;
  fields.text("type", type);
  if (std::ranges::find(types, type) == types.end()) {
    std::string known;
    for (const std::string_view each : types) {
      known.append(known.empty() ? "\"" : " or \"").append(each).append("\"");
    }
    return refuse(problem, param, "must be of type " + known + ", got " + excerpt(type));
  }
  const std::string member = type == "refusal" ? type : "text";
  if (const auto value = fields.find(member)) {
    return read_text(problem, fields.param(member), *value, out);
  }
  fields.wrong(member, "is missing");
}

void read_message(Problem& problem, const std::string& param, dom::element value, ApiMessage& out) {
  dom::object object;
  if (value.get(object) != simdjson::SUCCESS) {
    return must_be(problem, param, "an object", value);
  }
  const Fields message(object, param + ".", problem);
  message.text("role", out.role);
  static constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
  if (std::find(std::begin(kRoles), std::end(kRoles), out.role) == std::end(kRoles)) {
    return message.wrong("role", "must be one of system, developer, user, assistant, tool, got " +
                                     excerpt(out.role));
  }
  for (const char* name : {"function_call", "audio"}) {
    message.unsupported(name);
  }
  if (out.role != "assistant" || message.find("content")) {
    read_content(message, "content", kChatParts, out.content);
  }
  read_tool_calls(message, out);
}

// What OpenAI allows, so that a name needs no escape anywhere.
bool is_tool_name(std::string_view name) {
  return !name.empty() && name.size() <= limits::kToolNameBytesMax &&
         std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-';
         });
}

void read_tool_calls(const Fields& message, ApiMessage& out) {
  if (out.role == "tool") {
    return read_id(message, "tool_call_id", out.tool_call_id);
  }
  const auto calls = message.find("tool_calls");
  if (!calls || !asks_for_something(*calls)) {
    return;
  }
  if (out.role != "assistant") {
    return message.wrong("tool_calls", "must only be given in messages of an assistant");
  }
  read_objects(message, "tool_calls", limits::kToolsMax, [&out](const Fields& fields) {
    ApiToolCall& call = out.tool_calls.emplace_back();
    read_id(fields, "id", call.id);
    if (const auto function = inner_function(fields)) {
      read_tool_name(*function, call.name);
      function->text("arguments", call.arguments);
    }
  });
}

void read_parameters(const Fields& function, std::string& out) {
  const auto parameters = function.find("parameters");
  if (!parameters || (parameters->is_object() && !asks_for_something(*parameters))) {
    out = kNoParameters;
    return;
  }
  std::string_view type;
  if (!parameters->is_object() || (*parameters)["type"].get(type) != simdjson::SUCCESS ||
      type != "object") {
    return function.wrong("parameters", "must be a JSON schema of type \"object\"");
  }
  out = simdjson::minify(*parameters);
}

void read_tool(const Fields& fields, FunctionOf function_of, ApiRequest& request) {
  ApiTool tool;
  const auto function = function_of(fields);
  if (!function) {
    return;
  }
  read_tool_name(*function, tool.name);
  function->text("description", tool.description);
  if (tool.description.size() > limits::kToolDescriptionBytesMax) {
    function->wrong("description", "must have at most " +
                                       std::to_string(limits::kToolDescriptionBytesMax) +
                                       " bytes, got " + std::to_string(tool.description.size()));
  }
  bool strict = false;  // Arguments always follow the schema; only the type is checked.
  function->boolean("strict", strict);
  read_parameters(*function, tool.parameters);
  if (std::ranges::find(request.tools, tool.name, &ApiTool::name) != request.tools.end()) {
    function->wrong("name", "must differ from the other tools' names, got " + excerpt(tool.name));
  }
  request.tools.push_back(std::move(tool));
}

void read_tool_choice(const Fields& fields, FunctionOf function_of, ApiRequest& request) {
  const auto choice = fields.find("tool_choice");
  std::string_view word;
  if (!choice || (choice->get(word) == simdjson::SUCCESS && word == "auto")) {
    return;
  }
  if (request.tools.empty()) {
    return fields.wrong("tool_choice", "must only be given with tools");
  }
  request.must_call_tool = true;
  if (word == "required") {
    return;
  }
  if (!choice->is_object()) {
    return must_be(fields.problem(), "tool_choice",
                   "\"none\", \"auto\", \"required\" or a function", *choice);
  }
  std::string name;
  const auto object = fields.object("tool_choice");
  if (const auto function = object ? function_of(*object) : std::nullopt) {
    function->text("name", name);
    const auto found = std::ranges::find(request.tools, name, &ApiTool::name);
    if (found == request.tools.end()) {
      return function->wrong("name", "must be the name of a tool, got " + excerpt(name));
    }
    request.named_tool = static_cast<size_t>(found - request.tools.begin());
  }
}

void read_token_prompt(Problem& problem, const std::string& param, dom::array tokens,
                       ApiRequest& request) {
  if (tokens.size() == 0) {
    return refuse(problem, param, "must not be empty");
  }
  read_tokens(problem, param, tokens, request.token_prompts.emplace_back());
}

// A prompt list has only texts or only token lists; the first element decides.
void read_prompt_list(Problem& problem, const char* name, dom::array list, ApiRequest& request) {
  const dom::element first = list.at(0).value_unsafe();
  if (!first.is_string() && !first.is_array()) {
    return read_token_prompt(problem, name, list, request);
  }
  request.prompts_listed = true;
  if (list.size() > limits::kPromptsMax) {
    return refuse(problem, name,
                  "must be at most " + std::to_string(limits::kPromptsMax) + " prompts, got " +
                      std::to_string(list.size()));
  }
  size_t index = 0;
  for (const dom::element prompt : list) {
    const std::string param = element_name(name, index++);
    dom::array tokens;
    if (first.is_string()) {
      read_text(problem, param, prompt, request.prompts.emplace_back());
    } else if (prompt.get(tokens) == simdjson::SUCCESS) {
      read_token_prompt(problem, param, tokens, request);
    } else {
      must_be(problem, param, "a list of token ids", prompt);
    }
    if (problem) {
      return;
    }
  }
}

}  // namespace

void read_content(const Fields& fields, const std::string& name,
                  std::span<const std::string_view> types, std::string& out) {
  Problem& problem = fields.problem();
  const std::string param = fields.param(name);
  const auto content = fields.find(name);
  if (!content) {
    return refuse(problem, param, "must be a string or a list of text parts");
  }
  dom::array parts;
  if (content->get(parts) != simdjson::SUCCESS) {
    if (!content->is_string()) {
      return must_be(problem, param, "a string or a list of text parts", *content);
    }
    return read_text(problem, param, *content, out);
  }
  size_t index = 0;
  for (const dom::element part : parts) {
    std::string text;
    read_content_part(problem, element_name(param, index), part, types, text);
    if (problem) {
      return;
    }
    // As vLLM does for templates that support only text.
    out += (index > 0 ? "\n" : "") + text;
    ++index;
  }
}

void read_objects(const Fields& fields, const char* name, size_t most,
                  const std::function<void(const Fields&)>& read) {
  const auto list = fields.list(name, most);
  if (!list) {
    return;
  }
  size_t index = 0;
  for (const dom::element value : *list) {
    const std::string param = fields.param(element_name(name, index++));
    dom::object object;
    if (value.get(object) != simdjson::SUCCESS) {
      return must_be(fields.problem(), param, "an object", value);
    }
    read(Fields(object, param + ".", fields.problem()));
    if (fields.problem()) {
      return;
    }
  }
}

void read_id(const Fields& fields, const char* name, std::string& out) {
  fields.text(name, out);
  if (out.size() > limits::kToolCallIdBytesMax) {
    fields.wrong(name, "must have at most " + std::to_string(limits::kToolCallIdBytesMax) +
                           " bytes, got " + std::to_string(out.size()));
  }
}

void read_tool_name(const Fields& function, std::string& out) {
  function.text("name", out);
  if (!is_tool_name(out)) {
    function.wrong("name", "must be 1 to " + std::to_string(limits::kToolNameBytesMax) +
                               " letters, digits, underscores and dashes, got " + excerpt(out));
  }
}

std::optional<Fields> inner_function(const Fields& fields) {
  std::string type = "function";
  fields.text("type", type);
  if (type != "function") {
    fields.wrong("type", "must be \"function\", got " + excerpt(type));
  }
  const auto function = fields.object("function");
  if (!function) {
    fields.wrong("function", "is missing");
  }
  return function;
}

void read_messages(const Fields& fields, ApiRequest& request) {
  const auto messages = fields.list("messages", limits::kMessagesMax);
  if (!messages || messages->size() == 0) {
    return fields.wrong("messages", "must be a list of at least one message");
  }
  request.messages.reserve(messages->size());
  for (const dom::element value : *messages) {
    const std::string param = element_name("messages", request.messages.size());
    read_message(fields.problem(), param, value, request.messages.emplace_back());
    if (fields.problem()) {
      return;
    }
  }
}

void read_tools(const Fields& fields, FunctionOf function_of, ApiRequest& request) {
  const auto choice = fields.find("tool_choice");
  std::string_view word;
  if (choice && choice->get(word) == simdjson::SUCCESS && word == "none") {
    return;
  }
  read_objects(fields, "tools", limits::kToolsMax,
               [&](const Fields& tool) { read_tool(tool, function_of, request); });
  size_t bytes = 0;
  for (const ApiTool& tool : request.tools) {
    bytes += tool.parameters.size();
  }
  if (bytes > limits::kGrammarBytesMax) {
    fields.wrong("tools", "must have parameters of at most " +
                              std::to_string(limits::kGrammarBytesMax) + " bytes together, got " +
                              std::to_string(bytes));
  }
  if (!request.tools.empty() &&
      !(request.sampling.json_schema.empty() && request.sampling.grammar.empty())) {
    fields.wrong("tools", "must not be given: another field structures the output already");
  }
  read_tool_choice(fields, function_of, request);
  fields.boolean("parallel_tool_calls", request.parallel_tool_calls);
}

void read_prompts(const Fields& fields, const char* name, ApiRequest& request) {
  const auto prompt = fields.find(name);
  if (!prompt) {
    return fields.wrong(name, "is missing");
  }
  dom::array list;
  if (prompt->is_string()) {
    read_text(fields.problem(), name, *prompt, request.prompts.emplace_back());
  } else if (prompt->get(list) == simdjson::SUCCESS && list.size() > 0) {
    read_prompt_list(fields.problem(), name, list, request);
  } else {
    must_be(fields.problem(), name, "a string, a list of strings, or token ids", *prompt);
  }
}

}  // namespace pdjob::openai
