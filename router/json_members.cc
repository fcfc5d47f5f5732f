#include "router/json_members.h"

#include <cstdint>
#include <utility>

#include "common/limits.h"

namespace pdjob::router {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

int hex_digit(char c) {
  if (is_digit(c)) {
    return c - '0';
  }
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// Walks over a text; each skip_...() is false where the text is not JSON.
class Walker {
 public:
  explicit Walker(std::string_view text) : text_(text) {}

  size_t position() const { return at_; }
  bool done() const { return at_ == text_.size(); }

  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r')) {
      ++at_;
    }
  }
  bool skip(char c) {
    if (at_ == text_.size() || text_[at_] != c) {
      return false;
    }
    ++at_;
    return true;
  }
  bool skip_word(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) {
      return false;
    }
    at_ += word.size();
    return true;
  }

  bool skip_string() {
    if (!skip('"')) {
      return false;
    }
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == '"') {
        return true;
      }
      if (static_cast<unsigned char>(c) < 0x20 || (c == '\\' && !skip_escape())) {
        return false;
      }
    }
    return false;
  }

  bool skip_value(size_t depth) {
    if (depth > limits::kJsonDepthMax || at_ == text_.size()) {
      return false;
    }
    switch (text_[at_]) {
      case '{':
        return skip_container('{', '}', depth);
      case '[':
        return skip_container('[', ']', depth);
      case '"':
        return skip_string();
      case 't':
        return skip_word("true");
      case 'f':
        return skip_word("false");
      case 'n':
        return skip_word("null");
      default:
        return skip_number();
    }
  }

 private:
  bool skip_escape() {
    if (at_ == text_.size()) {
      return false;
    }
    const char c = text_[at_++];
    if (c != 'u') {
      return std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos;
    }
    for (int i = 0; i < 4; ++i) {
      if (at_ == text_.size() || hex_digit(text_[at_++]) < 0) {
        return false;
      }
    }
    return true;
  }

  bool skip_digits() {
    const size_t before = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) {
      ++at_;
    }
    return at_ > before;
  }

  bool skip_number() {
    skip('-');
    if (!skip('0') && !skip_digits()) {
      return false;
    }
    if (skip('.') && !skip_digits()) {
      return false;
    }
    if (skip('e') || skip('E')) {
      if (!skip('+')) {
        skip('-');
      }
      return skip_digits();
    }
    return true;
  }

  bool skip_container(char open, char close, size_t depth) {
    skip(open);
    skip_space();
    if (skip(close)) {
      return true;
    }
    do {
      skip_space();
      if (open == '{' && !(skip_string() && (skip_space(), skip(':')))) {
        return false;
      }
      skip_space();
      if (!skip_value(depth + 1)) {
        return false;
      }
      skip_space();
    } while (skip(','));
    return skip(close);
  }

  const std::string_view text_;
  size_t at_ = 0;
};

void append_utf8(std::string& out, uint32_t code) {
  const auto byte = [&out](uint32_t bits) { out += static_cast<char>(bits); };
  if (code < 0x80) {
    byte(code);
  } else if (code < 0x800) {
    byte(0xc0 | code >> 6);
    byte(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    byte(0xe0 | code >> 12);
    byte(0x80 | (code >> 6 & 0x3f));
    byte(0x80 | (code & 0x3f));
  } else {
    byte(0xf0 | code >> 18);
    byte(0x80 | (code >> 12 & 0x3f));
    byte(0x80 | (code >> 6 & 0x3f));
    byte(0x80 | (code & 0x3f));
  }
}

uint32_t unicode_escape(std::string_view digits) {
  uint32_t code = 0;
  for (int i = 0; i < 4; ++i) {
    code = code << 4 | static_cast<uint32_t>(hex_digit(digits[i]));
  }
  return code;
}

// `inside` is the checked inside of a JSON string. A surrogate without its other half becomes
// U+FFFD.
std::string unescape(std::string_view inside) {
  std::string out;
  for (size_t at = 0; at < inside.size(); ++at) {
    if (inside[at] != '\\') {
      out += inside[at];
      continue;
    }
    const char c = inside[++at];
    if (c != 'u') {
      const size_t known = std::string_view("bfnrt").find(c);
      out += known == std::string_view::npos ? c : "\b\f\n\r\t"[known];
      continue;
    }
    uint32_t code = unicode_escape(inside.substr(at + 1));
    at += 4;
    if (code >= 0xd800 && code < 0xe000) {
      const std::string_view rest = inside.substr(at + 1);
      const uint32_t low = rest.starts_with("\\u") ? unicode_escape(rest.substr(2)) : 0;
      const bool pair = code < 0xdc00 && low >= 0xdc00 && low < 0xe000;
      code = pair ? 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00) : 0xfffd;
      at += pair ? 6 : 0;
    }
    append_utf8(out, code);
  }
  return out;
}

}  // namespace

std::optional<std::vector<JsonMember>> json_members(std::string_view text) {
  Walker walker(text);
  std::vector<JsonMember> members;
  walker.skip_space();
  if (!walker.skip('{')) {
    return std::nullopt;
  }
  const size_t first = walker.position();
  walker.skip_space();
  if (!walker.skip('}')) {
    size_t begin = first;
    do {
      JsonMember member{.begin = begin};
      walker.skip_space();
      const size_t name_begin = walker.position();
      if (!walker.skip_string()) {
        return std::nullopt;
      }
      member.name = unescape(text.substr(name_begin + 1, walker.position() - name_begin - 2));
      walker.skip_space();
      if (!walker.skip(':')) {
        return std::nullopt;
      }
      walker.skip_space();
      member.value_begin = walker.position();
      if (!walker.skip_value(1)) {
        return std::nullopt;
      }
      member.value_end = walker.position();
      walker.skip_space();
      member.end = walker.position();
      begin = member.end + 1;
      members.push_back(std::move(member));
    } while (walker.skip(','));
    if (!walker.skip('}')) {
      return std::nullopt;
    }
  }
  walker.skip_space();
  return walker.done() ? std::optional(std::move(members)) : std::nullopt;
}

std::string_view json_first_element(std::string_view text) {
  Walker walker(text);
  walker.skip_space();
  if (!walker.skip('[')) {
    return {};
  }
  walker.skip_space();
  const size_t begin = walker.position();
  return walker.skip_value(1) ? text.substr(begin, walker.position() - begin) : std::string_view();
}

std::optional<std::string> json_string(std::string_view value) {
  Walker walker(value);
  if (!walker.skip_string() || !walker.done()) {
    return std::nullopt;
  }
  return unescape(value.substr(1, value.size() - 2));
}

}  // namespace pdjob::router
