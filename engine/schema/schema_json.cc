#include "engine/schema/schema_json.h"

#include <algorithm>
#include <exception>
#include <map>
#include <set>
#include <utility>

#include "common/limits.h"

namespace pdjob::engine {
namespace {

using Words = std::set<std::string, std::less<>>;

// Words whose value is a schema, a list of schemas, or an object of named schemas.
const Words& schema_words() {
  static const Words words = {"items",
                              "additionalItems",
                              "additionalProperties",
                              "propertyNames",
                              "unevaluatedProperties",
                              "unevaluatedItems",
                              "contains",
                              "not",
                              "if",
                              "then",
                              "else",
                              "prefixItems",
                              "anyOf",
                              "oneOf",
                              "allOf"};
  return words;
}
const Words& named_schema_words() {
  static const Words words = {"properties", "patternProperties", "$defs", "definitions",
                              "dependentSchemas"};
  return words;
}
// Words for which null is a value.
const Words& words_of_null() {
  static const Words words = {"const", "default", "example"};
  return words;
}

void clean(picojson::value& schema);

void clean_named(picojson::value& named) {
  if (!named.is<picojson::object>()) {
    return;
  }
  for (auto& [name, value] : named.get<picojson::object>()) {
    if (value.is<picojson::null>()) {
      value = picojson::value(picojson::object());
    }
    clean(value);
  }
}

void clean_list(picojson::value& list) {
  if (!list.is<picojson::array>()) {
    return clean(list);
  }
  for (picojson::value& each : list.get<picojson::array>()) {
    clean(each);
  }
}

void clean(picojson::value& schema) {
  if (!schema.is<picojson::object>()) {
    return;
  }
  auto& members = schema.get<picojson::object>();
  const std::vector<std::string> names = members.ordered_keys();
  for (const std::string& name : names) {
    picojson::value& value = members.at(name);
    if (value.is<picojson::null>() && !words_of_null().contains(name)) {
      members.erase(name);
    } else if (named_schema_words().contains(name)) {
      clean_named(value);
    } else if (schema_words().contains(name)) {
      clean_list(value);
    }
  }
}

// Bounds the nesting, because picojson recurses once per level.
Status check_depth(std::string_view json) {
  size_t depth = 0;
  bool quoted = false;
  for (size_t at = 0; at < json.size(); ++at) {
    const char sign = json[at];
    if (quoted) {
      at += sign == '\\' ? 1 : 0;
      quoted = sign != '"';
    } else if (sign == '"') {
      quoted = true;
    } else if (sign == '{' || sign == '[') {
      if (++depth > limits::kSchemaDepthMax) {
        return Error{ErrorCode::kInvalidArgument, "the JSON schema is nested too deeply"};
      }
    } else if (sign == '}' || sign == ']') {
      depth -= depth > 0 ? 1 : 0;
    }
  }
  return ok();
}

}  // namespace

Result<picojson::value> parse_schema(std::string_view text) {
  const auto invalid = [](const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, "the JSON schema is " + what};
  };
  if (text.size() > limits::kSchemaBytesMax) {
    return invalid("too long");
  }
  PDJOB_TRY_STATUS(check_depth(text));
  try {
    picojson::value root;
    std::string problem;
    const auto* const end = text.data() + text.size();
    const auto* rest = picojson::parse(root, text.data(), end, &problem);
    rest = std::find_if(rest, end,
                        [](char c) { return c != ' ' && c != '\n' && c != '\t' && c != '\r'; });
    if (!problem.empty() || rest != end) {
      return invalid("not JSON");
    }
    clean(root);
    return root;
  } catch (const std::exception&) {
    return invalid("not JSON");  // An invalid number, such as 1e999.
  }
}

const picojson::value* member(const picojson::object& object, const std::string& name) {
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &found->second;
}

bool says(const picojson::object& object, const std::string& name, bool what) {
  const auto* found = member(object, name);
  return found != nullptr && found->is<bool>() && found->get<bool>() == what;
}

bool is_number(const picojson::value& value) { return value.is<int64_t>() || value.is<double>(); }

double number_of(const picojson::value& value) {
  return value.is<int64_t>() ? static_cast<double>(value.get<int64_t>()) : value.get<double>();
}

bool allows_nothing(const picojson::value& schema) {
  if (schema.is<bool>()) {
    return !schema.get<bool>();
  }
  const auto* no =
      schema.is<picojson::object>() ? member(schema.get<picojson::object>(), "not") : nullptr;
  return no != nullptr && ((no->is<bool>() && no->get<bool>()) ||
                           (no->is<picojson::object>() && no->get<picojson::object>().empty()));
}

bool constrains(const std::string& word) {
  static const Words words = [] {
    Words all = {"$ref",  "$dynamicRef", "$recursiveRef", "type", "const",    "enum", "anyOf",
                 "oneOf", "allOf",       "not",           "if",   "nullable", "then", "else"};
    for (const char* type : {"string", "number", "array", "object"}) {
      all.insert(words_of_type(type).begin(), words_of_type(type).end());
    }
    return all;
  }();
  return words.contains(word);
}

const std::vector<std::string>& words_of_type(const std::string& type) {
  static const std::map<std::string, std::vector<std::string>> words = {
      {"string", {"minLength", "maxLength", "pattern", "format"}},
      {"integer", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}},
      {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}},
      {"array",
       {"items", "prefixItems", "minItems", "maxItems", "uniqueItems", "additionalItems",
        "contains", "unevaluatedItems"}},
      {"object",
       {"properties", "required", "additionalProperties", "patternProperties", "propertyNames",
        "minProperties", "maxProperties", "unevaluatedProperties", "dependentRequired",
        "dependentSchemas", "dependencies"}},
      {"boolean", {}},
      {"null", {}}};
  return words.at(type);
}

Error refused_schema(const std::string& path, const std::string& what) {
  constexpr size_t kPathBytesMax = 200;
  const std::string shown =
      path.size() > kPathBytesMax ? "..." + path.substr(path.size() - kPathBytesMax) : path;
  return {ErrorCode::kInvalidArgument, "the JSON schema at " + shown + ": " + what};
}

Status SchemaNotes::not_held(const std::string& path, const std::string& word,
                             const std::string& why, const std::string& step) {
  if (exact_) {
    return refused_schema(path + step, why);
  }
  ignored(path, word);
  return ok();
}

void SchemaNotes::ignored(const std::string& path, const std::string& word) {
  if (notes_.size() < limits::kSchemaNotesMax) {
    const std::string place = path.size() > 2 ? path.substr(2) + ": " : "";
    notes_.push_back(place + word);
  }
}

}  // namespace pdjob::engine
