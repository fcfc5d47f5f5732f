#include "engine/schema/json_schema.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <initializer_list>
#include <set>
#include <utility>
#include <vector>

#include <picojson.h>

#include "common/limits.h"
#include "engine/schema/schema_containers.h"
#include "engine/schema/schema_json.h"
#include "engine/schema/schema_merge.h"
#include "engine/schema/schema_options.h"
#include "engine/schema/schema_references.h"
#include "engine/schema/schema_values.h"

namespace pdjob::engine {
namespace {

using picojson::array;
using picojson::object;
using picojson::value;

value text(std::string_view what) { return value(std::string(what)); }
value nothing() { return value(false); }
bool is_nothing(const value& read) { return read.is<bool>(); }

value any_of(const array& list) {
  if (list.size() == 1) {
    return list.front();
  }
  object out;
  out["anyOf"] = value(list);
  return value(out);
}

class SchemaReader {
 public:
  SchemaReader(const value& root, const SchemaDemand& demand)
      : root_(root), demand_(demand), notes_(demand.exact) {}

  Result<ReadSchema> run() {
    const Location top{.path = "$", .owner = 0, .head = true};
    PDJOB_TRY(value whole, demand_.object ? object_at_root(top) : schema(root_, top));
    object definitions;
    for (size_t index = 0; index < references_.targets().size(); ++index) {
      const SchemaReferences::Target target = references_.targets()[index];
      PDJOB_TRY(value read, schema(*target.schema, {target.path, index + 1, true}));
      if (is_nothing(read)) {
        return refused_schema(target.path, "no value fits");
      }
      definitions["d" + std::to_string(index)] = std::move(read);
    }
    PDJOB_TRY_STATUS(references_.check_cycles());
    if (is_nothing(whole)) {
      return refused_schema("$", "no value fits");
    }
    if (!definitions.empty()) {
      whole.get<object>()["$defs"] = value(definitions);
    }
    return ReadSchema{.text = whole.serialize(), .not_held = notes_.take()};
  }

 private:
  // The place of a schema. `owner`: 0 for the root, n for target n - 1 of a $ref. `head`: the
  // schema applies to the same value as its owner.
  struct Location {
    std::string path;
    size_t owner = 0;
    bool head = false;

    Location below(const std::string& step) const { return {path + step, owner, false}; }
    Location beside(const std::string& step) const { return {path + step, owner, head}; }
  };

  Result<value> object_at_root(const Location& top) {
    object only;
    only["type"] = text("object");
    return merged({value(only), root_}, top);
  }

  // Each of these returns the schema in fewer words, or nothing().
  Result<value> schema(const value& in, const Location& place) {
    if (++schemas_ > limits::kSchemaNodesMax) {
      return refused_schema(
          place.path,
          "there are more than " + std::to_string(limits::kSchemaNodesMax) + " schemas in it");
    }
    if (allows_nothing(in)) {
      return nothing();
    }
    if (in.is<bool>()) {
      return value(object());
    }
    if (!in.is<object>()) {
      return refused_schema(place.path, "must be an object, true or false");
    }
    return form(in.get<object>(), place);
  }

  Result<value> form(const object& in, const Location& place) {
    if (says(in, "nullable", true)) {
      return nullable(in, place);
    }
    const auto beside = [&in](std::initializer_list<std::string_view> words) {
      return std::any_of(in.begin(), in.end(), [&](const auto& each) {
        return constrains(each.first) && each.first != "nullable" &&
               std::find(words.begin(), words.end(), each.first) == words.end();
      });
    };
    if (const auto* reference = member(in, "$ref"); reference != nullptr && !beside({"$ref"})) {
      return follow(*reference, place);
    }
    if (member(in, "$ref") != nullptr || member(in, "allOf") != nullptr) {
      return merged({value(in)}, place);
    }
    for (const std::string word : {"anyOf", "oneOf"}) {
      if (const auto* list = member(in, word)) {
        return beside({word}) ? spread(word, *list, in, place) : options(word, *list, place);
      }
    }
    PDJOB_TRY_STATUS(note_logic(in, place));
    if (member(in, "const") != nullptr || member(in, "enum") != nullptr) {
      return values(in, place);
    }
    return typed(in, place);
  }

