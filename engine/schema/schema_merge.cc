#include "engine/schema/schema_merge.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/limits.h"
#include "engine/schema/pattern.h"

namespace pdjob::engine {
namespace {

using picojson::array;
using picojson::object;
using picojson::value;

constexpr size_t kOptionsMax = 64;  // Of two anyOf put together.

// No value fits: the word that merges into every schema and stays.
void allow_nothing(object& into) { into["not"] = value(true); }

value both(const value& one, const value& other) {
  object out;
  out["allOf"] = value(array{one, other});
  return value(out);
}

array as_list(const value& one_or_list) {
  return one_or_list.is<array>() ? one_or_list.get<array>() : array{one_or_list};
}

// Types that both allow; an integer is a number, too.
array types_of_both(const array& one, const array& other) {
  array out;
  const auto has = [](const array& list, const std::string& name) {
    return std::any_of(list.begin(), list.end(),
                       [&](const value& each) { return each.to_str() == name; });
  };
  for (const value& each : one) {
    const std::string name = each.to_str();
    if (has(other, name) || (name == "integer" && has(other, "number"))) {
      out.push_back(each);
    } else if (name == "number" && has(other, "integer") && !has(one, "integer")) {
      out.emplace_back("integer");
    }
  }
  return out;
}

array values_of_both(const array& one, const array& other) {
  std::set<std::string> known;
  for (const value& each : other) {
    known.insert(each.serialize());
  }
  array out;
  std::copy_if(one.begin(), one.end(), std::back_inserter(out),
               [&](const value& each) { return known.contains(each.serialize()); });
  return out;
}

// A property that only one of two objects names must be allowed by the other one's
// additionalProperties.
void bound_properties(object& of, const object& by) {
  const auto* named = member(of, "properties");
  const auto* more = member(by, "additionalProperties");
  const auto* others = member(by, "properties");
  if (named == nullptr || !named->is<object>() || more == nullptr ||
      (more->is<bool>() && more->get<bool>()) || member(by, "patternProperties") != nullptr) {
    return;
  }
  object bounded;
  for (const std::string& name : named->get<object>().ordered_keys()) {
    const value& schema = named->get<object>().at(name);
    const bool known =
        others != nullptr && others->is<object>() && others->get<object>().count(name) > 0;
    bounded[name] = known ? schema : more->is<bool>() ? value(false) : both(schema, *more);
  }
  of["properties"] = value(bounded);
}

void add_properties(object& into, const object& properties) {
  object all = into.at("properties").get<object>();
  for (const std::string& name : properties.ordered_keys()) {
    const auto* before = member(all, name);
    all[name] = before == nullptr ? properties.at(name) : both(*before, properties.at(name));
  }
  into["properties"] = value(all);
}

bool is_lower_bound(const std::string& word) {
  return word == "minimum" || word == "exclusiveMinimum" || word == "minLength" ||
         word == "minItems" || word == "minProperties";
}
bool is_upper_bound(const std::string& word) {
  return word == "maximum" || word == "exclusiveMaximum" || word == "maxLength" ||
         word == "maxItems" || word == "maxProperties";
}

}  // namespace

Result<value> SchemaMerger::merge(const array& schemas, const std::string& path) {
  object into;
  for (const value& each : schemas) {
    PDJOB_TRY_STATUS(add(into, each, path, 0));
  }
  return allows_nothing(value(into)) ? value(false) : value(into);
}

Status SchemaMerger::add(object& into, const value& schema, const std::string& path, size_t depth) {
  if (allows_nothing(schema)) {
    allow_nothing(into);
    return ok();
  }
  if (schema.is<bool>()) {
    return ok();
  }
  if (!schema.is<object>()) {
    return refused_schema(path, "must be an object, true or false");
  }
  if (++merged_ > limits::kSchemaMergesMax || depth > limits::kSchemaDepthMax) {
    return refused_schema(
        path, "$ref leads back to itself, or allOf and $ref put too many schemas together");
  }
  object part = schema.get<object>();
  if (const auto* reference = member(part, "$ref")) {
    const std::string why =
        reference->is<std::string>() ? references_.obstacle(reference->get<std::string>()) : "";
    if (!why.empty()) {
      PDJOB_TRY_STATUS(notes_.not_held(path, "$ref", why));
    } else {
      PDJOB_TRY(const size_t number, references_.find(*reference, path));
      PDJOB_TRY_STATUS(add(into, references_.schema(number), path, depth + 1));
    }
  }
  if (const auto* all = member(part, "allOf")) {
    if (!all->is<array>()) {
      return refused_schema(path, "allOf must be a list of schemas");
    }
    for (const value& each : all->get<array>()) {
      PDJOB_TRY_STATUS(add(into, each, path, depth + 1));
    }
  }
  part.erase("$ref");
  part.erase("allOf");
  bound_properties(into, part);
  bound_properties(part, into);
  for (const std::string& word : part.ordered_keys()) {
    if (constrains(word)) {
      PDJOB_TRY_STATUS(add_word(into, word, part.at(word), path));
    }
  }
  return ok();
}

Status SchemaMerger::add_word(object& into, const std::string& word, const value& value_of_word,
                              const std::string& path) {
  const auto* before = member(into, word);
  if (word == "const" || word == "enum") {
    const array values = word == "const" ? array{value_of_word} : as_list(value_of_word);
    const auto* known = member(into, "enum");
    const array left = known == nullptr ? values : values_of_both(as_list(*known), values);
    into["enum"] = value(left);
    if (left.empty()) {
      allow_nothing(into);
    }
    return ok();
  }
  if (before == nullptr) {
    into[word] = value_of_word;
    return ok();
  }
  if (before->serialize() == value_of_word.serialize()) {
    return ok();
  }
  if (word == "type") {
    const array left = types_of_both(as_list(*before), as_list(value_of_word));
    into["type"] = left.size() == 1 ? left.front() : value(left);
    if (left.empty()) {
      allow_nothing(into);
    }
    return ok();
  }
  if (word == "anyOf" || word == "oneOf") {
    return add_options(into, word, value_of_word, path);
  }
  if (word == "properties" && before->is<object>() && value_of_word.is<object>()) {
    add_properties(into, value_of_word.get<object>());
    return ok();
  }
  if (word == "required" && before->is<array>() && value_of_word.is<array>()) {
    array all = before->get<array>();
    for (const value& each : value_of_word.get<array>()) {
      if (std::none_of(all.begin(), all.end(),
                       [&](const value& known) { return known.to_str() == each.to_str(); })) {
        all.push_back(each);
      }
    }
    into["required"] = value(all);
    return ok();
  }
  if ((is_lower_bound(word) || is_upper_bound(word)) && is_number(*before) &&
      is_number(value_of_word)) {
    const bool stricter = (number_of(value_of_word) > number_of(*before)) == is_lower_bound(word);
    into[word] = stricter ? value_of_word : *before;
    return ok();
  }
  const bool schemas = word == "additionalProperties" || word == "items" ||
                       word == "propertyNames" || word == "unevaluatedProperties";
  if (schemas && !before->is<array>() && !value_of_word.is<array>()) {
    into[word] = both(*before, value_of_word);
    return ok();
  }
  if (word == "uniqueItems" || word == "nullable") {
    into[word] = value(word == "uniqueItems");
    return ok();
  }
  if (word == "format") {
    return ok();  // An annotation.
  }
  if (word == "pattern" && before->is<std::string>() && value_of_word.is<std::string>()) {
    if (auto joined = join_patterns(before->get<std::string>(), value_of_word.get<std::string>())) {
      into[word] = value(*std::move(joined));
      return ok();
    }
  }
  return notes_.not_held(path, word, "different values of " + word + " apply to one value");
}

// Every option of one with every option of the other.
Status SchemaMerger::add_options(object& into, const std::string& word, const value& more,
                                 const std::string& path) {
  const array one = as_list(into.at(word));
  const array other = as_list(more);
  if (one.size() * other.size() > kOptionsMax) {
    return notes_.not_held(path, word, "two " + word + " with many options apply to one value");
  }
  array all;
  for (const value& first : one) {
    for (const value& second : other) {
      all.push_back(both(first, second));
    }
  }
  into[word] = value(all);
  return ok();
}

}  // namespace pdjob::engine
