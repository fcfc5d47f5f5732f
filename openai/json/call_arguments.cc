#include "openai/json/call_arguments.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include <nlohmann/json.hpp>

#include "common/limits.h"

namespace pdjob::openai {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

// Where a text of JSON stops. Value.
struct JsonEnd {
  std::string closers;  // Of the open brackets, the outermost one first.
  bool in_string = false;
  size_t escape = std::string_view::npos;  // Where an escape begins that may not be whole.
  // Behind the last whole value, and what closes the text there.
  size_t whole = 0;
  std::string whole_closers;
  size_t depth = 0;  // The most brackets that were open together.

  void read(std::string_view text);
  void read_outside(char byte, size_t at);
  size_t read_string(std::string_view text, size_t at);
};

void JsonEnd::read(std::string_view text) {
  // Deeper text is never an object here.
  for (size_t at = 0; at < text.size() && depth <= limits::kJsonDepthMax; ++at) {
    if (in_string) {
      at = read_string(text, at);
    } else {
      read_outside(text[at], at);
    }
  }
}

void JsonEnd::read_outside(char byte, size_t at) {
  in_string = byte == '"';
  if (byte == ',' && !closers.empty()) {
    whole = at;
    whole_closers = closers;
  } else if (byte == '{' || byte == '[') {
    closers += byte == '{' ? '}' : ']';
    depth = std::max(depth, closers.size());
    whole = at + 1;
    whole_closers = closers;
  } else if ((byte == '}' || byte == ']') && !closers.empty()) {
    closers.pop_back();
  }
}

// Returns the last byte that it has read.
size_t JsonEnd::read_string(std::string_view text, size_t at) {
  constexpr size_t kUnicode = 6;  // "\u0041"
  if (text[at] == '\\') {
    const bool unicode = at + 1 < text.size() && text[at + 1] == 'u';
    const size_t size = unicode ? kUnicode : 2;
    escape = at + size > text.size() ? at : std::string_view::npos;
    // The first half of a surrogate pair needs the second one.
    const bool half = unicode && at + 3 < text.size() &&
                      (text[at + 2] == 'd' || text[at + 2] == 'D') &&
                      std::string_view("89abAB").find(text[at + 3]) != std::string_view::npos;
    if (half && at + 2 * kUnicode > text.size()) {
      escape = at;
    }
    return std::min(at + size, text.size()) - 1;
  }
  in_string = text[at] != '"';
  return at;
}

bool is_object(std::string_view text, size_t depth) {
  return depth <= limits::kJsonDepthMax && text.starts_with('{') && nlohmann::json::accept(text);
}

void append_closers(std::string& text, std::string_view closers) {
  text.append(closers.rbegin(), closers.rend());
}

// Empty: the text is not JSON that was cut.
std::optional<std::string> completed(std::string_view text, const JsonEnd& end) {
  if (end.closers.empty() && !end.in_string) {
    return std::nullopt;
  }
  std::string closed(text.substr(0, end.in_string ? end.escape : std::string_view::npos));
  closed += end.in_string ? "\"" : "";
  append_closers(closed, end.closers);
  if (is_object(closed, end.depth)) {
    return closed;
  }
  closed = text.substr(0, end.whole);
  append_closers(closed, end.whole_closers);
  return is_object(closed, end.depth) ? std::optional(std::move(closed)) : std::nullopt;
}

}  // namespace

std::string readable_arguments(std::string arguments) {
  const size_t first = arguments.find_first_not_of(kBlank);
  const std::string_view text =
      std::string_view(arguments).substr(std::min(first, arguments.size()));
  if (text.empty() || text == "null") {
    return "{}";
  }
  JsonEnd end;
  end.read(text);
  if (is_object(text, end.depth)) {
    return arguments;
  }
  if (auto closed = completed(text, end)) {
    return *std::move(closed);
  }
  const nlohmann::json wrapped = {{"arguments", arguments}};
  return wrapped.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace pdjob::openai
