#include "engine/schema/schema_options.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/schema/schema_json.h"

namespace pdjob::engine {
namespace {

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

using Names = std::optional<std::set<std::string>>;

bool apart(const Names& one, const Names& other) {
  return one && other && std::none_of(one->begin(), one->end(), [&](const std::string& each) {
           return other->contains(each);
         });
}

bool apart_by_property(const picojson::object& one, const picojson::object& other,
                       const FollowRef& follow) {
  const auto* properties = member(one, "properties");
  if (properties == nullptr || !properties->is<picojson::object>()) {
    return false;
  }
  const auto& named = properties->get<picojson::object>();
  return std::any_of(named.begin(), named.end(), [&](const auto& property) {
    return apart(values_of_property(one, property.first, follow),
                 values_of_property(other, property.first, follow));
  });
}

// True if no output of `one` has all properties that `other` requires. An output has only the
// properties that its schema names.
bool lacks_what_is_required(const picojson::object& one, const picojson::object& other) {
  const auto* more = member(one, "additionalProperties");
  const bool closed = more == nullptr || (more->is<bool>() && !more->get<bool>());
  const auto* properties = member(one, "properties");
  const auto* required = member(other, "required");
  if (!closed || properties == nullptr || !properties->is<picojson::object>() ||
      required == nullptr || !required->is<picojson::array>() ||
      types_of(other) != std::set<std::string>{"object"}) {
    return false;
  }
  const auto& names = required->get<picojson::array>();
  return std::any_of(names.begin(), names.end(), [&](const picojson::value& name) {
    return name.is<std::string>() &&
           properties->get<picojson::object>().count(name.get<std::string>()) == 0;
  });
}

bool apart(const picojson::object& one, const picojson::object& other, const FollowRef& follow) {
  return apart(types_of(one), types_of(other)) || apart(values_of(one), values_of(other)) ||
         apart_by_property(one, other, follow) ||
         (lacks_what_is_required(one, other) && lacks_what_is_required(other, one));
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
  for (size_t i = 0; i < schemas.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!apart(*schemas[i], *schemas[j], follow)) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace pdjob::engine
