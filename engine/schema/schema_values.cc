#include "engine/schema/schema_values.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "common/limits.h"
#include "engine/schema/pattern.h"

namespace pdjob::engine {
namespace {

using picojson::object;
using picojson::value;

// XGrammar rounds the bounds of numbers to multiples of one millionth.
constexpr double kNumberSteps = 1e6;
// XGrammar's bounds for multipleOf.
constexpr double kMultipleMax = 1024;
constexpr double kMultipleRangeMax = 10'000;

// A format that XGrammar follows: how long its texts are, and a pattern of some of them, whose
// length can be bounded.
struct Format {
  std::string_view name;
  MatchLength length;
  std::string_view pattern;
};
constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
constexpr Format kFormats[] = {
    {"date", {10, 10}, R"(^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])$)"},
    {"time", {9, kAny}, R"(^([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?Z$)"},
    {"date-time",
     {20, kAny},
     R"(^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?Z$)"},
    {"duration", {3, kAny}, R"(^P(\d{1,5}[YMDW]|T\d{1,5}[HMS])$)"},
    {"email",
     {3, kAny},
     R"(^[A-Za-z0-9_+-]+(\.[A-Za-z0-9_+-]+)?@[A-Za-z0-9]+(\.[A-Za-z]{2,8}){1,3}$)"},
    {"ipv4",
     {7, 15},
     R"(^((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)$)"},
    {"ipv6", {2, 45}, "^([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}$"},
    {"hostname", {1, kAny}, R"(^[a-z0-9]{1,60}(\.[a-z0-9]{1,60}){0,3}$)"},
    {"uuid", {36, 36}, "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
    {"uri",
     {2, kAny},
     R"(^[a-z][a-z0-9+.-]{1,9}:(//[A-Za-z0-9.-]+)?[A-Za-z0-9._~/?!$&'()*+,;=:@-]*$)"}};

const Format* format_of(const object& in) {
  const auto* format = member(in, "format");
  if (format == nullptr || !format->is<std::string>()) {
    return nullptr;
  }
  const auto* found =
      std::find_if(std::begin(kFormats), std::end(kFormats),
                   [&](const Format& each) { return each.name == format->get<std::string>(); });
  return found == std::end(kFormats) ? nullptr : found;
}

MatchLength length_of(const object& read) {
  MatchLength length;
  if (const auto* least = member(read, "minLength")) {
    length.least = least->get<int64_t>();
  }
  if (const auto* most = member(read, "maxLength")) {
    length.most = most->get<int64_t>();
  }
  return length;
}

void replace_lengths(object& out, const std::string& word, const std::string& text) {
  out.erase("minLength");
  out.erase("maxLength");
  out[word] = value(text);
}

// A bound of the range of numbers: drawn in to what can be followed.
struct Bound {
  double at = 0;
  bool open = false;  // `at` itself does not fit.
};

Result<std::optional<Bound>> read_bound(const object& in, const std::string& path,
                                        const std::string& word, bool open) {
  const auto* given = member(in, word);
  if (given == nullptr) {
    return std::optional<Bound>();
  }
  if (!is_number(*given)) {
    return refused_schema(path, word + " must be a number");
  }
  return std::optional(Bound{.at = number_of(*given), .open = open});
}

enum class Side : uint8_t { kLower, kUpper };

// The stricter one of `word` and `open_word`.
Result<std::optional<Bound>> read_side(const object& in, const std::string& path, Side side) {
  const bool lower = side == Side::kLower;
  const std::string word = lower ? "minimum" : "maximum";
  const std::string open_word = lower ? "exclusiveMinimum" : "exclusiveMaximum";
  PDJOB_TRY(std::optional<Bound> closed, read_bound(in, path, word, false));
  const auto* other = member(in, open_word);
  if (other != nullptr && other->is<bool>()) {
    // Draft 4: it opens the bound.
    if (closed) {
      closed->open = other->get<bool>();
    }
    return closed;
  }
  PDJOB_TRY(const std::optional<Bound> open, read_bound(in, path, open_word, true));
  const bool stricter =
      open && (!closed || (lower ? open->at >= closed->at : open->at <= closed->at));
  return stricter ? open : closed;
}

// The least integer, or millionth, within a lower bound; the greatest one within an
// upper bound.
double drawn_in(const Bound& bound, Side side, bool integer) {
  constexpr double kNear = 1e-3;  // Of a step: what is lost by writing a number in binary.
  const double sign = side == Side::kLower ? 1 : -1;
  const double at = sign * bound.at * (integer ? 1 : kNumberSteps);
  const double near = integer ? 0 : kNear;
  double steps = std::ceil(at - near);
  if (std::abs(steps - at) <= near) {
    if (!bound.open) {
      return bound.at;
    }
    steps = std::max(steps + 1, std::nextafter(steps, INFINITY));
  }
  return sign * steps / (integer ? 1 : kNumberSteps);
}

// True if every number that fits is an integer.
bool is_whole_multiple(const object& in) {
  const auto* multiple = member(in, "multipleOf");
  return multiple != nullptr && is_number(*multiple) && number_of(*multiple) > 0 &&
         std::floor(number_of(*multiple)) == number_of(*multiple);
}

Status read_multiple(const object& in, const std::string& path, SchemaNotes& notes, object& out) {
  const auto* multiple = member(in, "multipleOf");
  if (multiple == nullptr) {
    return ok();
  }
  if (!is_number(*multiple) || !(number_of(*multiple) > 0)) {
    return refused_schema(path, "multipleOf must be a number above 0");
  }
  const double of = number_of(*multiple);
  if (!is_whole_multiple(in)) {
    return notes.not_held(path, "multipleOf", "multipleOf of fractions is not supported");
  }
  const auto* low = member(out, "minimum");
  const auto* high = member(out, "maximum");
  const bool free = low == nullptr && high == nullptr;
  const bool short_range =
      low != nullptr && high != nullptr && number_of(*high) - number_of(*low) <= kMultipleRangeMax;
  if (of == 1 || (of <= kMultipleMax && (free || short_range))) {
    if (of > 1) {
      out["multipleOf"] = value(static_cast<int64_t>(of));
    }
    return ok();
  }
  return notes.not_held(path, "multipleOf", "multipleOf is not supported with these bounds");
}

constexpr double kIntegerMax = 9.2e18;  // Bounds of integers take 64 bits.

std::optional<double> number_at(const object& schema, const std::string& word) {
  const auto* at = member(schema, word);
  return at != nullptr && is_number(*at) ? std::optional(number_of(*at)) : std::nullopt;
}

bool is_within(const value& number, const object& schema) {
  const auto bound = [&](const char* word) { return number_at(schema, word); };
  const double at = number_of(number);
  return !(at < bound("minimum").value_or(at) || at > bound("maximum").value_or(at) ||
           at <= bound("exclusiveMinimum").value_or(at - 1) ||
           at >= bound("exclusiveMaximum").value_or(at + 1));
}

bool has_length(const std::string& text, const object& schema) {
  const auto length = static_cast<double>(
      std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xC0) != 0x80; }));
  return length >= number_at(schema, "minLength").value_or(0) &&
         length <= number_at(schema, "maxLength").value_or(length);
}

}  // namespace

