#include "engine/grammar/json_schema.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <picojson.h>

#include "common/limits.h"
#include "engine/grammar/pattern.h"
#include "engine/grammar/schema_options.h"

namespace pdjob::engine {
namespace {

using Words = std::set<std::string, std::less<>>;

// Keywords that describe a schema and do not constrain values.
const Words& annotations() {
  static const Words words = {
      "title",           "description",   "default",      "examples", "example",
      "deprecated",      "readOnly",      "writeOnly",    "$comment", "contentMediaType",
      "contentEncoding", "discriminator", "externalDocs", "$schema",  "$id",
      "$defs",           "definitions"};
  return words;
}
const auto& words_of_type() {
  static const std::map<std::string, Words, std::less<>> words = {
      {"string", {"minLength", "maxLength", "pattern", "format"}},
      {"integer", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}},
      {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}},
      {"array", {"items", "prefixItems", "minItems", "maxItems", "uniqueItems"}},
      {"object", {"properties", "required", "additionalProperties"}},
      {"boolean", {}},
      {"null", {}}};
  return words;
}
const Words& formats() {
  static const Words words = {"date", "time", "date-time", "duration", "email",
                              "ipv4", "ipv6", "hostname",  "uuid",     "uri"};
  return words;
}

picojson::value text(std::string_view what) { return picojson::value(std::string(what)); }

// XGrammar rounds the bounds of numbers to multiples of this.
constexpr double kNumberStep = 1e-6;

class SchemaReader {
 public:
  explicit SchemaReader(const picojson::value& root) : root_(root) {}

  Result<std::string> run() {
    PDJOB_TRY_STATUS(collect_definitions());
    PDJOB_TRY(picojson::value whole, schema(root_, {.path = "$", .owner = 0, .head = true}));
    picojson::object definitions;
    for (size_t index = 0; index < definitions_.size(); ++index) {
      const auto& [path, value] = definitions_[index];
      PDJOB_TRY(definitions["d" + std::to_string(index)],
                schema(*value, {.path = path, .owner = index + 1, .head = true}));
    }
    PDJOB_TRY_STATUS(check_cycles());
    if (!definitions.empty()) {
      if (!whole.is<picojson::object>()) {
        return whole.serialize();
      }
      whole.get<picojson::object>()["$defs"] = picojson::value(definitions);
    }
    return whole.serialize();
  }

 private:
  // The place of a schema. `owner`: 0 for the root, n for definition n - 1. `head`: the schema
  // applies to the same value as its owner.
  struct Place {
    std::string path;
    size_t owner = 0;
    bool head = false;

    Place below(const std::string& step) const { return {path + step, owner, false}; }
    Place beside(const std::string& step) const { return {path + step, owner, head}; }
  };

  static Error refused(const std::string& path, const std::string& what) {
    constexpr size_t kPathBytesMax = 200;
    const std::string shown =
        path.size() > kPathBytesMax ? "..." + path.substr(path.size() - kPathBytesMax) : path;
    return {ErrorCode::kInvalidArgument, "the JSON schema at " + shown + ": " + what};
  }

  static const picojson::value* member(const picojson::object& object, const std::string& name) {
    const auto found = object.find(name);
    return found == object.end() ? nullptr : &found->second;
  }

  static Status only(const picojson::object& in, const Place& place, const Words& words,
                     const std::string& why) {
    for (const std::string& name : in.ordered_keys()) {
      // An $id below the root would change what $ref means there.
      const bool says_only = annotations().contains(name) && (name != "$id" || place.path == "$");
      if (!says_only && !words.contains(name)) {
        return refused(place.path, name.substr(0, 60) + " is not supported" + why);
      }
    }
    return ok();
  }

  Status collect_definitions() {
    if (!root_.is<picojson::object>()) {
      return ok();
    }
    for (const std::string word : {"$defs", "definitions"}) {
      const auto* list = member(root_.get<picojson::object>(), word);
      if (list == nullptr) {
        continue;
      }
      if (!list->is<picojson::object>()) {
        return refused("$." + word, "must be an object");
      }
      const auto& named = list->get<picojson::object>();
      for (const std::string& name : named.ordered_keys()) {
        std::string reference = "#/";
        index_of_[reference.append(word).append("/").append(name)] = definitions_.size();
        std::string path = "$.";
        definitions_.emplace_back(path.append(word).append(".").append(name), &named.at(name));
      }
    }
    refers_.resize(definitions_.size() + 1);
    return ok();
  }

