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

// What OpenAI allows, so that a name needs no escape anywhere.
bool is_tool_name(std::string_view name) {
  return !name.empty() && name.size() <= limits::kToolNameBytesMax &&
         std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-';
         });
}

}  // namespace

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
  if (type != "function" && !type.empty()) {  // Empty: a call that was put together from a stream.
    fields.wrong("type", "must be \"function\", got " + excerpt(type));
  }
  const auto function = fields.object("function");
  if (!function) {
    fields.wrong("function", "is missing");
  }
  return function;
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
      return must_be(fields.reading(), param, "an object", value);
    }
    read(Fields(object, param + ".", fields.reading()));
    if (!fields.reading().outcome) {
      return;
    }
  }
}

namespace {

void read_parameters(const Fields& function, std::string& out) {
  const auto parameters = function.find("parameters");
  // PHP writes an empty object as [].
  const bool listed = parameters && (parameters->is_object() || parameters->is_array());
  if (!parameters || (listed && !asks_for_something(*parameters))) {
    out = kNoParameters;
    return;
  }
  // It may say that it is an object in many ways; the engine holds it to one.
  std::string_view type;
  const bool typed =
      parameters->is_object() && (*parameters)["type"].get(type) == simdjson::SUCCESS;
  if (!parameters->is_object() || (typed && type != "object")) {
    return function.wrong("parameters", "must be a JSON schema of type \"object\"");
  }
  out = simdjson::minify(*parameters);
}

void read_tool(const std::optional<Fields>& function, ApiRequest& request) {
  if (!function) {
    return;
  }
  ApiTool tool;
  read_tool_name(*function, tool.name);
  function->text("description", tool.description);
  function->boolean("strict", tool.strict);
  read_parameters(*function, tool.parameters);
  if (std::ranges::find(request.tools, tool.name, &ApiTool::name) != request.tools.end()) {
    function->wrong("name", "must differ from the other tools' names, got " + excerpt(tool.name));
  }
  request.tools.push_back(std::move(tool));
}

// The place of the tool that `function` names, or an error.
std::optional<size_t> read_named_tool(const Fields& function, const ApiRequest& request) {
  std::string name;
  function.text("name", name);
  const auto found = std::ranges::find(request.tools, name, &ApiTool::name);
  if (found == request.tools.end()) {
    function.wrong("name", "must be the name of a tool, got " + excerpt(name));
    return std::nullopt;
  }
  return static_cast<size_t>(found - request.tools.begin());
}

// OpenAI's {"type": "allowed_tools"}: the model knows all tools, and may call some of them.
void read_allowed_tools(const Fields& allowed, FunctionOf function_of, ApiRequest& request) {
  std::string mode;
  allowed.text("mode", mode);
  if (mode != "auto" && mode != "required") {
    return allowed.wrong("mode", "must be one of auto, required, got " + excerpt(mode));
  }
  request.must_call_tool = mode == "required";
  read_objects(allowed, "tools", limits::kToolsMax, [&](const Fields& tool) {
    const auto function = function_of(tool);
    if (const auto place = function ? read_named_tool(*function, request) : std::nullopt) {
      request.callable_tools.push_back(*place);
    }
  });
  if (request.callable_tools.empty()) {
    allowed.wrong("tools", "must name at least one tool");
  }
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
    return must_be(fields.reading(), "tool_choice",
                   "\"none\", \"auto\", \"required\", a function or allowed tools", *choice);
  }
  const auto object = fields.object("tool_choice");
  std::string type;
  if (object) {
    object->text("type", type);
  }
  if (type == "allowed_tools") {
    const bool flat = request.kind == ApiKind::kResponses;
    const auto allowed = flat ? object : object->object("allowed_tools");
    return allowed ? read_allowed_tools(*allowed, function_of, request)
                   : object->wrong("allowed_tools", "is missing");
  }
  const auto function = object ? function_of(*object) : std::nullopt;
  if (const auto place = function ? read_named_tool(*function, request) : std::nullopt) {
    request.callable_tools = {*place};
    request.parallel_tool_calls = false;
  }
}

bool is_none(const Fields& fields, const char* name) {
  const auto choice = fields.find(name);
  std::string_view word;
  return choice && choice->get(word) == simdjson::SUCCESS && word == "none";
}