Status SchemaCounts::read(const object& in, const std::string& path, const std::string& least,
                          const std::string& most, int64_t bound, object& out) {
  const auto count = [&](const std::string& word, double absent) -> Result<double> {
    const auto* given = member(in, word);
    const double wanted = given == nullptr ? absent : is_number(*given) ? number_of(*given) : -2;
    if (given != nullptr && (!(wanted >= 0) || std::floor(wanted) != wanted)) {
      return refused_schema(path, word + " must be a whole number, and not less than 0");
    }
    return wanted;
  };
  PDJOB_TRY(double low, count(least, 0));
  PDJOB_TRY(double high, count(most, -1));
  if (high >= 0 && high < low) {
    return refused_schema(path, most + " is less than " + least);
  }
  const auto top = static_cast<double>(bound);
  if (low > top) {
    PDJOB_TRY_STATUS(
        notes_.not_held(path, least, least + " must be at most " + std::to_string(bound)));
    low = 0;
  }
  high = std::min(high, top);
  const auto more = static_cast<size_t>(std::max({low, high, 0.0}));
  if (together_ + more > limits::kSchemaRepetitionMax) {
    return notes_.not_held(
        path, low > 0 ? least : most,
        "all lengths together are more than " + std::to_string(limits::kSchemaRepetitionMax));
  }
  together_ += more;
  if (low > 0) {
    out[least] = value(static_cast<int64_t>(low));
  }
  if (high >= 0) {
    out[most] = value(static_cast<int64_t>(high));
  }
  return ok();
}