  // The owner that a $ref names.
  Result<size_t> target(const picojson::value& reference, const Place& place) const {
    if (!reference.is<std::string>()) {
      return refused(place.path, "$ref must be a text");
    }
    const std::string& uri = reference.get<std::string>();
    if (uri == "#") {
      return size_t{0};
    }
    const auto found = index_of_.find(uri);
    const bool plain = uri.find_first_of("~%") == std::string::npos;
    if (found == index_of_.end() || !plain) {
      return refused(place.path,
                     "$ref must be \"#\", or \"#/$defs/NAME\" or \"#/definitions/NAME\" of a "
                     "definition that is there");
    }
    return found->second + 1;
  }

  // Follows every $ref, and returns the schema at the end; null if there is none.
  const picojson::object* follow(const picojson::value& schema) const {
    const picojson::value* at = &schema;
    for (size_t hops = 0; hops <= definitions_.size() + 1 && at->is<picojson::object>(); ++hops) {
      const auto* reference = member(at->get<picojson::object>(), "$ref");
      if (reference == nullptr) {
        return &at->get<picojson::object>();
      }
      const auto owner = target(*reference, {});
      if (!owner) {
        return nullptr;
      }
      at = *owner == 0 ? &root_ : definitions_[*owner - 1].second;
    }
    return nullptr;
  }

  Result<picojson::value> schema(const picojson::value& in, const Place& place) {
    if (++schemas_ > limits::kSchemaNodesMax) {
      return refused(place.path, "there are more than " + std::to_string(limits::kSchemaNodesMax) +
                                     " schemas in it");
    }
    if (in.is<bool>() && in.get<bool>()) {
      return picojson::value(picojson::object());
    }
    if (!in.is<picojson::object>()) {
      return refused(place.path, "must be an object or true");
    }
    const auto& object = in.get<picojson::object>();
    for (const std::string word : {"$ref", "const", "enum", "anyOf", "oneOf", "allOf", "type"}) {
      if (const auto* value = member(object, word)) {
        return form(word, *value, object, place);
      }
    }
    return untyped(object, place);
  }

  Result<picojson::value> form(const std::string& word, const picojson::value& value,
                               const picojson::object& object, const Place& place) {
    if (word == "$ref") {
      PDJOB_TRY_STATUS(only(object, place, {"$ref"}, " beside $ref"));
      return reference(value, place);
    }
    if (word == "const" || word == "enum") {
      PDJOB_TRY_STATUS(only(object, place, {word, "type"}, " beside " + word));
      return values(word, value, object, place);
    }
    if (word == "anyOf" || word == "oneOf" || word == "allOf") {
      PDJOB_TRY_STATUS(only(object, place, {word}, " beside " + word));
      return options(word, value, place);
    }
    return typed(value, object, place);
  }

  Result<picojson::value> reference(const picojson::value& value, const Place& place) {
    PDJOB_TRY(const size_t owner, target(value, place));
    if (place.head) {
      refers_.resize(definitions_.size() + 1);
      refers_[place.owner].push_back(owner);
    }
    picojson::object out;
    out["$ref"] = text(owner == 0 ? "#" : "#/$defs/d" + std::to_string(owner - 1));
    return picojson::value(out);
  }

  static bool has_type(const picojson::value& value, const std::string& type) {
    const bool number = value.is<int64_t>() || value.is<double>();
    return (type == "string" && value.is<std::string>()) ||
           (type == "boolean" && value.is<bool>()) ||
           (type == "null" && value.is<picojson::null>()) ||
           (type == "array" && value.is<picojson::array>()) ||
           (type == "object" && value.is<picojson::object>()) || (type == "number" && number) ||
           (type == "integer" && number && std::floor(value.get<double>()) == value.get<double>());
  }

  static Result<std::vector<std::string>> types_of(const picojson::value& value,
                                                   const Place& place) {
    std::vector<std::string> types;
    const auto add = [&](const picojson::value& each) {
      const bool known =
          each.is<std::string>() && words_of_type().contains(each.get<std::string>());
      types.push_back(known ? each.get<std::string>() : "");
      return known && std::count(types.begin(), types.end(), types.back()) == 1;
    };
    bool good = true;
    if (value.is<picojson::array>()) {
      for (const picojson::value& each : value.get<picojson::array>()) {
        good = good && add(each);
      }
    } else {
      good = add(value);
    }
    if (!good || types.empty()) {
      return refused(place.path,
                     "type must be of string, integer, number, boolean, null, array, "
                     "object, each once");
    }
    return types;
  }