// OpenAI's names before tools: `functions` and `function_call`. A reply has at most one call.
void read_functions(const Fields& fields, ApiRequest& request) {
  const auto choice = fields.find("function_call");
  if (is_none(fields, "function_call")) {
    return;
  }
  read_objects(fields, "functions", limits::kToolsMax,
               [&request](const Fields& function) { read_tool(function, request); });
  std::string_view word;
  if (choice && (choice->get(word) != simdjson::SUCCESS || word != "auto")) {
    if (request.tools.empty()) {
      return fields.wrong("function_call", "must only be given with functions");
    }
    if (!choice->is_object()) {
      return must_be(fields.reading(), "function_call", "\"none\", \"auto\" or a function",
                     *choice);
    }
    const auto function = fields.object("function_call");
    if (const auto place = function ? read_named_tool(*function, request) : std::nullopt) {
      request.must_call_tool = true;
      request.callable_tools = {*place};
    }
  }
  request.legacy_functions = !request.tools.empty();
  request.parallel_tool_calls &= !request.legacy_functions;
}

void read_token_prompt(Reading& reading, const std::string& param, dom::array tokens,
                       ApiRequest& request) {
  if (tokens.size() == 0) {
    return refuse(reading, param, "must not be empty");
  }
  read_tokens(reading, param, tokens, request.token_prompts.emplace_back());
}

// A prompt list has only texts or only token lists; the first element decides.
void read_prompt_list(Reading& reading, const char* name, dom::array list, ApiRequest& request) {
  const dom::element first = list.at(0).value_unsafe();
  if (!first.is_string() && !first.is_array()) {
    return read_token_prompt(reading, name, list, request);
  }
  request.prompts_listed = true;
  if (list.size() > limits::kPromptsMax) {
    return refuse(reading, name,
                  "must be at most " + std::to_string(limits::kPromptsMax) + " prompts, got " +
                      std::to_string(list.size()));
  }
  size_t index = 0;
  for (const dom::element prompt : list) {
    const std::string param = element_name(name, index++);
    dom::array tokens;
    if (first.is_string()) {
      read_text(reading, param, prompt, request.prompts.emplace_back());
    } else if (prompt.get(tokens) == simdjson::SUCCESS) {
      read_token_prompt(reading, param, tokens, request);
    } else {
      must_be(reading, param, "a list of token ids", prompt);
    }
    if (!reading.outcome) {
      return;
    }
  }
}

}  // namespace

void read_tools(const Fields& fields, FunctionOf function_of, ApiRequest& request) {
  const bool refused = is_none(fields, "tool_choice");
  if (!refused) {
    fields.boolean("parallel_tool_calls", request.parallel_tool_calls);
    read_objects(fields, "tools", limits::kToolsMax,
                 [&](const Fields& tool) { read_tool(function_of(tool), request); });
  }
  if (request.kind == ApiKind::kChat && request.tools.empty()) {
    read_functions(fields, request);
  } else if (const auto functions = fields.find("functions");
             functions && asks_for_something(*functions)) {
    fields.wrong("functions", "must not be given beside tools");
  }
  size_t bytes = 0;
  for (const ApiTool& tool : request.tools) {
    bytes += tool.parameters.size() + tool.description.size();
  }
  if (bytes > limits::kToolsBytesMax) {
    fields.wrong("tools", "must have descriptions and parameters of at most " +
                              std::to_string(limits::kToolsBytesMax) + " bytes together, got " +
                              std::to_string(bytes));
  }
  // A JSON schema is the form of an answer without a call.
  if (!request.tools.empty() && request.sampling.structured() &&
      request.sampling.json_schema.empty()) {
    fields.wrong("tools", "must not be given: another field structures the output already");
  }
  if (!refused && !request.legacy_functions) {
    read_tool_choice(fields, function_of, request);
  }
}

void read_prompts(const Fields& fields, const char* name, ApiRequest& request) {
  const auto prompt = fields.find(name);
  if (!prompt) {
    return fields.wrong(name, "is missing");
  }
  dom::array list;
  if (prompt->is_string()) {
    read_text(fields.reading(), name, *prompt, request.prompts.emplace_back());
  } else if (prompt->get(list) == simdjson::SUCCESS && list.size() > 0) {
    read_prompt_list(fields.reading(), name, list, request);
  } else {
    must_be(fields.reading(), name, "a string, a list of strings, or token ids", *prompt);
  }
}

}  // namespace pdjob::openai