  Status note_logic(const object& in, const Location& place) {
    for (const std::string word : {"not", "if", "$dynamicRef", "$recursiveRef"}) {
      if (member(in, word) != nullptr) {
        PDJOB_TRY_STATUS(notes_.not_held(place.path, word, word + " is not supported"));
      }
    }
    return ok();
  }

  // OpenAPI's word for "or null".
  Result<value> nullable(const object& in, const Location& place) {
    object rest = in;
    rest.erase("nullable");
    object null;
    null["type"] = text("null");
    PDJOB_TRY(value read, schema(keep(value(rest)), place));
    return is_nothing(read) ? value(null) : any_of({read, value(null)});
  }

  Result<value> follow(const value& reference, const Location& place) {
    const std::string why =
        reference.is<std::string>() ? references_.obstacle(reference.get<std::string>()) : "";
    if (!why.empty()) {
      PDJOB_TRY_STATUS(notes_.not_held(place.path, "$ref", why));
      return value(object());
    }
    PDJOB_TRY(const size_t number, references_.find(reference, place.path));
    if (allows_nothing(references_.schema(number))) {
      return nothing();
    }
    if (place.head) {
      references_.applies(place.owner, number);
    }
    object out;
    out["$ref"] = text(number == 0 ? "#" : "#/$defs/d" + std::to_string(number - 1));
    return value(out);
  }

  Result<value> merged(const array& all, const Location& place) {
    PDJOB_TRY(value one, merger_.merge(all, place.path));
    return schema(keep(std::move(one)), place);
  }

  const value& keep(value made) { return made_.emplace_back(std::move(made)); }

  // Follows every $ref, and returns the schema at the end; null if there is none.
  const object* followed(const value& in) {
    const value* at = &in;
    for (size_t hops = 0; hops <= limits::kSchemaDepthMax && at->is<object>(); ++hops) {
      const auto* reference = member(at->get<object>(), "$ref");
      if (reference == nullptr) {
        return &at->get<object>();
      }
      const auto number = references_.find(*reference, "$");
      if (!number) {
        return nullptr;
      }
      at = &references_.schema(*number);
    }
    return nullptr;
  }

  // What stands beside anyOf or oneOf applies to each option.
  Result<value> spread(const std::string& word, const value& list, const object& in,
                       const Location& place) {
    if (!list.is<array>()) {
      return refused_schema(place.path, word + " must be a list of schemas");
    }
    object rest = in;
    rest.erase(word);
    array both;
    for (const value& option : list.get<array>()) {
      PDJOB_TRY(value one, merger_.merge({value(rest), option}, place.path));
      both.push_back(std::move(one));
    }
    return options(word, keep(value(both)), place);
  }

  Result<value> options(const std::string& word, const value& given, const Location& place) {
    if (!given.is<array>() || given.get<array>().empty()) {
      return refused_schema(place.path, word + " must be a list of schemas");
    }
    const auto& list = given.get<array>();
    if (word == "oneOf" && list.size() > 1 &&
        !exclude_each_other(list, [this](const auto& each) { return followed(each); })) {
      PDJOB_TRY_STATUS(
          notes_.not_held(place.path, "oneOf",
                          "the options of oneOf must differ in type, or in a required property "
                          "with const or enum; use anyOf where both may hold"));
    }
    array out;
    for (size_t index = 0; index < list.size(); ++index) {
      PDJOB_TRY(value one,
                schema(list[index], place.beside("." + word + "[" + std::to_string(index) + "]")));
      if (!is_nothing(one)) {
        out.push_back(std::move(one));
      }
    }
    return out.empty() ? nothing() : any_of(out);
  }

  static Result<std::vector<std::string>> types_of(const value& given, const Location& place) {
    static const std::set<std::string> known = {"string", "integer", "number", "array",
                                                "object", "boolean", "null"};
    std::vector<std::string> types;
    for (const value& each : given.is<array>() ? given.get<array>() : array{given}) {
      if (!each.is<std::string>() || !known.contains(each.get<std::string>()) ||
          std::count(types.begin(), types.end(), each.get<std::string>()) > 0) {
        types.clear();
        break;
      }
      types.push_back(each.get<std::string>());
    }
    if (types.empty()) {
      return refused_schema(place.path,
                            "type must be of string, integer, number, boolean, null, array, "
                            "object, each once");
    }
    return types;
  }

