#include "openai/openai_prompt.h"

#include <algorithm>

#include <simdjson.h>

#include "common/limits.h"

namespace pdjob::openai {
namespace {

namespace dom = simdjson::dom;

void read_content_part(Problem& problem, const std::string& param, dom::element part,
                       std::string& out) {
  dom::object object;
  if (part.get(object) != simdjson::SUCCESS) {
    return must_be(problem, param, "an object", part);
  }
  const Fields fields(object, param + ".", problem);
  std::string type;
  fields.text("type", type);
  if (type != "text") {
    return refuse(problem, param, "must be of type \"text\", got " + excerpt(type));
  }
  if (const auto value = fields.find("text")) {
    return read_text(problem, param + ".text", *value, out);
  }
  refuse(problem, param + ".text", "is missing");
}

void read_content(const Fields& message, const std::string& role, std::string& out) {
  Problem& problem = message.problem();
  const std::string param = message.param("content");
  const auto content = message.find("content");
  if (!content) {
    if (role != "assistant") {
      refuse(problem, param, "must be a string or a list of text parts");
    }
    return;
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
    read_content_part(problem, element_name(param, index), part, text);
    if (problem) {
      return;
    }
    // As vLLM does for templates that support only text.
    out += (index > 0 ? "\n" : "") + text;
    ++index;
  }
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
  for (const char* name : {"tool_calls", "function_call", "audio"}) {
    if (const auto field = message.find(name); field && asks_for_something(*field)) {
      message.wrong(name, "is not supported");
    }
  }
  read_content(message, out.role, out.content);
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