  Result<picojson::value> values(const std::string& word, const picojson::value& value,
                                 const picojson::object& object, const Place& place) {
    const bool list = word == "enum";
    if (list && (!value.is<picojson::array>() || value.get<picojson::array>().empty())) {
      return refused(place.path, "enum must be a list of values");
    }
    const picojson::array all = list ? value.get<picojson::array>() : picojson::array{value};
    if (const auto* type = member(object, "type")) {
      PDJOB_TRY(const auto types, types_of(*type, place));
      for (const picojson::value& each : all) {
        if (std::none_of(types.begin(), types.end(),
                         [&](const std::string& name) { return has_type(each, name); })) {
          return refused(place.path, word + " has a value that is not of its type");
        }
      }
    }
    for (const picojson::value& each : all) {
      if (each.serialize().size() > limits::kSchemaValueBytesMax) {
        return refused(place.path, word + " has a value of more than " +
                                       std::to_string(limits::kSchemaValueBytesMax) + " bytes");
      }
    }
    if (all.size() > limits::kSchemaValuesMax) {
      return refused(place.path,
                     "enum has more than " + std::to_string(limits::kSchemaValuesMax) + " values");
    }
    picojson::object out;
    out[word] = value;
    return picojson::value(out);
  }

  Result<picojson::value> options(const std::string& word, const picojson::value& value,
                                  const Place& place) {
    if (!value.is<picojson::array>() || value.get<picojson::array>().empty()) {
      return refused(place.path, word + " must be a list of schemas");
    }
    const auto& list = value.get<picojson::array>();
    if (word == "allOf" && list.size() > 1) {
      return refused(place.path, "allOf of several schemas is not supported");
    }
    if (word == "oneOf" &&
        !exclude_each_other(list, [this](const auto& each) { return follow(each); })) {
      return refused(place.path,
                     "the options of oneOf must differ in type, or in a required "
                     "property with const or enum; use anyOf where both may hold");
    }
    picojson::array out;
    for (size_t index = 0; index < list.size(); ++index) {
      PDJOB_TRY(picojson::value one,
                schema(list[index], place.beside("." + word + "[" + std::to_string(index) + "]")));
      out.push_back(std::move(one));
    }
    if (out.size() == 1) {
      return out.front();
    }
    return any_of(out);
  }

  static picojson::value any_of(const picojson::array& list) {
    picojson::object out;
    out["anyOf"] = picojson::value(list);
    return picojson::value(out);
  }

  Result<picojson::value> typed(const picojson::value& type, const picojson::object& object,
                                const Place& place) {
    PDJOB_TRY(const std::vector<std::string> types, types_of(type, place));
    Words words = {"type"};
    for (const std::string& each : types) {
      words.insert(words_of_type().at(each).begin(), words_of_type().at(each).end());
    }
    PDJOB_TRY_STATUS(only(object, place, words, " with this type"));
    picojson::array all;
    for (const std::string& each : types) {
      PDJOB_TRY(picojson::value one, of_type(each, object, place));
      all.push_back(std::move(one));
    }
    return all.size() == 1 ? all.front() : any_of(all);
  }

  Result<picojson::value> untyped(const picojson::object& object, const Place& place) {
    for (const std::string type : {"object", "array"}) {
      const Words& words = words_of_type().at(type);
      const bool has = std::any_of(object.begin(), object.end(),
                                   [&](const auto& each) { return words.contains(each.first); });
      if (has) {
        PDJOB_TRY_STATUS(only(object, place, words, " without a type"));
        return of_type(type, object, place);
      }
    }
    PDJOB_TRY_STATUS(only(object, place, {}, " without a type"));
    return picojson::value(picojson::object());
  }

  Result<picojson::value> of_type(const std::string& type, const picojson::object& in,
                                  const Place& place) {
    picojson::object out;
    out["type"] = text(type);
    Status read = ok();
    if (type == "string") {
      read = read_string(in, place, out);
    } else if (type == "integer" || type == "number") {
      read = read_number(type, in, place, out);
    } else if (type == "array") {
      read = read_array(in, place, out);
    } else if (type == "object") {
      read = read_object(in, place, out);
    }
    PDJOB_TRY_STATUS(read);
    return picojson::value(out);
  }

