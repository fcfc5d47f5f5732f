#include "engine/schema/schema_containers.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/limits.h"
#include "engine/schema/pattern.h"

namespace pdjob::engine {
namespace {

using picojson::array;
using picojson::object;
using picojson::value;

bool is_bool(const value* given, bool what) {
  return given != nullptr && given->is<bool>() && given->get<bool>() == what;
}
// additionalProperties: no other property is allowed.
bool is_closed(const value* given) { return is_bool(given, false); }
bool no_value_fits(const value& read) { return read.is<bool>(); }

class ContainerReader {
 public:
  explicit ContainerReader(const SchemaContext& context) : context_(context) {}

  Status read_array(const object& in, object& out, bool& none) {
    PDJOB_TRY_STATUS(context_.counts.read(in, context_.path, "minItems", "maxItems",
                                          limits::kSchemaItemsMax, out));
    const auto* unique = member(in, "uniqueItems");
    const auto* most = member(out, "maxItems");
    if (is_bool(unique, true) && (most == nullptr || most->get<int64_t>() > 1)) {
      PDJOB_TRY_STATUS(
          context_.notes.not_held(context_.path, "uniqueItems", "uniqueItems is not supported"));
    }
    if (member(in, "contains") != nullptr) {
      PDJOB_TRY_STATUS(
          context_.notes.not_held(context_.path, "contains", "contains is not supported"));
    }
    // Before draft 2020-12, a tuple is a list of items, and additionalItems are the rest.
    const auto* items = member(in, "items");
    const bool old_tuple = items != nullptr && items->is<array>();
    const auto* prefix = old_tuple ? items : member(in, "prefixItems");
    const auto* rest = old_tuple ? member(in, "additionalItems") : items;
    rest = rest == nullptr && prefix != nullptr ? member(in, "unevaluatedItems") : rest;
    PDJOB_TRY(const bool closed, read_prefix(prefix, out, none));
    if (closed || (rest != nullptr && allows_nothing(*rest))) {
      return close_array(out, none);
    }
    if (rest != nullptr) {
      PDJOB_TRY(out["items"], context_.below(*rest, ".items"));
      return no_value_fits(out.at("items")) ? close_array(out, none) : ok();
    }
    if (prefix == nullptr) {
      out["items"] = value(object());
    }
    return ok();
  }

  Status read_object(const object& in, object& out, bool& none) {
    for (const std::string word : {"dependentRequired", "dependentSchemas", "dependencies"}) {
      if (member(in, word) != nullptr) {
        PDJOB_TRY_STATUS(context_.notes.not_held(context_.path, word, word + " is not supported"));
      }
    }
    PDJOB_TRY(std::vector<std::string> required, required_of(in));
    object properties;
    PDJOB_TRY_STATUS(read_properties(in, properties, required, none));
    PDJOB_TRY_STATUS(read_more(in, properties, required, out));
    write_required(required, out);
    PDJOB_TRY_STATUS(read_sizes(in, properties, out, none));
    if (!properties.empty()) {
      out["properties"] = value(properties);
    }
    return ok();
  }

 private:
  // No item may follow those of prefixItems.
  static Status close_array(object& out, bool& none) {
    const auto* prefix = member(out, "prefixItems");
    const auto fixed = static_cast<int64_t>(prefix == nullptr ? 0 : prefix->get<array>().size());
    const auto* least = member(out, "minItems");
    none = none || (least != nullptr && least->get<int64_t>() > fixed);
    if (fixed == 0) {
      out["items"] = value(object());
      out["maxItems"] = value(int64_t{0});
    } else {
      out["items"] = value(false);
    }
    return ok();
  }

  // Returns whether an item of them allows no value, so that the array ends before it.
  Result<bool> read_prefix(const value* prefix, object& out, bool& none) {
    if (prefix == nullptr) {
      return false;
    }
    if (!prefix->is<array>()) {
      return refused_schema(context_.path, "prefixItems must be a list of schemas");
    }
    array list;
    bool closed = false;
    for (const value& each : prefix->get<array>()) {
      PDJOB_TRY(value one,
                context_.below(each, ".prefixItems[" + std::to_string(list.size()) + "]"));
      closed = no_value_fits(one);
      if (closed) {
        break;
      }
      list.push_back(std::move(one));
    }
    if (!list.empty()) {
      out["prefixItems"] = value(list);
    }
    const auto* least = member(out, "minItems");
    none = closed && least != nullptr && least->get<int64_t>() > static_cast<int64_t>(list.size());
    return closed;
  }

