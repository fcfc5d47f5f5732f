#include "engine/grammar/pattern.h"

#include <algorithm>
#include <optional>

#include "common/limits.h"

namespace pdjob::engine {
namespace {

constexpr std::string_view kNeverInside = R"(\x00-\x1f"\\)";  // Not in a JSON string unescaped.
constexpr std::string_view kSpecial = R"(^$\.*+?()[]{}|)";

Error bad_pattern(const std::string& what) { return {ErrorCode::kInvalidArgument, what}; }

std::string escaped(char sign) {
  const bool special = kSpecial.find(sign) != std::string_view::npos || sign == '-' || sign == '/';
  return special ? std::string{'\\', sign} : std::string{sign};
}

// The inside of a class, for \d, \w and \s.
std::optional<std::string_view> class_of(char letter) {
  switch (letter) {
    case 'd':
      return "0-9";
    case 'w':
      return "0-9A-Z_a-z";
    case 's':
      return " ";  // Other white space is escaped in JSON or not ASCII.
    default:
      return std::nullopt;
  }
}

// One pass from left to right. Every part has a weight: the states of its automaton.
class Translator {
 public:
  explicit Translator(std::string_view text) : text_(text) {}

  Result<std::string> run() {
    if (text_.size() > limits::kPatternBytesMax) {
      return bad_pattern("must have at most " + std::to_string(limits::kPatternBytesMax) +
                         " bytes");
    }
    if (!std::all_of(text_.begin(), text_.end(), [](char c) { return c >= 0x20 && c <= 0x7e; })) {
      return bad_pattern("must be printable ASCII");
    }
    if (!text_.starts_with('^') || !text_.ends_with('$') || text_.size() < 2) {
      return bad_pattern(
          "must begin with ^ and end with $: a pattern that may match anywhere in the "
          "string is not supported");
    }
    text_ = text_.substr(1, text_.size() - 2);
    PDJOB_TRY(const size_t weight, alternatives(0));
    if (at_ < text_.size()) {
      return bad_pattern("has a ) without a (");
    }
    if (weight > limits::kPatternWeightMax) {
      return bad_pattern("repeats too much");
    }
    return "^" + out_ + "$";
  }

 private:
  bool more() const { return at_ < text_.size(); }
  bool eat(char sign) {
    const bool here = more() && text_[at_] == sign;
    at_ += here ? 1 : 0;
    return here;
  }

  Result<size_t> alternatives(size_t depth) {
    if (depth > limits::kPatternDepthMax) {
      return bad_pattern("is nested too deeply");
    }
    size_t weight = 0;
    while (more() && text_[at_] != ')') {
      if (text_[at_] == '|') {
        if (depth == 0) {
          // ^a|b$ means (^a)|(b$).
          return bad_pattern("must put its alternatives into a group: ^(a|b)$");
        }
        out_ += text_[at_++];
        continue;
      }
      PDJOB_TRY(const size_t one, quantified(depth));
      weight = std::min(weight + one, limits::kPatternWeightMax + 1);
    }
    return weight;
  }

  Result<size_t> quantified(size_t depth) {
    PDJOB_TRY(const size_t weight, atom(depth));
    size_t times = 1;
    if (eat('*') || eat('+') || eat('?')) {
      out_ += text_[at_ - 1];
    } else if (eat('{')) {
      PDJOB_TRY(times, counted());
    } else {
      return weight;
    }
    if (more() && std::string_view("*+?{").find(text_[at_]) != std::string_view::npos) {
      return bad_pattern("repeats a repetition, or is lazy or possessive");
    }
    return std::min(weight * times, limits::kPatternWeightMax + 1);
  }

  Result<size_t> number() {
    const size_t begin = at_;
    size_t value = 0;
    while (more() && text_[at_] >= '0' && text_[at_] <= '9') {
      value = std::min<size_t>(value * 10 + static_cast<size_t>(text_[at_++] - '0'),
                               limits::kPatternWeightMax + 1);
    }
    if (at_ == begin) {
      return bad_pattern("has a { that begins no {n}, {n,} or {n,m}");
    }
    return value;
  }

