#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <simdjson.h>

#include "common/json/json_writer.h"
#include "common/limits.h"
#include "openai/openai_prompt.h"
#include "openai/openai_sampling.h"
#include "openai/responses.h"
#include "openai/structure_fields.h"

namespace pdjob::openai {
namespace {

namespace dom = simdjson::dom;

constexpr std::string_view kLogprobs = "message.output_text.logprobs";
// Parts of items that only OpenAI's own tools and reasoning make: there are none here.
constexpr std::string_view kIdleIncludes[] = {
    "code_interpreter_call.outputs", "computer_call_output.output.image_url",
    "file_search_call.results",      "message.input_image.image_url",
    "reasoning.encrypted_content",   "web_search_call.action.sources",
    "web_search_call.results"};
constexpr size_t kShortBytesMax = 512;
constexpr size_t kFormatDescriptionBytesMax = 4096;

// --- The conversation

void read_message(const Fields& item, ApiRequest& request) {
  static constexpr std::string_view kRoles[] = {"user", "assistant", "system", "developer"};
  ApiMessage& message = request.messages.emplace_back();
  item.text("role", message.role);
  if (std::ranges::find(kRoles, message.role) == std::end(kRoles)) {
    return item.wrong(
        "role", "must be one of user, assistant, system, developer, got " + excerpt(message.role));
  }
  read_content(item, "content", message);
}

// Calls are items of their own here. In a chat they belong to the message before them.
void read_call_item(const Fields& item, ApiRequest& request) {
  auto& messages = request.messages;
  if (messages.empty() || messages.back().role != "assistant") {
    messages.push_back({.role = "assistant", .content = {}});
  }
  std::vector<ApiToolCall>& calls = messages.back().tool_calls;
  if (calls.size() == limits::kToolsMax) {
    return item.wrong("type", "must not come more than " + std::to_string(limits::kToolsMax) +
                                  " times in a row, got another \"function_call\"");
  }
  ApiToolCall& call = calls.emplace_back();
  read_id(item, "call_id", call.id);
  read_call(item, call);
}

void read_call_output(const Fields& item, ApiRequest& request) {
  ApiMessage& message = request.messages.emplace_back();
  message.role = "tool";
  read_id(item, "call_id", message.tool_call_id);
  if (!item.find("output")) {
    return item.wrong("output", "must be a string or a list of text parts");
  }
  read_content(item, "output", message);
}

void read_item(const Fields& item, ApiRequest& request) {
  std::string type = "message";
  item.text("type", type);
  if (type == "message") {
    read_message(item, request);
  } else if (type == "function_call") {
    read_call_item(item, request);
  } else if (type == "function_call_output") {
    read_call_output(item, request);
  } else if (type == "item_reference") {
    item.wrong("type",
               "\"item_reference\" is not supported: nothing is stored, so send the item "
               "itself (clients do so with store: false)");
  } else if (type != "reasoning") {  // Which models do not see again.
    item.wrong("type",
               "must be one of message, function_call, function_call_output, reasoning, got " +
                   excerpt(type));
  }
}

void read_input(const Fields& fields, ApiRequest& request) {
  const auto input = fields.find("input");
  if (input && input->is_string()) {
    request.messages.push_back({.role = "user", .content = {}});
    return fields.text("input", request.messages.back().content);
  }
  if (!input || !input->is_array()) {
    return fields.wrong("input", "must be a string or a list of items");
  }
  read_objects(fields, "input", limits::kMessagesMax,
               [&request](const Fields& item) { read_item(item, request); });
  if (request.messages.empty()) {
    fields.wrong("input", "must have at least one message");
  }
  complete_results(request.messages);
}

void read_instructions(const Fields& fields, ApiRequest& request) {
  std::string instructions;
  fields.text("instructions", instructions);
  if (!instructions.empty()) {
    request.messages.insert(request.messages.begin(),
                            {.role = "system", .content = std::move(instructions)});
  }
}

// --- Tools

std::optional<Fields> flat_function(const Fields& fields) {
  std::string type;
  fields.text("type", type);
  if (type != "function") {
    fields.wrong("type", "must be \"function\", the only kind of tool here, got " + excerpt(type));
  }
  return fields;
}

// --- The output

void read_logprobs(const Fields& fields, SamplingParams& sampling) {
  bool wanted = false;
  if (const auto include = fields.list("include", limits::kJsonFieldsMax)) {
    for (const dom::element value : *include) {
      std::string_view word;
      const bool is_text = value.get(word) == simdjson::SUCCESS;
      wanted |= is_text && word == kLogprobs;
      if (!is_text || (word != kLogprobs &&
                       std::ranges::find(kIdleIncludes, word) == std::end(kIdleIncludes))) {
        return must_be(fields.reading(), "include",
                       "a list of OpenAI's names, such as \"" + std::string(kLogprobs) + "\"",
                       value);
      }
    }
  }
  int32_t alternatives = 0;
  fields.integer("top_logprobs", {0, limits::kLogprobsMax}, alternatives);
  if (wanted || alternatives > 0) {
    sampling.logprobs = alternatives;
  }
}

void read_word(const Fields& fields, std::string_view name,
               std::initializer_list<std::string_view> words) {
  std::string word;
  fields.text(name, word);
  if (!word.empty() && std::ranges::find(words, word) == words.end()) {
    std::string known;
    for (const std::string_view each : words) {
      known.append(known.empty() ? "" : ", ").append(each);
    }
    fields.wrong(name, "must be one of " + known + ", got " + excerpt(word));
  }
}

// Reads a text that the reply repeats, or that has no effect.
std::string short_text(const Fields& fields, std::string_view name, size_t bytes_max) {
  std::string text;
  fields.text(name, text);
  if (text.size() > bytes_max) {
    fields.wrong(name, "must have at most " + std::to_string(bytes_max) + " bytes, got " +
                           std::to_string(text.size()));
  }
  return text;
}

void append_or_null(JsonWriter& json, std::string_view name, const std::string& text) {
  json.key(name);
  text.empty() ? json.null() : json.string(text);
}

// Reads text.format. Returns it as the reply repeats it.
std::string read_format(const Fields& text, SamplingParams& sampling) {
  std::string said;
  JsonWriter json(said);
  const auto format = text.object("format");
  std::string type = "text";
  if (format) {
    format->text("type", type);
  }
  json.begin_object().key("type").string(type);
  if (type == "json_object") {
    read_any_object(*format, "type", sampling);
  } else if (type == "json_schema") {
    if (!format->find("schema")) {
      format->wrong("schema", "is missing");
    }
    sampling.schema_exact = false;
    format->boolean("strict", sampling.schema_exact);
    read_schema(*format, "schema", sampling);
    append_or_null(json, "name", short_text(*format, "name", limits::kToolNameBytesMax));
    append_or_null(json, "description",
                   short_text(*format, "description", kFormatDescriptionBytesMax));
    const auto schema = format->find("schema");
    const std::string repeated = schema ? simdjson::minify(*schema) : "null";
    json.key("schema").raw(repeated.size() <= kRepeatedBytesMax ? repeated : "{}");
    json.key("strict").boolean(sampling.schema_exact);
  } else if (type != "text") {
    format->wrong("type", "must be one of text, json_object, json_schema, got " + excerpt(type));
  }
  json.end_object();
  return said;
}

// --- What the reply repeats of its request

// A text as JSON, or null.
std::string text_said(const Fields& fields, std::string_view name) {
  std::string text;
  fields.text(name, text);
  std::string said;
  JsonWriter json(said);
  text.empty() ? json.null() : json.string(text);
  return said;
}

// As the client sent them, without what pdjob does not know.
std::string tools_said(const Fields& fields) {
  std::string said;
  JsonWriter json(said);
  json.begin_array();
  read_objects(fields, "tools", limits::kToolsMax, [&json](const Fields& tool) {
    std::string type;
    std::string name;
    std::string description;
    bool strict = false;
    tool.text("type", type);
    if (type != "function") {
      return;  // With tool_choice "none", nobody looks at tools.
    }
    tool.text("name", name);
    tool.text("description", description);
    tool.boolean("strict", strict);
    const auto parameters = tool.find("parameters");
    json.begin_object().key("type").string("function").key("name").string(name);
    append_or_null(json, "description", description);
    json.key("parameters").raw(parameters ? simdjson::minify(*parameters) : "null");
    json.key("strict").boolean(strict).end_object();
  });
  json.end_array();
  return said;
}

std::string choice_said(const Fields& fields, const ApiRequest& request) {
  std::string said;
  JsonWriter json(said);
  const auto append_function = [&](size_t place) {
    json.begin_object().key("type").string("function");
    json.key("name").string(request.tools[place].name).end_object();
  };
  std::string_view word = "auto";
  const auto choice = fields.find("tool_choice");
  if (choice && choice->is_object() && !request.callable_tools.empty()) {
    std::string_view type;
    if ((*choice)["type"].get(type) != simdjson::SUCCESS || type != "allowed_tools") {
      append_function(request.callable_tools.front());
      return said;
    }
    json.begin_object().key("type").string(type);
    json.key("mode").string(request.must_call_tool ? "required" : "auto");
    json.key("tools").begin_array();
    for (const size_t place : request.callable_tools) {
      append_function(place);
    }
    json.end_array().end_object();
    return said;
  }
  if (choice && choice->is_string()) {
    word = choice->get_string().value_unsafe();
  }
  json.string(word);
  return said;
}

std::string metadata_said(const Fields& fields) {
  // OpenAI's limits.
  constexpr size_t kPairsMax = 16;
  constexpr size_t kKeyBytesMax = 64;
  constexpr size_t kValueBytesMax = 512;
  const auto metadata = fields.find("metadata");
  if (!metadata) {
    return "{}";
  }
  dom::object pairs;
  bool fits = metadata->get(pairs) == simdjson::SUCCESS && pairs.size() <= kPairsMax;
  if (fits) {
    for (const auto [key, value] : pairs) {
      std::string_view text;
      fits &= key.size() <= kKeyBytesMax && value.get(text) == simdjson::SUCCESS &&
              text.size() <= kValueBytesMax && simdjson::validate_utf8(text);
    }
  }
  if (!fits) {
    fields.wrong("metadata", "must be an object of at most " + std::to_string(kPairsMax) +
                                 " texts of at most " + std::to_string(kValueBytesMax) +
                                 " bytes, with names of at most " + std::to_string(kKeyBytesMax));
    return "{}";
  }
  return simdjson::minify(*metadata);
}

// --- Fields without effect, and fields that are refused

void read_idle(const Fields& fields, ApiTemplate& chat_template) {
  bool store = false;
  fields.boolean("store", store);
  read_word(fields, "service_tier", {"auto", "default", "flex", "scale", "priority", "fast"});
  read_word(fields, "prompt_cache_retention", {"in_memory", "in-memory", "24h"});
  if (const auto reasoning = fields.object("reasoning")) {
    read_effort(*reasoning, "effort", chat_template);
    for (const char* name : {"summary", "generate_summary"}) {
      short_text(*reasoning, name, kShortBytesMax);
      reasoning->idle(name);
    }
  }
  uint32_t tool_calls = 0;  // Of OpenAI's own tools.
  fields.integer("max_tool_calls", {1, kTokenMax}, tool_calls);
  for (const char* name :
       {"store", "service_tier", "prompt_cache_retention", "max_tool_calls", "metadata",
        "safety_identifier", "prompt_cache_key", "background_options", "image"}) {
    fields.idle(name);
  }
}

void refuse_unsupported(const Fields& fields, bool stream) {
  static constexpr const char* kUnsupported[] = {
      // clang-format off
      "access_programs", "background", "best_of", "chat_template_kwargs", "context_management",
      "conversation", "echo", "enable_response_messages", "enable_thinking", "guided_choice",
      "guided_grammar", "guided_json", "guided_regex", "previous_input_messages",
      "previous_response", "previous_response_id", "prompt", "return_token_ids",
      "return_weight_versions", "thinking",
      // clang-format on
  };
  for (const char* name : kUnsupported) {
    fields.unsupported(name);
  }
  static constexpr std::pair<const char*, const char*> kOfChats[] = {
      {"messages", "input"},
      {"max_tokens", "max_output_tokens"},
      {"max_completion_tokens", "max_output_tokens"},
      {"response_format", "text.format"},
      {"logprobs", "top_logprobs"},
      {"functions", "tools"},
      {"function_call", "tool_choice"}};
  for (const auto& [name, instead] : kOfChats) {
    fields.unsupported(name, std::string("is a field of chats: use ") + instead);
  }
  uint32_t choices = 1;
  fields.integer("n", {1, 1}, choices);
  read_word(fields, "truncation", {"disabled"});
  if (const auto options = fields.object("stream_options")) {
    options->only("include_obfuscation", false);
    if (!stream) {
      fields.wrong("stream_options", "must only be given with stream");
    }
  }
}

// The members of a response that repeat its request. Tools and instructions are left out if they
// are so long that an event of a stream would not fit into its queue.
std::string settings_of(const Fields& fields, const ApiRequest& request, const std::string& text) {
  const std::string instructions = text_said(fields, "instructions");
  const std::string tools = tools_said(fields);
  const bool is_long = instructions.size() + tools.size() > kRepeatedBytesMax;
  std::string said;
  JsonWriter json(said);
  json.key("background").boolean(false);
  json.key("instructions").raw(is_long ? "null" : instructions);
  json.key("tools").raw(is_long ? "[]" : tools);
  json.key("tool_choice").raw(choice_said(fields, request));
  json.key("parallel_tool_calls").boolean(request.parallel_tool_calls);
  json.key("text").raw(text);
  json.key("metadata").raw(metadata_said(fields));
  const SamplingParams& sampling = request.sampling;
  json.key("temperature").number(sampling.temperature).key("top_p").number(sampling.top_p);
  json.key("presence_penalty").number(sampling.presence_penalty);
  json.key("frequency_penalty").number(sampling.frequency_penalty);
  json.key("top_logprobs").integer(std::max(0, sampling.logprobs));
  json.key("max_output_tokens");
  request.fills_context ? json.null() : json.integer(request.stop.max_tokens);
  json.key("max_tool_calls").null().key("previous_response_id").null();
  const auto reasoning = fields.object("reasoning");
  json.key("reasoning").begin_object();
  append_or_null(json, "effort", reasoning ? short_text(*reasoning, "effort", kShortBytesMax) : "");
  json.key("summary").null().end_object();
  const bool flex = short_text(fields, "service_tier", kShortBytesMax) == "flex";
  json.key("service_tier").string(flex ? "flex" : "default").key("store").boolean(false);
  json.key("truncation").string("disabled");
  for (const char* name : {"user", "safety_identifier", "prompt_cache_key"}) {
    append_or_null(json, name, short_text(fields, name, kShortBytesMax));
  }
  return said;
}

// Reads `text`. Returns it as the reply repeats it.
std::string read_text_config(const Fields& fields, SamplingParams& sampling) {
  const auto text = fields.object("text");
  std::string said;
  JsonWriter json(said);
  json.begin_object().key("format");
  if (text) {
    json.raw(read_format(*text, sampling));
    read_word(*text, "verbosity", {"low", "medium", "high"});
    text->idle("verbosity");
  } else {
    json.raw(R"({"type":"text"})");
  }
  json.end_object();
  return said;
}

}  // namespace

void read_responses_request(const Fields& fields, ApiRequest& request) {
  read_input(fields, request);
  read_instructions(fields, request);
  read_draw(fields, {}, request);
  read_logprobs(fields, request.sampling);
  const std::string text = read_text_config(fields, request.sampling);
  read_structured_outputs(fields, request.sampling);
  read_stop(fields, request.stop);
  fields.boolean("include_stop_str_in_output", request.stop.include_stop_string);
  request.fills_context =
      !fields.integer("max_output_tokens", {1, kTokenMax}, request.stop.max_tokens);
  read_min_tokens(fields, "min_tokens", "max_output_tokens", request);
  read_tools(fields, flat_function, request);
  fields.boolean("stream", request.stream);
  read_salt(fields, request);
  read_idle(fields, request.chat_template);
  refuse_unsupported(fields, request.stream);
  request.response_settings = settings_of(fields, request, text);
}

}  // namespace pdjob::openai