  Result<std::vector<std::string>> required_of(const object& in) const {
    std::vector<std::string> names;
    const auto* required = member(in, "required");
    if (required == nullptr || required->is<bool>()) {
      return names;  // Draft 3: a property says of itself that it is required.
    }
    if (!required->is<array>()) {
      return refused_schema(context_.path, "required must be a list of names");
    }
    for (const value& each : required->get<array>()) {
      if (!each.is<std::string>()) {
        return refused_schema(context_.path, "required must be a list of names");
      }
      names.push_back(each.get<std::string>());
    }
    return names;
  }

  // A property that allows no value is left out.
  Status read_properties(const object& in, object& properties,
                         const std::vector<std::string>& required, bool& none) {
    const auto* named = member(in, "properties");
    if (named == nullptr) {
      return ok();
    }
    if (named->is<array>() && named->get<array>().empty()) {
      return ok();  // PHP's way to write an empty object.
    }
    if (!named->is<object>()) {
      return refused_schema(context_.path, "properties must be an object");
    }
    for (const std::string& name : named->get<object>().ordered_keys()) {
      if (name.size() > limits::kSchemaNameBytesMax) {
        return refused_schema(context_.path, "a property's name has more than " +
                                                 std::to_string(limits::kSchemaNameBytesMax) +
                                                 " bytes");
      }
      PDJOB_TRY(value one, context_.below(named->get<object>().at(name), ".properties." + name));
      if (!no_value_fits(one)) {
        properties[name] = std::move(one);
      } else {
        none = none || std::find(required.begin(), required.end(), name) != required.end();
      }
    }
    return ok();
  }

  // Properties that `properties` does not name. XGrammar takes one rule for their names, and only
  // beside no named properties, so that no name is written twice.
  Status read_more(const object& in, object& properties, std::vector<std::string>& required,
                   object& out) {
    const auto* given = member(in, "additionalProperties");
    given = given == nullptr ? member(in, "unevaluatedProperties") : given;
    const auto* names = member(in, "propertyNames");
    const auto* patterns = member(in, "patternProperties");
    value more(member(in, "properties") == nullptr && patterns == nullptr);
    if (given != nullptr) {
      PDJOB_TRY(more, context_.below(*given, ".additionalProperties"));
    }
    const bool any = more.is<object>() && more.get<object>().empty();
    out["additionalProperties"] = any ? value(true) : more;
    if (names != nullptr) {
      PDJOB_TRY_STATUS(read_names(*names, properties, out));
    }
    PDJOB_TRY_STATUS(name_required(required, given, properties, out));
    return patterns == nullptr ? ok() : read_patterns(*patterns, properties, out);
  }

  // A required name that properties lack is of the additional ones.
  Status name_required(std::vector<std::string>& required, const value* given, object& properties,
                       const object& out) {
    std::vector<std::string> kept;
    for (const std::string& name : required) {
      if (properties.count(name) > 0) {
        kept.push_back(name);
        continue;
      }
      const value& more = out.at("additionalProperties");
      if (is_closed(&more) && given != nullptr) {
        PDJOB_TRY_STATUS(context_.notes.not_held(
            context_.path, "required", "required names what additionalProperties does not allow"));
        continue;
      }
      properties[name] = more.is<object>() ? more : value(object());
      kept.push_back(name);
    }
    required = std::move(kept);
    return ok();
  }