Status read_string_words(const object& in, const std::string& path, SchemaNotes& notes,
                         SchemaCounts& counts, object& out) {
  PDJOB_TRY_STATUS(counts.read(in, path, "minLength", "maxLength", limits::kSchemaLengthMax, out));
  const MatchLength length = length_of(out);
  const auto* format = member(in, "format");
  if (format != nullptr && !format->is<std::string>()) {
    return refused_schema(path, "format must be a text");
  }
  if (const auto* pattern = member(in, "pattern")) {
    if (!pattern->is<std::string>()) {
      return refused_schema(path, "pattern must be a text");
    }
    const auto translated = translate_pattern(pattern->get<std::string>(), length);
    if (translated) {
      if (!translated->empty()) {
        replace_lengths(out, "pattern", *translated);
      }
      if (!translated->empty() || format == nullptr) {
        return ok();  // A format beside a pattern is an annotation.
      }
    } else {
      PDJOB_TRY_STATUS(notes.not_held(path, "pattern", translated.error().message, ".pattern"));
    }
  }
  const Format* known = format_of(in);
  if (known == nullptr) {
    return ok();
  }
  if (length.least <= known->length.least && length.most >= known->length.most) {
    replace_lengths(out, "format", std::string(known->name));
    return ok();
  }
  if (const auto bounded = translate_pattern(known->pattern, length)) {
    replace_lengths(out, "pattern", *bounded);
    return ok();
  }
  notes.ignored(path, "format");
  return ok();
}

Status read_number_words(const std::string& type, const object& in, const std::string& path,
                         SchemaNotes& notes, object& out, bool& nothing) {
  const bool integer = type == "integer" || is_whole_multiple(in);
  out["type"] = value(std::string(integer ? "integer" : "number"));
  const double most = integer ? kIntegerMax : limits::kSchemaNumberMax;
  std::optional<double> low;
  std::optional<double> high;
  PDJOB_TRY(const auto lower, read_side(in, path, Side::kLower));
  PDJOB_TRY(const auto upper, read_side(in, path, Side::kUpper));
  if ((lower && lower->at >= most) || (upper && upper->at <= -most)) {
    return notes.not_held(path, lower && lower->at >= most ? "minimum" : "maximum",
                          "a bound is too large");
  }
  if (lower) {
    low = std::max(drawn_in(*lower, Side::kLower, integer), -most);
  }
  if (upper) {
    high = std::min(drawn_in(*upper, Side::kUpper, integer), most);
  }
  nothing = low && high && *low > *high;
  if (nothing) {
    return ok();
  }
  const auto write = [&out](const char* word, const std::optional<double>& at) {
    if (at) {
      out[word] = std::floor(*at) == *at ? value(static_cast<int64_t>(*at)) : value(*at);
    }
  };
  write("minimum", low);
  write("maximum", high);
  return read_multiple(in, path, notes, out);
}

bool has_type(const value& given, const std::string& type) {
  const bool number = is_number(given);
  return (type == "string" && given.is<std::string>()) || (type == "boolean" && given.is<bool>()) ||
         (type == "null" && given.is<picojson::null>()) ||
         (type == "array" && given.is<picojson::array>()) ||
         (type == "object" && given.is<object>()) || (type == "number" && number) ||
         (type == "integer" && number && std::floor(number_of(given)) == number_of(given));
}

picojson::array values_that_fit(const picojson::array& values, const object& schema,
                                const std::vector<std::string>& types) {
  picojson::array out;
  const auto fits = [&](const value& each) {
    const bool typed =
        types.empty() || std::any_of(types.begin(), types.end(),
                                     [&](const auto& type) { return has_type(each, type); });
    return typed && (!is_number(each) || is_within(each, schema)) &&
           (!each.is<std::string>() || has_length(each.get<std::string>(), schema));
  };
  std::copy_if(values.begin(), values.end(), std::back_inserter(out), fits);
  return out;
}

}  // namespace pdjob::engine