  // Reads after the {. Returns how often the atom is written at most.
  Result<size_t> counted() {
    PDJOB_TRY(const size_t low, number());
    size_t high = low;
    bool open = false;
    if (eat(',')) {
      open = more() && text_[at_] == '}';
      if (!open) {
        PDJOB_TRY(high, number());
      }
    }
    if (!eat('}') || high < low) {
      return bad_pattern("has a { that begins no {n}, {n,} or {n,m}");
    }
    out_ += "{" + std::to_string(low) + (open ? "," : "");
    out_ += (open || high == low) ? "}" : "," + std::to_string(high) + "}";
    return std::max<size_t>(high, 1);
  }

  Result<size_t> atom(size_t depth) {
    const char sign = text_[at_++];
    switch (sign) {
      case '(':
        return group(depth);
      case '[':
        return one_of();
      case '.':
        out_.append("[^").append(kNeverInside).append("]");
        return size_t{1};
      case '\\':
        return escape();
      case '"':
        return bad_pattern("must not match a quote, which JSON escapes");
      default:
        if (kSpecial.find(sign) != std::string_view::npos) {
          return bad_pattern(std::string("has a ") + sign + " where nothing can have it");
        }
        out_ += escaped(sign);
        return size_t{1};
    }
  }

  Result<size_t> group(size_t depth) {
    if (eat('?') && !eat(':')) {
      return bad_pattern("must not look ahead or behind, or name a group");
    }
    out_ += '(';
    PDJOB_TRY(const size_t weight, alternatives(depth + 1));
    if (!eat(')')) {
      return bad_pattern("has a ( without a )");
    }
    out_ += ')';
    return weight;
  }

  Result<size_t> escape() {
    if (!more()) {
      return bad_pattern("ends in a backslash");
    }
    const char sign = text_[at_++];
    if (const auto inside = class_of(sign)) {
      out_.append("[").append(*inside).append("]");
      return size_t{1};
    }
    PDJOB_TRY_STATUS(check_literal(sign));
    out_ += escaped(sign);
    return size_t{1};
  }

  // Checks an escape that stands for the character itself.
  static Status check_literal(char sign) {
    const bool letter = (sign >= '0' && sign <= '9') || (sign >= 'a' && sign <= 'z') ||
                        (sign >= 'A' && sign <= 'Z') || sign == '_';
    if (letter) {
      return bad_pattern(std::string("has \\") + sign + ", which is not supported");
    }
    if (sign == '\\' || sign == '"') {
      return bad_pattern("must not match a quote or a backslash, which JSON escapes");
    }
    return ok();
  }

  // One end of a range, or a single character.
  Result<char> class_sign() {
    char sign = text_[at_++];
    if (sign == '\\') {
      if (!more()) {
        return bad_pattern("ends in a class");
      }
      sign = text_[at_++];
      PDJOB_TRY_STATUS(check_literal(sign));
    } else if (sign == '"') {
      return bad_pattern("must not match a quote, which JSON escapes");
    }
    return sign;
  }

  // Reads a class, after the [.
  Result<size_t> one_of() {
    const bool negated = eat('^');
    std::string inside;
    while (more() && text_[at_] != ']') {
      if (text_[at_] == '\\' && at_ + 1 < text_.size() && class_of(text_[at_ + 1])) {
        inside += *class_of(text_[at_ + 1]);
        at_ += 2;
        if (more() && text_[at_] == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
          return bad_pattern("has a range that begins with a class");
        }
        continue;
      }
      PDJOB_TRY(const char low, class_sign());
      inside += escaped(low);
      if (at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
        ++at_;
        if (text_[at_] == '\\' && at_ + 1 < text_.size() && class_of(text_[at_ + 1])) {
          return bad_pattern("has a range that ends with a class");
        }
        PDJOB_TRY(const char high, class_sign());
        if (high < low || (!negated && low < '"' && high >= '"') ||
            (!negated && low < '\\' && high >= '\\')) {
          return bad_pattern("has a range that is empty, or holds a quote or a backslash");
        }
        inside += "-" + escaped(high);
      }
    }
    if (!eat(']') || inside.empty()) {
      return bad_pattern("has a class without an end, or an empty one");
    }
    out_ += negated ? "[^" + std::string(kNeverInside) + inside + "]" : "[" + inside + "]";
    return size_t{1};
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

Result<std::string> translate_pattern(std::string_view pattern) {
  return Translator(pattern).run();
}

}  // namespace pdjob::engine
