#include "engine/grammar/tool_calls.h"

#include <utility>

#include "common/json/json_writer.h"
#include "common/limits.h"
#include "engine/grammar/bytes.h"
#include "engine/grammar/json_schema.h"

namespace pdjob::engine {
namespace {

constexpr uint32_t kMust = 1;
constexpr uint32_t kSeveral = 2;

std::string call_begin(const std::string& name) {
  std::string begin(kCallOpen);
  return begin.append(kCallName).append(name).append(kCallArguments);
}

// XGrammar's "tag": a begin, a content and an end.
void append_tag(JsonWriter& json, const std::string& name, const std::string& schema) {
  json.begin_object();
  json.key("type").string("tag");
  json.key("begin").string(call_begin(name));
  json.key("content").begin_object();
  json.key("type").string("json_schema");
  json.key("json_schema").raw(schema);
  json.key("max_whitespace_cnt").integer(limits::kSchemaWhitespaceMax);
  json.end_object();
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

}  // namespace

std::string write_tool_calls(const ToolCallRules& rules) {
  BytesWriter out;
  out.number((rules.must ? kMust : 0) | (rules.several ? kSeveral : 0));
  for (const ToolCallRules::Tool& tool : rules.tools) {
    out.text(tool.place);
    out.text(tool.name);
    out.text(tool.parameters);
  }
  return out.take();
}

Result<ToolCallRules> read_tool_calls(std::string_view bytes) {
  BytesReader in(bytes);
  ToolCallRules rules;
  PDJOB_TRY(const uint32_t flags, in.number());
  rules.must = (flags & kMust) != 0;
  rules.several = (flags & kSeveral) != 0;
  while (in.left() > 0) {
    ToolCallRules::Tool& tool = rules.tools.emplace_back();
    PDJOB_TRY(tool.place, in.text());
    PDJOB_TRY(tool.name, in.text());
    PDJOB_TRY(tool.parameters, in.text());
  }
  return rules;
}

Result<std::string> check_tool_calls(std::string_view bytes) {
  PDJOB_TRY(const ToolCallRules rules, read_tool_calls(bytes));
  std::string tags;
  for (const ToolCallRules::Tool& tool : rules.tools) {
    const auto schema = normalise_json_schema(tool.parameters);
    if (!schema) {
      return Error{schema.error().code, tool.place + ": " + schema.error().message};
    }
    tags += tags.empty() ? "" : ",";
    JsonWriter json(tags);
    append_tag(json, tool.name, *schema);
  }
  std::string text;
  JsonWriter json(text);
  json.begin_object().key("type").string("structural_tag").key("format");
  if (rules.must) {
    append_calls(json, tags, rules.several);
  } else {
    json.begin_object().key("type").string("triggered_tags");
    json.key("triggers").begin_array().string(kCallOpen).end_array();
    append_tags(json, "tags", tags);
    json.key("stop_after_first").boolean(!rules.several);
    json.end_object();
  }
  json.end_object();
  if (text.size() > limits::kGrammarCheckedBytesMax) {
    return Error{ErrorCode::kInvalidArgument, "the tools' parameters are too long"};
  }
  return text;
}

}  // namespace pdjob::engine
