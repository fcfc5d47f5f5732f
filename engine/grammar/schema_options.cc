#include "engine/grammar/schema_options.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace pdjob::engine {
namespace {

const picojson::value* member(const picojson::object& object, const std::string& name) {
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &found->second;
}

// Only strings and booleans: as numbers, 1 and 1.0 are equal.
std::optional<std::set<std::string>> values_of(const picojson::object& schema) {
  picojson::array values;
  if (const auto* one = member(schema, "const")) {
    values.push_back(*one);
  } else if (const auto* list = member(schema, "enum"); list && list->is<picojson::array>()) {
    values = list->get<picojson::array>();
  }
  std::set<std::string> out;
  for (const picojson::value& value : values) {
    if (!value.is<std::string>() && !value.is<bool>() && !value.is<picojson::null>()) {
      return std::nullopt;
    }
    out.insert(value.serialize());
  }
  return out.empty() ? std::nullopt : std::optional(out);
}

std::optional<std::set<std::string>> types_of(const picojson::object& schema) {
  const auto* type = member(schema, "type");
  std::set<std::string> out;
  if (type != nullptr && type->is<std::string>()) {
    out.insert(type->get<std::string>());
  } else if (type != nullptr && type->is<picojson::array>()) {
    for (const picojson::value& each : type->get<picojson::array>()) {
      out.insert(each.to_str());
    }
  }
  if (out.contains("integer")) {
    out.insert("number");  // An integer is a number, too.
  }
  return out.empty() ? std::nullopt : std::optional(out);
}

std::optional<std::set<std::string>> values_of_property(const picojson::object& schema,
                                                        const std::string& name,
                                                        const FollowRef& follow) {
  const auto* required = member(schema, "required");
  const auto* properties = member(schema, "properties");
  const auto types = types_of(schema);
  if (required == nullptr || !required->is<picojson::array>() || properties == nullptr ||
      !properties->is<picojson::object>() || types != std::set<std::string>{"object"}) {
    return std::nullopt;
  }
  const auto& names = required->get<picojson::array>();
  const auto* property = member(properties->get<picojson::object>(), name);
  if (property == nullptr || std::none_of(names.begin(), names.end(), [&](const auto& each) {
        return each.to_str() == name;
      })) {
    return std::nullopt;
  }
  const picojson::object* schema_of_it = follow(*property);
  return schema_of_it == nullptr ? std::nullopt : values_of(*schema_of_it);
}

bool apart(const std::vector<std::optional<std::set<std::string>>>& sets) {
  std::set<std::string> seen;
  for (const auto& set : sets) {
    if (!set) {
      return false;
    }
    for (const std::string& each : *set) {
      if (!seen.insert(each).second) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

bool exclude_each_other(const picojson::array& options, const FollowRef& follow) {
  std::vector<const picojson::object*> schemas;
  for (const picojson::value& option : options) {
    schemas.push_back(follow(option));
    if (schemas.back() == nullptr) {
      return false;
    }
  }
  const auto by = [&](const auto& words) {
    std::vector<std::optional<std::set<std::string>>> sets;
    for (const picojson::object* schema : schemas) {
      sets.push_back(words(*schema));
    }
    return apart(sets);
  };
  if (by(types_of) || by(values_of)) {
    return true;
  }
  const auto* properties = schemas.empty() ? nullptr : member(*schemas.front(), "properties");
  if (properties == nullptr || !properties->is<picojson::object>()) {
    return false;
  }
  const auto& named = properties->get<picojson::object>();
  return std::any_of(named.begin(), named.end(), [&](const auto& property) {
    return by([&](const picojson::object& schema) {
      return values_of_property(schema, property.first, follow);
    });
  });
}

}  // namespace pdjob::engine
