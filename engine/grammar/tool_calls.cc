#include "engine/grammar/tool_calls.h"

#include <utility>

#include "common/json/json_writer.h"
#include "common/limits.h"
#include "engine/grammar/bytes.h"
#include "engine/schema/json_schema.h"

namespace pdjob::engine {
namespace {

constexpr uint32_t kMust = 1;
constexpr uint32_t kSeveral = 2;
constexpr uint32_t kAnswer = 4;
constexpr uint32_t kExact = 8;  // Of the answer.

std::string call_begin(const std::string& name) {
  std::string begin(kCallOpen);
  return begin.append(kCallName).append(name).append(kCallArguments);
}

void append_content(JsonWriter& json, const std::string& schema) {
  json.begin_object();
  json.key("type").string("json_schema");
  json.key("json_schema").raw(schema);
  json.key("max_whitespace_cnt").integer(limits::kSchemaWhitespaceMax);
  json.end_object();
}

// XGrammar's "tag": a begin, a content and an end.
void append_tag(JsonWriter& json, const std::string& name, const std::string& schema) {
  json.begin_object();
  json.key("type").string("tag");
  json.key("begin").string(call_begin(name));
  json.key("content");
  append_content(json, schema);
  json.key("end").string(kCallClose);
  json.end_object();
}

void append_tags(JsonWriter& json, std::string_view name, const std::string& tags) {
  json.key(name).begin_array().raw(tags).end_array();
}

// One call, or one of several with a line break in between.
void append_calls(JsonWriter& json, const std::string& tags, bool several) {
  if (!several) {
    json.begin_object().key("type").string("or");
    append_tags(json, "elements", tags);
    json.end_object();
    return;
  }
  json.begin_object().key("type").string("repeat").key("min").integer(1);
  json.key("max").integer(limits::kToolCallsMax);
  json.key("content").begin_object().key("type").string("sequence").key("elements").begin_array();
  append_calls(json, tags, false);
  json.begin_object().key("type").string("optional").key("content");
  json.begin_object().key("type").string("const_string").key("value").string("\n").end_object();
  json.end_object().end_array().end_object().end_object();
}

Result<std::string> checked_schema(const std::string& schema, const std::string& place,
                                   const SchemaDemand& demand, NotHeld& not_held) {
  auto read = normalise_json_schema(schema, demand);
  if (!read) {
    return Error{read.error().code, place + ": " + read.error().message};
  }
  not_held.add(place.substr(0, place.find('.')), read->not_held);
  return std::move(read->text);
}

}  // namespace

std::string write_tool_calls(const ToolCallRules& rules) {
  BytesWriter out;
  out.number((rules.must ? kMust : 0) | (rules.several ? kSeveral : 0) |
             (rules.answer ? kAnswer : 0) | (rules.answer_exact ? kExact : 0));
  if (rules.answer) {
    out.text(*rules.answer);
  }
  for (const ToolCallRules::Tool& tool : rules.tools) {
    out.text(tool.place);
    out.text(tool.name);
    out.text(tool.parameters);
    out.number(tool.exact ? 1 : 0);
  }
  return out.take();
}

Result<ToolCallRules> read_tool_calls(std::string_view bytes) {
  BytesReader in(bytes);
  ToolCallRules rules;
  PDJOB_TRY(const uint32_t flags, in.number());
  rules.must = (flags & kMust) != 0;
  rules.several = (flags & kSeveral) != 0;
  rules.answer_exact = (flags & kExact) != 0;
  if ((flags & kAnswer) != 0) {
    PDJOB_TRY(rules.answer, in.text());
  }
  while (in.left() > 0) {
    ToolCallRules::Tool& tool = rules.tools.emplace_back();
    PDJOB_TRY(tool.place, in.text());
    PDJOB_TRY(tool.name, in.text());
    PDJOB_TRY(tool.parameters, in.text());
    PDJOB_TRY(const uint32_t exact, in.number());
    tool.exact = exact != 0;
  }
  return rules;
}

Result<std::string> check_tool_calls(std::string_view bytes, NotHeld& not_held) {
  PDJOB_TRY(const ToolCallRules rules, read_tool_calls(bytes));
  std::string tags;
  for (const ToolCallRules::Tool& tool : rules.tools) {
    const SchemaDemand demand = {.exact = tool.exact, .object = true};
    PDJOB_TRY(const std::string schema,
              checked_schema(tool.parameters, tool.place, demand, not_held));
    tags += tags.empty() ? "" : ",";
    JsonWriter json(tags);
    append_tag(json, tool.name, schema);
  }
  std::string text;
  JsonWriter json(text);
  json.begin_object().key("type").string("structural_tag").key("format");
  if (rules.must) {
    append_calls(json, tags, rules.several);
  } else if (rules.answer) {
    const SchemaDemand demand = {.exact = rules.answer_exact};
    PDJOB_TRY(const std::string answer,
              checked_schema(*rules.answer, "response_format", demand, not_held));
    json.begin_object().key("type").string("or").key("elements").begin_array();
    append_calls(json, tags, rules.several);
    append_content(json, answer);
    json.end_array().end_object();
  } else {
    json.begin_object().key("type").string("triggered_tags");
    json.key("triggers").begin_array().string(kCallOpen).end_array();
    append_tags(json, "tags", tags);
    json.key("stop_after_first").boolean(!rules.several);
    json.end_object();
  }
  json.end_object();
  return text;
}

}  // namespace pdjob::engine