  Result<value> values(const object& in, const Location& place) {
    const auto* list = member(in, "enum");
    const auto* only = member(in, "const");
    if (list != nullptr && !list->is<array>()) {
      return refused_schema(place.path, "enum must be a list of values");
    }
    array all = only != nullptr ? array{*only} : list->get<array>();
    std::vector<std::string> types;
    if (const auto* type = member(in, "type")) {
      PDJOB_TRY(types, types_of(*type, place));
    }
    array fit = values_that_fit(all, in, types);
    if (fit.empty() && !all.empty() && !types.empty()) {
      // Some generators write the numbers of an enum beside the type of strings.
      PDJOB_TRY_STATUS(notes_.not_held(
          place.path, "type",
          "no value of " + std::string(only != nullptr ? "const" : "enum") + " is of its type"));
      fit = all;
    }
    if (member(in, "pattern") != nullptr) {
      PDJOB_TRY_STATUS(
          notes_.not_held(place.path, "pattern", "pattern is not supported beside enum"));
    }
    if (fit.size() > limits::kSchemaValuesMax) {
      return refused_schema(
          place.path, "enum has more than " + std::to_string(limits::kSchemaValuesMax) + " values");
    }
    for (const value& each : fit) {
      if (each.serialize().size() > limits::kSchemaValueBytesMax) {
        return refused_schema(
            place.path,
            "a value has more than " + std::to_string(limits::kSchemaValueBytesMax) + " bytes");
      }
    }
    if (fit.empty()) {
      return nothing();
    }
    object out;
    if (only != nullptr) {
      out["const"] = fit.front();
    } else {
      out["enum"] = value(fit);
    }
    return value(out);
  }

  Result<value> typed(const object& in, const Location& place) {
    std::vector<std::string> types;
    if (const auto* type = member(in, "type")) {
      PDJOB_TRY(types, types_of(*type, place));
    } else {
      types = types_of_words(in);
    }
    if (types.empty()) {
      return value(object());
    }
    array all;
    for (const std::string& each : types) {
      PDJOB_TRY(value one, of_type(each, in, place));
      if (!is_nothing(one)) {
        all.push_back(std::move(one));
      }
    }
    return all.empty() ? nothing() : any_of(all);
  }

  // Without a type, the words say which types are meant.
  static std::vector<std::string> types_of_words(const object& in) {
    std::vector<std::string> types;
    for (const std::string type : {"object", "array", "string", "number"}) {
      const auto& words = words_of_type(type);
      const bool meant = std::any_of(words.begin(), words.end(), [&](const std::string& word) {
        return word != "format" && member(in, word) != nullptr;
      });
      if (meant) {
        types.push_back(type);
      }
    }
    return types;
  }

  Result<value> of_type(const std::string& type, const object& in, const Location& place) {
    object out;
    out["type"] = text(type);
    bool none = false;
    Status read = ok();
    if (type == "string") {
      read = read_string_words(in, place.path, notes_, counts_, out);
    } else if (type == "integer" || type == "number") {
      read = read_number_words(type, in, place.path, notes_, out, none);
    } else if (type == "array") {
      read = read_array_words(in, context(place), out, none);
    } else if (type == "object") {
      read = read_object_words(in, context(place), out, none);
    }
    PDJOB_TRY_STATUS(read);
    return none ? nothing() : value(out);
  }

  SchemaContext context(const Location& place) {
    return {.path = place.path,
            .below =
                [this, place](const value& schema_below, const std::string& step) {
                  return schema(schema_below, place.below(step));
                },
            .notes = notes_,
            .counts = counts_};
  }

  const value& root_;
  const SchemaDemand demand_;
  SchemaNotes notes_;
  SchemaCounts counts_{notes_};
  SchemaReferences references_{root_};
  SchemaMerger merger_{references_, notes_};
  std::deque<value> made_;  // Schemas that were put together, until the end.
  size_t schemas_ = 0;
};

}  // namespace

Result<ReadSchema> normalise_json_schema(std::string_view schema, const SchemaDemand& demand) {
  PDJOB_TRY(const value root, parse_schema(schema));
  try {
    return SchemaReader(root, demand).run();
  } catch (const std::exception&) {
    return Error{ErrorCode::kInvalidArgument, "the JSON schema cannot be read"};
  }
}

}  // namespace pdjob::engine
