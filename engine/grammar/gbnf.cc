#include "engine/grammar/gbnf.h"

#include <algorithm>
#include <string>
#include <vector>

#include "common/limits.h"

namespace pdjob::engine {
namespace {

// XGrammar's own functions; GBNF has none.
constexpr std::string_view kFunctions[] = {"TagDispatch",      "Token", "ExcludeToken",
                                           "TokenTagDispatch", "Regex", "Substring"};

bool name_sign(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.';
}

bool hex_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

class Check {
 public:
  explicit Check(std::string_view text) : text_(text) {}

  Status run() {
    if (text_.size() > limits::kGrammarBytesMax || text_.find('\0') != std::string_view::npos) {
      return refused("is too long, or not text");
    }
    groups_.push_back(0);
    while (at_ < text_.size()) {
      PDJOB_TRY_STATUS(next());
      if (rules_ > limits::kGrammarRulesMax) {
        return refused("has more than " + std::to_string(limits::kGrammarRulesMax) + " rules");
      }
      if (weight_ + groups_.back() > limits::kGrammarWeightMax) {
        return refused("repeats too much");
      }
    }
    return ok();
  }

 private:
  Error refused(const std::string& what) const {
    const auto line =
        1 + std::count(text_.begin(), text_.begin() + std::min(at_, text_.size()), '\n');
    return {ErrorCode::kInvalidArgument,
            "line " + std::to_string(line) + " of the grammar " + what};
  }

  char sign(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }

  Status next() {
    switch (sign()) {
      case '#':
        at_ = std::min(text_.find_first_of("\r\n", at_), text_.size());
        return ok();
      case '"':
        return quoted('"');
      case '[':
        return quoted(']');
      case '(':
        return open_group();
      case ')':
        return close_group();
      case '{':
        return repeat();
      default:
        break;
    }
    if (name_sign(sign())) {
      return name();
    }
    ++at_;
    return ok();
  }

  // Adds an element of this weight, which a repetition may follow.
  void add(size_t weight) {
    groups_.back() = std::min(groups_.back() + weight, limits::kGrammarWeightMax + 1);
    last_ = weight;
  }

  Status quoted(char closing) {
    const size_t begin = at_++;
    for (; at_ < text_.size() && text_[at_] != closing; ++at_) {
      if (text_[at_] != '\\') {
        continue;
      }
      ++at_;
      if (sign() == 'x' && hex_digit(sign(1)) && hex_digit(sign(2)) && hex_digit(sign(3))) {
        return refused("has a \\x with more than two digits");
      }
    }
    ++at_;
    if (closing == '"' && at_ - begin > limits::kGrammarLiteralBytesMax) {
      return refused("has a text of more than " + std::to_string(limits::kGrammarLiteralBytesMax) +
                     " bytes");
    }
    add(at_ - begin);
    return ok();
  }

  Status open_group() {
    if (groups_.size() > limits::kGrammarDepthMax) {
      return refused("is nested too deeply");
    }
    if (sign(1) == '=') {
      return refused("looks ahead, which is not supported");
    }
    ++at_;
    groups_.push_back(0);
    return ok();
  }

  Status close_group() {
    ++at_;
    if (groups_.size() > 1) {
      const size_t weight = groups_.back();
      groups_.pop_back();
      add(weight);
    }
    return ok();
  }

  Status repeat() {
    const size_t end = text_.find('}', at_);
    size_t most = 0;
    size_t number = 0;
    for (size_t i = at_ + 1; i < std::min(end, text_.size()); ++i) {
      const char c = text_[i];
      if (c >= '0' && c <= '9') {
        number = std::min<size_t>(number * 10 + static_cast<size_t>(c - '0'),
                                  limits::kGrammarRepetitionMax + 1);
        most = std::max(most, number);
      } else if (c == ',') {
        number = 0;
      } else if (c != ' ') {
        return refused("has a { that begins no {n}, {n,} or {n,m}");
      }
    }
    if (end == std::string_view::npos || most > limits::kGrammarRepetitionMax) {
      return refused("repeats more than " + std::to_string(limits::kGrammarRepetitionMax) +
                     " times");
    }
    at_ = end + 1;
    // A second {n} repeats the repeated element again.
    const size_t whole = std::min(last_ * std::max<size_t>(most, 1), limits::kGrammarWeightMax + 1);
    groups_.back() = std::min(groups_.back() + whole, limits::kGrammarWeightMax + 1);
    last_ = whole;
    return ok();
  }

  Status name() {
    const size_t begin = at_;
    while (name_sign(sign())) {
      ++at_;
    }
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (word.size() > limits::kGrammarNameBytesMax) {
      return refused("has a name of more than " + std::to_string(limits::kGrammarNameBytesMax) +
                     " bytes");
    }
    if (word.find('.') != std::string_view::npos) {
      return refused("has a \".\": write a class, such as [^\\n]");
    }
    if (std::find(std::begin(kFunctions), std::end(kFunctions), word) != std::end(kFunctions)) {
      return refused("uses " + std::string(word) + " as a name, which is not supported");
    }
    size_t behind = at_;
    while (behind < text_.size() && (text_[behind] == ' ' || text_[behind] == '\t')) {
      ++behind;
    }
    if (text_.substr(behind).starts_with("::=")) {
      return rule(behind + 3);
    }
    // XGrammar's attributes: name[lazy] ::= ...
    if (sign() == '[') {
      const size_t closed = text_.find(']', at_);
      const size_t after = closed == std::string_view::npos
                               ? std::string_view::npos
                               : text_.find_first_not_of(" \t", closed + 1);
      if (after != std::string_view::npos && text_.substr(after).starts_with("::=")) {
        return refused("gives a rule attributes, which is not supported");
      }
    }
    add(word.size());
    return ok();
  }

  Status rule(size_t behind) {
    ++rules_;
    at_ = behind;
    weight_ = std::min(weight_ + groups_.front(), limits::kGrammarWeightMax + 1);
    groups_.assign(1, 0);
    last_ = 0;
    return ok();
  }

  const std::string_view text_;
  size_t at_ = 0;
  size_t rules_ = 0;
  size_t weight_ = 0;           // Weight of the earlier rules: bytes, with repetitions written out.
  std::vector<size_t> groups_;  // Weights of this rule's open groups.
  size_t last_ = 0;             // Weight of the element that a repetition would repeat.
};

}  // namespace

Status check_gbnf(std::string_view gbnf) { return Check(gbnf).run(); }

}  // namespace pdjob::engine
