#include "common/json/json_writer.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>

namespace pdjob {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

constexpr bool is_plain(unsigned char byte) {
  return byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\';
}

void append_ascii_escape(std::string& out, unsigned char byte) {
  switch (byte) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      constexpr std::string_view kHex = "0123456789abcdef";
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 0xf];
  }
}

// The valid sequences for one lead byte (Unicode, table 3-7): their length, and the range of the
// second byte. That range alone excludes overlong forms, surrogates and values beyond U+10FFFF.
struct Utf8Form {
  size_t length = 0;  // 0: no valid sequence begins with this byte.
  unsigned char second_min = 0x80;
  unsigned char second_max = 0xBF;
};

constexpr Utf8Form utf8_form(unsigned char lead) {
  if (lead < 0xC2 || lead > 0xF4) {
    return {};
  }
  if (lead < 0xE0) {
    return {.length = 2};
  }
  const auto min = static_cast<unsigned char>(lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80);
  const auto max = static_cast<unsigned char>(lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF);
  return {.length = lead < 0xF0 ? size_t{3} : size_t{4}, .second_min = min, .second_max = max};
}

// Unicode's line ends: some readers of server-sent events end a line at them.
std::string_view escaped_line_end(std::string_view character) {
  return character == "\xC2\x85"       ? "\\u0085"
         : character == "\xE2\x80\xA8" ? "\\u2028"
         : character == "\xE2\x80\xA9" ? "\\u2029"
                                       : std::string_view();
}

// Appends the first character of `text`, which is not ASCII, or U+FFFD for its longest valid
// prefix. Returns the number of bytes used.
size_t append_character(std::string& out, std::string_view text) {
  const Utf8Form form = utf8_form(static_cast<unsigned char>(text[0]));
  size_t length = 1;
  while (length < form.length && length < text.size()) {
    const auto byte = static_cast<unsigned char>(text[length]);
    const bool second = length == 1;
    if (byte < (second ? form.second_min : 0x80) || byte > (second ? form.second_max : 0xBF)) {
      break;
    }
    ++length;
  }
  const std::string_view character = length == form.length ? text.substr(0, length) : kReplacement;
  const std::string_view escaped = escaped_line_end(character);
  out += escaped.empty() ? character : escaped;
  return length;
}

template <class Number>
void append_number(std::string& out, Number number) {
  std::array<char, 32> digits;
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), number);
  out.append(digits.data(), end);  // 32 bytes hold every number's shortest form.
}

}  // namespace

void append_json_escaped(std::string& out, std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t plain_from = at;
    while (at < text.size() && is_plain(static_cast<unsigned char>(text[at]))) {
      ++at;
    }
    out.append(text, plain_from, at - plain_from);
    if (at == text.size()) {
      return;
    }
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x80) {
      append_ascii_escape(out, byte);
      ++at;
    } else {
      at += append_character(out, text.substr(at));
    }
  }
}

JsonWriter& JsonWriter::key(std::string_view name) {
  string(name);
  out_ += ':';
  value_before_ = false;
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view text) {
  separate();
  out_ += '"';
  append_json_escaped(out_, text);
  out_ += '"';
  return *this;
}

JsonWriter& JsonWriter::number(float number) {
  if (!std::isfinite(number)) {
    return null();
  }
  separate();
  append_number(out_, number);
  return *this;
}

JsonWriter& JsonWriter::number(double number) {
  if (!std::isfinite(number)) {
    return null();
  }
  separate();
  append_number(out_, number);
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  separate();
  out_ += json;
  return *this;
}

JsonWriter& JsonWriter::open(char bracket) {
  separate();
  out_ += bracket;
  value_before_ = false;
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  out_ += bracket;
  value_before_ = true;
  return *this;
}

JsonWriter& JsonWriter::signed_integer(int64_t number) {
  separate();
  append_number(out_, number);
  return *this;
}

JsonWriter& JsonWriter::unsigned_integer(uint64_t number) {
  separate();
  append_number(out_, number);
  return *this;
}

void JsonWriter::separate() {
  if (value_before_) {
    out_ += ',';
  }
  value_before_ = true;
}

}  // namespace pdjob
