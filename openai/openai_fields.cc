#include "openai/openai_fields.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <simdjson.h>

#include "common/limits.h"
#include "common/parse_number.h"
#include "openai/json/json_number.h"
#include "openai/json/json_syntax_error.h"

namespace pdjob::openai {
namespace {

namespace dom = simdjson::dom;

constexpr size_t kQuotedBytesMax = 60;

// Describes the given value for an error message.
std::string describe(const dom::element& value) {
  if (value.is_object()) {
    return "an object";
  }
  if (value.is_array()) {
    return "a list";
  }
  std::string text = simdjson::minify(value);
  return text.size() > kQuotedBytesMax ? "a string of " + std::to_string(text.size()) + " bytes"
                                       : text;
}

// Reads numbers like json_integer(), which reads their text.
std::optional<int64_t> as_integer(const dom::element& value) {
  int64_t integer = 0;
  if (value.get(integer) == simdjson::SUCCESS) {
    return integer;
  }
  double number = 0;
  return value.is_double() && value.get(number) == simdjson::SUCCESS ? whole_number(number)
                                                                     : std::nullopt;
}

// `json`: a number, or a string in quotes.
bool is_value(const dom::element& value, std::string_view json) {
  double number = 0;
  return value.get(number) == simdjson::SUCCESS ? parse_number<double>(json) == number
                                                : simdjson::minify(value) == json;
}

// True if the reader would need much more memory than the body has. Each comma outside of strings
// adds one value.
bool has_too_many_values(std::string_view body) {
  if (body.size() <= limits::kJsonValuesMax) {
    return false;
  }
  size_t commas = 0;
  bool in_string = false;
  for (size_t at = 0; at < body.size(); ++at) {
    const char c = body[at];
    if (c == '"') {
      in_string = !in_string;
    } else if (in_string) {
      at += c == '\\' ? 1 : 0;
    } else {
      commas += c == ',' ? 1 : 0;
    }
  }
  return commas >= limits::kJsonValuesMax;
}

std::string why_not_json(simdjson::error_code error, std::string_view body) {
  switch (error) {
    case simdjson::EMPTY:
      return "is empty, must be a JSON object";
    case simdjson::DEPTH_ERROR:
      return "is nested deeper than " + std::to_string(limits::kJsonDepthMax) + " levels";
    case simdjson::CAPACITY:
    case simdjson::MEMALLOC:
      return "is too large";
    default:
      break;
  }
  const std::string reason = json_syntax_error(body);
  return "is not valid JSON: " + (reason.empty() ? simdjson::error_message(error) : reason);
}

// JSON has no largest number, but its reader here has: 1.8e308.
void refuse_number(Reading& reading, simdjson::error_code error, std::string_view body) {
  const std::string field = json_large_number(body);
  if (field.empty()) {
    refuse(reading, "", why_not_json(error, body));
  } else {
    refuse(reading, field, "the number is too large");
  }
}

}  // namespace

Result<Done, ApiError> read_object(std::string_view body,
                                   const std::function<void(const Fields&)>& read,
                                   std::vector<KnownField>* known) {
  Reading reading{.known = known};
  if (has_too_many_values(body)) {
    refuse(reading, "", "has more than " + std::to_string(limits::kJsonValuesMax) + " values");
    return reading.outcome;
  }
  dom::parser parser(limits::kHttpBodyBytesMax);
  dom::element root;
  auto error = parser.allocate(body.size(), limits::kJsonDepthMax);
  if (error == simdjson::SUCCESS) {
    error = parser.parse(body.data(), body.size()).get(root);
  }
  std::string pointed;
  if (error == simdjson::NUMBER_ERROR) {
    // JSON has no largest integer. A field that needs one of 64 bits refuses it by its name.
    pointed = with_points_in_large_integers(body);
    body = pointed;
    error = parser.parse(body.data(), body.size()).get(root);
  }
  dom::object object;
  if (error == simdjson::NUMBER_ERROR) {
    refuse_number(reading, error, body);
  } else if (error != simdjson::SUCCESS) {
    refuse(reading, "", why_not_json(error, body));
  } else if (root.get(object) != simdjson::SUCCESS) {
    must_be(reading, "", "a JSON object", root);
  } else {
    read(Fields(object, "", reading));
  }
  return reading.outcome;
}

void refuse(Reading& reading, const std::string& param, const std::string& message) {
  if (reading.outcome) {
    reading.outcome =
        invalid_request((param.empty() ? "the body " : param + ": ") + message, param);
  }
}

void must_be(Reading& reading, const std::string& param, const std::string& allowed,
             const dom::element& value) {
  refuse(reading, param, "must be " + allowed + ", got " + describe(value));
}

// The string is valid UTF-8, except for lone surrogates, which JSON allows and UTF-8 does not.
void read_text(Reading& reading, const std::string& param, const dom::element& value,
               std::string& out) {
  std::string_view text;
  if (value.get(text) != simdjson::SUCCESS) {
    must_be(reading, param, "a string", value);
  } else if (!simdjson::validate_utf8(text)) {
    refuse(reading, param, "must be valid Unicode, but has half a surrogate pair");
  } else {
    out = text;
  }
}

std::string element_name(const std::string& list, size_t index) {
  return list + "[" + std::to_string(index) + "]";
}

void read_tokens(Reading& reading, const std::string& param, const dom::array& list,
                 std::vector<Token>& out) {
  out.reserve(list.size());
  for (const dom::element element : list) {
    const auto token = as_integer(element);
    if (!token || *token < 0 || *token > kTokenMax) {
      return must_be(reading, element_name(param, out.size()), "a token id", element);
    }
    out.push_back(static_cast<Token>(*token));
  }
}

std::string to_string(IntegerRange range) {
  return "an integer from " + std::to_string(range.min) + " to " + std::to_string(range.max);
}
std::string to_string(NumberRange range) {
  return (range.above_min ? "a number above " : "a number from ") + std::to_string(range.min) +
         (range.above_min ? " and at most " : " to ") + std::to_string(range.max);
}

std::string excerpt(std::string_view text) {
  return "\"" + std::string(text.substr(0, kQuotedBytesMax)) + "\"";
}

bool asks_for_something(const dom::element& value) {
  bool flag = false;
  std::string_view text;
  dom::array list;
  dom::object object;
  if (value.get(flag) == simdjson::SUCCESS) {
    return flag;
  }
  if (value.get(text) == simdjson::SUCCESS) {
    return !text.empty();
  }
  if (value.get(list) == simdjson::SUCCESS) {
    return list.size() > 0;
  }
  return value.get(object) != simdjson::SUCCESS || object.size() > 0;
}

Fields::Fields(const dom::object& object, std::string path, Reading& reading)
    : path_(std::move(path)), reading_(reading) {
  if (object.size() <= limits::kJsonFieldsMax) {
    object_ = std::make_shared<const dom::object>(object);
  } else {
    refuse(reading_, "",
           "has an object of more than " + std::to_string(limits::kJsonFieldsMax) + " fields");
  }
}

std::optional<dom::element> Fields::last(std::string_view name) const {
  std::optional<dom::element> found;
  if (object_) {
    for (const auto [key, value] : *object_) {
      if (key == name) {
        found = value;
      }
    }
  }
  return found;
}

std::optional<dom::element> Fields::value_of(std::string_view name) const {
  const auto found = last(name);
  return found && found->is_null() ? std::nullopt : found;
}

std::optional<dom::element> Fields::find(std::string_view name) const {
  note(name, "");
  return value_of(name);
}

// Notes each name once, however often it is looked for. "messages[0].role" is "messages[].role".
KnownField* Fields::note(std::string_view name, std::string allowed) const {
  if (reading_.known == nullptr) {
    return nullptr;
  }
  std::string full;
  bool inside = false;
  for (const char c : param(name)) {
    inside = c == '[' || (inside && c != ']');
    if (!inside || c == '[') {
      full += c;
    }
  }
  auto& known = *reading_.known;
  auto found = std::ranges::find(known, full, &KnownField::name);
  if (found == known.end()) {
    known.push_back({.name = std::move(full)});
    found = std::prev(known.end());
  }
  found->allowed = found->allowed.empty() ? std::move(allowed) : found->allowed;
  return &*found;
}

void Fields::unsupported(std::string_view name, std::string_view why,
                         std::span<const std::string_view> neutral) const {
  if (reading_.known != nullptr) {
    std::string allowed;
    for (const std::string_view value : neutral) {
      allowed.append(value.empty() ? "" : allowed.empty() ? "other than " : " or ").append(value);
    }
    note(name, std::move(allowed))->refused = true;
  }
  const auto value = value_of(name);
  if (value && asks_for_something(*value) &&
      std::ranges::none_of(neutral,
                           [&](std::string_view json) { return is_value(*value, json); })) {
    wrong(name, std::string(why));
  }
}

void Fields::idle(std::string_view name) const {
  if (KnownField* const known = note(name, "")) {
    known->idle = true;
  }
}

void Fields::only(std::string_view name, bool supported) const {
  note(name, supported ? "only true" : "only false");
  bool asked = supported;
  boolean(name, asked);
  if (asked != supported) {
    wrong(name, asked ? "true is not supported here" : "false is not supported here");
  }
}

bool Fields::is_null(std::string_view name) const {
  note(name, "");
  const auto found = last(name);
  return found && found->is_null();
}

std::optional<dom::array> Fields::list(std::string_view name, size_t elements_max) const {
  note(name, "a list");
  const auto value = value_of(name);
  if (!value) {
    return std::nullopt;
  }
  dom::array array;
  if (value->get(array) != simdjson::SUCCESS) {
    must_be(reading_, param(name), "a list", *value);
    return std::nullopt;
  }
  if (array.size() > elements_max) {
    wrong(name, "must have at most " + std::to_string(elements_max) + " elements, got " +
                    std::to_string(array.size()));
    return std::nullopt;
  }
  return array;
}

std::optional<Fields> Fields::object(std::string_view name) const {
  note(name, "an object");
  const auto value = value_of(name);
  if (!value) {
    return std::nullopt;
  }
  dom::object inner;
  if (value->get(inner) != simdjson::SUCCESS) {
    must_be(reading_, param(name), "an object", *value);
    return std::nullopt;
  }
  return Fields(inner, param(name) + ".", reading_);
}

std::vector<std::pair<std::string_view, dom::element>> Fields::members() const {
  std::vector<std::pair<std::string_view, dom::element>> members;
  if (object_) {
    for (const auto [name, value] : *object_) {
      members.emplace_back(name, value);
    }
  }
  return members;
}

void Fields::boolean(std::string_view name, bool& out) const {
  note(name, "true or false");
  const auto value = value_of(name);
  if (value && value->get(out) != simdjson::SUCCESS) {
    must_be(reading_, param(name), "true or false", *value);
  }
}

void Fields::number(std::string_view name, NumberRange range, float& out) const {
  note_range(name, range);
  const auto value = value_of(name);
  if (!value) {
    return;
  }
  double number = 0;
  const bool in_range =
      value->get(number) == simdjson::SUCCESS && number >= range.min && number <= range.max;
  // After rounding, so that a tiny number above zero cannot become zero.
  const auto rounded = in_range ? static_cast<float>(number) : 0.0F;
  if (!in_range || (range.above_min && rounded <= static_cast<float>(range.min))) {
    return must_be(reading_, param(name), to_string(range), *value);
  }
  out = rounded;
}

void Fields::text(std::string_view name, std::string& out) const {
  note(name, "a string");
  if (const auto value = value_of(name)) {
    read_text(reading_, param(name), *value, out);
  }
}

std::optional<int64_t> Fields::integer_in(std::string_view name, IntegerRange range) const {
  note_range(name, range);
  const auto value = value_of(name);
  if (!value) {
    return std::nullopt;
  }
  const auto integer = as_integer(*value);
  if (!integer || *integer < range.min || *integer > range.max) {
    must_be(reading_, param(name), to_string(range), *value);
    return std::nullopt;
  }
  return integer;
}

}  // namespace pdjob::openai