  Status read_names(const value& names, object& properties, object& out) {
    const value more = out.at("additionalProperties");
    if (is_closed(&more)) {
      return ok();
    }
    PDJOB_TRY(const value read, context_.below(names, ".propertyNames"));
    if (no_value_fits(read)) {
      out["additionalProperties"] = value(false);
      return ok();
    }
    const auto& rule = read.get<object>();
    const auto* listed = member(rule, "enum");
    const auto* only = member(rule, "const");
    if (listed != nullptr || only != nullptr) {
      for (const value& name : listed != nullptr ? listed->get<array>() : array{*only}) {
        if (name.is<std::string>() && properties.count(name.get<std::string>()) == 0) {
          properties[name.get<std::string>()] = more.is<object>() ? more : value(object());
        }
      }
      out["additionalProperties"] = value(false);
      return ok();
    }
    const auto* type = member(rule, "type");
    const bool plain = rule.empty() || (type != nullptr && rule.size() == 1);
    if (plain) {
      return ok();
    }
    if (properties.empty() && type != nullptr && type->to_str() == "string") {
      out["propertyNames"] = read;
      return ok();
    }
    out["additionalProperties"] = value(false);
    return ok();
  }

  Status read_patterns(const value& patterns, const object& properties, object& out) {
    if (!patterns.is<object>()) {
      return refused_schema(context_.path, "patternProperties must be an object");
    }
    const auto& all = patterns.get<object>();
    if (all.empty()) {
      return ok();
    }
    if (all.size() > 1 || !properties.empty()) {
      PDJOB_TRY_STATUS(context_.notes.not_held(context_.path, "patternProperties",
                                               "patternProperties is not supported beside other "
                                               "properties"));
      return ok();
    }
    const std::string& pattern = all.ordered_keys().front();
    PDJOB_TRY(value of_them, context_.below(all.at(pattern), ".patternProperties"));
    const auto translated = translate_pattern(pattern);
    if (!translated) {
      return context_.notes.not_held(context_.path, "patternProperties",
                                     "a name of patternProperties " + translated.error().message);
    }
    if (no_value_fits(of_them)) {
      return context_.notes.not_held(context_.path, "patternProperties",
                                     "patternProperties must allow a value");
    }
    if (translated->empty()) {
      out["additionalProperties"] = std::move(of_them);
      return ok();
    }
    object one;
    one[*translated] = std::move(of_them);
    out["patternProperties"] = value(one);
    out["additionalProperties"] = value(false);
    return ok();
  }

  static void write_required(const std::vector<std::string>& required, object& out) {
    array names;
    for (const std::string& name : required) {
      if (std::none_of(names.begin(), names.end(),
                       [&](const value& known) { return known.to_str() == name; })) {
        names.push_back(value(name));
      }
    }
    if (!names.empty()) {
      out["required"] = value(names);
    }
  }

  // XGrammar counts a name that is written twice as two, so only what this cannot break is held.
  Status read_sizes(const object& in, const object& properties, object& out, bool& none) {
    object sizes;
    PDJOB_TRY_STATUS(context_.counts.read(in, context_.path, "minProperties", "maxProperties",
                                          limits::kSchemaItemsMax, sizes));
    const auto* required = member(out, "required");
    const auto fixed =
        static_cast<int64_t>(required == nullptr ? 0 : required->get<array>().size());
    const bool open = !is_closed(member(out, "additionalProperties")) ||
                      member(out, "patternProperties") != nullptr;
    if (const auto* least = member(sizes, "minProperties");
        least != nullptr && least->get<int64_t>() > fixed) {
      if (open && least->get<int64_t>() > fixed + (properties.empty() ? 1 : 0)) {
        PDJOB_TRY_STATUS(
            context_.notes.not_held(context_.path, "minProperties",
                                    "minProperties is not supported with these properties"));
      } else {
        none = none || (!open && least->get<int64_t>() > static_cast<int64_t>(properties.size()));
        out["minProperties"] = *least;
      }
    }
    if (const auto* most = member(sizes, "maxProperties")) {
      out["maxProperties"] = *most;
    }
    return ok();
  }

  const SchemaContext& context_;
};

}  // namespace

Status read_array_words(const object& in, const SchemaContext& context, object& out, bool& none) {
  return ContainerReader(context).read_array(in, out, none);
}

Status read_object_words(const object& in, const SchemaContext& context, object& out, bool& none) {
  return ContainerReader(context).read_object(in, out, none);
}

}  // namespace pdjob::engine