  // Reads a whole number 0 .. most; returns `absent` if the word is missing.
  static Result<int64_t> count(const picojson::object& in, const std::string& word,
                               const Place& place, int64_t most, int64_t absent) {
    const auto* value = member(in, word);
    if (value == nullptr) {
      return absent;
    }
    const bool number = value->is<int64_t>() || value->is<double>();
    const double wanted = number ? value->get<double>() : -1;
    if (!(wanted >= 0 && wanted <= static_cast<double>(most)) || std::floor(wanted) != wanted) {
      return refused(place.path, word + " must be 0 to " + std::to_string(most));
    }
    return static_cast<int64_t>(wanted);
  }

  Status read_counts(const picojson::object& in, const Place& place, const std::string& least,
                     const std::string& most, int64_t bound, picojson::object& out) {
    PDJOB_TRY(const int64_t low, count(in, least, place, bound, 0));
    PDJOB_TRY(const int64_t high, count(in, most, place, bound, -1));
    if (high >= 0 && high < low) {
      return refused(place.path, most + " is less than " + least);
    }
    repeated_ += static_cast<size_t>(std::max(low, high));
    if (repeated_ > limits::kSchemaRepetitionMax) {
      return refused(place.path, "all lengths together are more than " +
                                     std::to_string(limits::kSchemaRepetitionMax));
    }
    if (low > 0) {
      out[least] = picojson::value(low);
    }
    if (high >= 0) {
      out[most] = picojson::value(high);
    }
    return ok();
  }

  Status read_string(const picojson::object& in, const Place& place, picojson::object& out) {
    PDJOB_TRY_STATUS(
        read_counts(in, place, "minLength", "maxLength", limits::kSchemaLengthMax, out));
    const auto* pattern = member(in, "pattern");
    const auto* format = member(in, "format");
    const bool lengths = out.count("minLength") + out.count("maxLength") > 0;
    if ((pattern != nullptr) + (format != nullptr) + (lengths ? 1 : 0) > 1) {
      return refused(place.path, "pattern, format and a length are not supported together");
    }
    if (pattern != nullptr) {
      if (!pattern->is<std::string>()) {
        return refused(place.path, "pattern must be a text");
      }
      const auto translated = translate_pattern(pattern->get<std::string>());
      if (!translated) {
        return refused(place.path + ".pattern", translated.error().message);
      }
      out["pattern"] = text(*translated);
    }
    if (format != nullptr) {
      if (!format->is<std::string>() || !formats().contains(format->get<std::string>())) {
        return refused(place.path + ".format",
                       "must be date, time, date-time, duration, email, ipv4, ipv6, hostname, "
                       "uuid or uri");
      }
      out["format"] = *format;
    }
    return ok();
  }

  Status read_number(const std::string& type, const picojson::object& in, const Place& place,
                     picojson::object& out) {
    for (const std::string& word : words_of_type().at(type)) {
      const auto* value = member(in, word);
      if (value == nullptr) {
        continue;
      }
      if (!value->is<int64_t>() && !value->is<double>()) {
        return refused(place.path, word + " must be a number");
      }
      const double bound = value->get<double>();
      if (!(std::abs(bound) <= limits::kSchemaNumberMax)) {
        return refused(place.path, word + " must be at most 10^9, without its sign");
      }
      const bool whole = std::floor(bound) == bound;
      const double step = bound / kNumberStep;
      if (type == "integer" ? !whole : std::abs(step - std::round(step)) > 1e-3) {
        return refused(place.path, word + (type == "integer"
                                               ? " must be whole"
                                               : " must have at most six digits after the point"));
      }
      out[word] = whole ? picojson::value(static_cast<int64_t>(bound)) : *value;
    }
    return ok();
  }

  Status read_array(const picojson::object& in, const Place& place, picojson::object& out) {
    PDJOB_TRY_STATUS(read_counts(in, place, "minItems", "maxItems", limits::kSchemaItemsMax, out));
    if (const auto* unique = member(in, "uniqueItems");
        unique != nullptr && !(unique->is<bool>() && !unique->get<bool>())) {
      return refused(place.path, "uniqueItems is not supported");
    }
    const auto* items = member(in, "items");
    const auto* prefix = member(in, "prefixItems");
    if (items != nullptr && items->is<bool>() && !items->get<bool>()) {
      out["items"] = *items;
    } else if (items != nullptr) {
      PDJOB_TRY(out["items"], schema(*items, place.below(".items")));
    } else if (prefix == nullptr) {
      out["items"] = picojson::value(picojson::object());
    }
    if (prefix == nullptr) {
      return ok();
    }
    if (!prefix->is<picojson::array>()) {
      return refused(place.path, "prefixItems must be a list of schemas");
    }
    picojson::array list;
    for (const picojson::value& each : prefix->get<picojson::array>()) {
      PDJOB_TRY(picojson::value one,
                schema(each, place.below(".prefixItems[" + std::to_string(list.size()) + "]")));
      list.push_back(std::move(one));
    }
    out["prefixItems"] = picojson::value(list);
    return ok();
  }

  Status read_object(const picojson::object& in, const Place& place, picojson::object& out) {
    picojson::object properties;
    if (const auto* named = member(in, "properties")) {
      if (!named->is<picojson::object>()) {
        return refused(place.path, "properties must be an object");
      }
      for (const auto& name : named->get<picojson::object>().ordered_keys()) {
        if (name.size() > limits::kSchemaNameBytesMax) {
          return refused(place.path, "a property's name has more than " +
                                         std::to_string(limits::kSchemaNameBytesMax) + " bytes");
        }
        PDJOB_TRY(properties[name], schema(named->get<picojson::object>().at(name),
                                           place.below(".properties." + name)));
      }
    }
    if (const auto* required = member(in, "required")) {
      if (!required->is<picojson::array>()) {
        return refused(place.path, "required must be a list of names");
      }
      for (const picojson::value& each : required->get<picojson::array>()) {
        if (!each.is<std::string>() || properties.count(each.get<std::string>()) == 0) {
          return refused(place.path, "required names what is not in properties");
        }
      }
      out["required"] = *required;
    }
    const auto* more = member(in, "additionalProperties");
    if (more != nullptr && more->is<bool>()) {
      out["additionalProperties"] = *more;
    } else if (more != nullptr) {
      PDJOB_TRY(out["additionalProperties"], schema(*more, place.below(".additionalProperties")));
    } else {
      // Without `properties`, any object is allowed.
      out["additionalProperties"] =
          picojson::value(properties.empty() && in.count("properties") == 0);
    }
    if (!properties.empty()) {
      out["properties"] = picojson::value(properties);
    }
    return ok();
  }

  // Refuses a schema whose $ref leads back to itself for the same value: it would never end.
  Status check_cycles() const {
    enum class Mark : uint8_t { kNew, kOpen, kDone };
    std::vector<Mark> marks(refers_.size(), Mark::kNew);
    std::vector<std::pair<size_t, size_t>> way;  // Owner, and how many of its references are done.
    for (size_t start = 0; start < refers_.size(); ++start) {
      if (marks[start] == Mark::kNew) {
        way.emplace_back(start, 0);
        marks[start] = Mark::kOpen;
      }
      while (!way.empty()) {
        auto& [owner, walked] = way.back();
        if (walked == refers_[owner].size()) {
          marks[owner] = Mark::kDone;
          way.pop_back();
          continue;
        }
        const size_t next = refers_[owner][walked++];
        if (marks[next] == Mark::kOpen) {
          return refused(next == 0 ? "$" : definitions_[next - 1].first,
                         "$ref leads back to itself");
        }
        if (marks[next] == Mark::kNew) {
          marks[next] = Mark::kOpen;
          way.emplace_back(next, 0);
        }
      }
    }
    return ok();
  }

  const picojson::value& root_;
  std::vector<std::pair<std::string, const picojson::value*>> definitions_;  // Path and schema.
  std::map<std::string, size_t> index_of_;  // URI -> index in definitions_.
  // By owner: other owners that a $ref applies to the same value.
  std::vector<std::vector<size_t>> refers_ = {{}};
  size_t schemas_ = 0;
  size_t repeated_ = 0;
};

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

Result<std::string> normalise_json_schema(std::string_view schema) {
  const auto invalid = [](const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, "the JSON schema is " + what};
  };
  if (schema.size() > limits::kGrammarBytesMax) {
    return invalid("too long");
  }
  PDJOB_TRY_STATUS(check_depth(schema));
  try {
    picojson::value root;
    std::string problem;
    const auto* const end = schema.data() + schema.size();
    const auto* rest = picojson::parse(root, schema.data(), end, &problem);
    rest = std::find_if(rest, end,
                        [](char c) { return c != ' ' && c != '\n' && c != '\t' && c != '\r'; });
    if (!problem.empty() || rest != end) {
      return invalid("not JSON");
    }
    return SchemaReader(root).run();
  } catch (const std::exception&) {
    return invalid("not JSON");  // An invalid number, such as 1e999.
  }
}

}  // namespace pdjob::engine
