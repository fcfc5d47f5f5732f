#include "engine/schema/pattern_tree.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "common/limits.h"

namespace pdjob::engine {
namespace {

using Kind = PatternTree::Kind;

PatternTree one_of(CharacterSet set) { return {.kind = Kind::kSet, .set = std::move(set)}; }
PatternTree one_of(char32_t sign) { return one_of({{sign, sign}}); }

int64_t times(int64_t count, int64_t length) {
  if (count == 0 || length == 0) {
    return 0;
  }
  return count > kUnbounded / length ? kUnbounded : count * length;
}
int64_t plus(int64_t one, int64_t other) {
  return one > kUnbounded - other ? kUnbounded : one + other;
}

// UTF-8 to characters; nothing if it is not valid.
std::optional<std::u32string> characters_of(std::string_view text) {
  std::u32string out;
  for (size_t at = 0; at < text.size();) {
    const auto first = static_cast<unsigned char>(text[at]);
    const size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if ((first >= 0x80 && first < 0xC2) || first > 0xF4 || at + length > text.size()) {
      return std::nullopt;
    }
    char32_t sign = length == 1 ? first : first & (0x7FU >> length);
    for (size_t i = 1; i < length; ++i) {
      sign = (sign << 6U) | (static_cast<unsigned char>(text[at + i]) & 0x3FU);
    }
    out += sign;
    at += length;
  }
  return out;
}

class Parser {
 public:
  explicit Parser(std::u32string text) : text_(std::move(text)) {}

  Result<PatternTree> run() {
    PDJOB_TRY(PatternTree tree, alternatives(0));
    if (at_ < text_.size()) {
      return bad_pattern("has a ) without a (");
    }
    return tree;
  }

 private:
  bool more() const { return at_ < text_.size(); }
  bool eat(char32_t sign) {
    const bool here = more() && text_[at_] == sign;
    at_ += here ? 1 : 0;
    return here;
  }
  static bool is_digit(char32_t sign) { return sign >= '0' && sign <= '9'; }

  Result<PatternTree> alternatives(size_t depth) {
    if (depth > limits::kPatternDepthMax) {
      return bad_pattern("is nested too deeply");
    }
    PatternTree choice{.kind = Kind::kChoice};
    do {
      PatternTree& sequence = choice.parts.emplace_back();
      while (more() && text_[at_] != ')' && text_[at_] != '|') {
        PDJOB_TRY(PatternTree part, quantified(depth));
        sequence.parts.push_back(std::move(part));
      }
    } while (eat('|'));
    return choice.parts.size() == 1 ? std::move(choice.parts.front()) : std::move(choice);
  }

  Result<PatternTree> quantified(size_t depth) {
    PDJOB_TRY(PatternTree part, atom(depth));
    PatternTree repeat{.kind = Kind::kRepeat};
    if (eat('*')) {
      repeat.least = 0;
      repeat.most = kUnbounded;
    } else if (eat('+')) {
      repeat.most = kUnbounded;
    } else if (eat('?')) {
      repeat.least = 0;
    } else if (at_ + 1 < text_.size() && text_[at_] == '{' && is_digit(text_[at_ + 1])) {
      ++at_;
      PDJOB_TRY_STATUS(counted(repeat));
    } else {
      return part;
    }
    eat('?');  // Lazy: the same texts match.
    const bool again = more() && (text_[at_] == '*' || text_[at_] == '+' || text_[at_] == '?');
    if (again || part.kind == Kind::kBegin || part.kind == Kind::kEnd) {
      return bad_pattern("repeats a repetition or an anchor, or is possessive");
    }
    repeat.parts.push_back(std::move(part));
    return repeat;
  }

  Result<int64_t> number() {
    const size_t begin = at_;
    int64_t value = 0;
    while (more() && is_digit(text_[at_]) && at_ - begin < 9) {
      value = value * 10 + static_cast<int64_t>(text_[at_++] - '0');
    }
    if (at_ == begin) {
      return bad_pattern("has a { that begins no {n}, {n,} or {n,m}");
    }
    return value;
  }

  Status counted(PatternTree& repeat) {
    PDJOB_TRY(repeat.least, number());
    repeat.most = repeat.least;
    if (eat(',')) {
      repeat.most = kUnbounded;
      if (more() && text_[at_] != '}') {
        PDJOB_TRY(repeat.most, number());
      }
    }
    if (!eat('}') || repeat.most < repeat.least) {
      return bad_pattern("has a { that begins no {n}, {n,} or {n,m}");
    }
    return ok();
  }

  Result<PatternTree> atom(size_t depth) {
    const char32_t sign = text_[at_++];
    switch (sign) {
      case '(':
        return group(depth);
      case '[':
        return character_class();
      case '.':
        return one_of(CharacterSet::all().without({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}));
      case '^':
        return PatternTree{.kind = Kind::kBegin};
      case '$':
        return PatternTree{.kind = Kind::kEnd};
      case '*':
      case '+':
      case '?':
        return bad_pattern("repeats nothing");
      case '\\': {
        PDJOB_TRY(CharacterSet set, escape());
        return one_of(std::move(set));
      }
      default:
        return one_of(sign);
    }
  }

  // After the (.
  Result<PatternTree> group(size_t depth) {
    if (eat('?') && !eat(':')) {
      eat('P');
      const bool named = eat('<') && more() && text_[at_] != '=' && text_[at_] != '!';
      const size_t end = named ? text_.find(U'>', at_) : std::u32string::npos;
      if (end == std::u32string::npos) {
        return bad_pattern("must not look ahead or behind, or change how the rest is read");
      }
      at_ = end + 1;
    }
    PDJOB_TRY(PatternTree tree, alternatives(depth + 1));
    if (!eat(')')) {
      return bad_pattern("has a ( without a )");
    }
    return tree;
  }

  Result<char32_t> hex(size_t least, size_t most) {
    char32_t value = 0;
    size_t digits = 0;
    for (; digits < most && more(); ++digits, ++at_) {
      const char32_t sign = text_[at_] | 0x20U;
      if (is_digit(text_[at_])) {
        value = value * 16 + (text_[at_] - '0');
      } else if (sign >= 'a' && sign <= 'f') {
        value = value * 16 + (sign - 'a' + 10);
      } else {
        break;
      }
    }
    if (digits < least || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
      return bad_pattern("has an escape of no character");
    }
    return value;
  }

  // After the backslash.
  Result<CharacterSet> escape() {
    if (!more()) {
      return bad_pattern("ends in a backslash");
    }
    const char32_t sign = text_[at_++];
    const char letter = sign < 0x80 ? static_cast<char>(sign) : ' ';
    if (auto set = CharacterSet::of_escape(letter)) {
      return *std::move(set);
    }
    if (letter == 'p') {
      return property();
    }
    PDJOB_TRY(const char32_t one, character(sign));
    return CharacterSet{{one, one}};
  }

  Result<CharacterSet> property() {
    const size_t end = eat('{') ? text_.find(U'}', at_) : std::u32string::npos;
    const std::u32string name = end == std::u32string::npos ? U"" : text_.substr(at_, end - at_);
    auto set = CharacterSet::of_property(std::string(name.begin(), name.end()));
    if (!set) {
      return bad_pattern("has a \\p{} other than L, Lu, Ll, N and Nd");
    }
    at_ = end + 1;
    return *std::move(set);
  }

  // The character of an escape, after its first sign.
  Result<char32_t> character(char32_t sign) {
    static constexpr std::pair<char, char> kControls[] = {
        {'n', '\n'}, {'r', '\r'}, {'t', '\t'}, {'f', '\f'}, {'v', '\v'}};
    for (const auto& [letter, control] : kControls) {
      if (sign == static_cast<char32_t>(letter)) {
        return static_cast<char32_t>(control);
      }
    }
    if (sign == 'x') {
      return hex(2, 2);
    }
    if (sign == 'u' && eat('{')) {
      PDJOB_TRY(const char32_t value, hex(1, 6));
      return eat('}') ? Result<char32_t>(value) : bad_pattern("has an escape of no character");
    }
    if (sign == 'u') {
      return hex(4, 4);
    }
    const char32_t letter = sign | 0x20U;
    if ((letter >= 'a' && letter <= 'z') || is_digit(sign)) {
      return bad_pattern(std::string("has \\") + static_cast<char>(sign) +
                         ", which is not supported");
    }
    return sign;
  }

  // After the [.
  Result<PatternTree> character_class() {
    const bool negated = eat('^');
    CharacterSet inside;
    CharacterSet left = CharacterSet::all();
    while (more() && text_[at_] != ']') {
      PDJOB_TRY(const CharacterSet part, class_part(negated ? &left : nullptr));
      inside.add(part);
    }
    if (!eat(']')) {
      return bad_pattern("has a class without an end");
    }
    CharacterSet set = negated ? left.without(inside) : std::move(inside);
    if (set.empty()) {
      return bad_pattern("has an empty class");
    }
    return one_of(std::move(set));
  }

  // A character, a range, or an escape that names a class. In a negated class the opposite of such
  // an escape bounds `left`, so that the result has no character which a dialect counts in.
  Result<CharacterSet> class_part(CharacterSet* left) {
    const size_t begin = at_;
    PDJOB_TRY(CharacterSet low, class_sign());
    if (low.size() != 1) {
      const auto letter = static_cast<char>(text_[begin + 1]);
      const char opposite = static_cast<char>(letter ^ 0x20);
      if (left != nullptr && letter == 'p') {
        return bad_pattern("has a negated class with \\p{}");
      }
      if (left != nullptr) {
        *left = left->within(CharacterSet::of_escape(opposite).value_or(CharacterSet()));
      }
      const bool range = at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']';
      return range ? Result<CharacterSet>(bad_pattern("has a range that begins with a class"))
                   : std::move(low);
    }
    if (at_ + 1 >= text_.size() || text_[at_] != '-' || text_[at_ + 1] == ']') {
      return low;
    }
    ++at_;
    PDJOB_TRY(const CharacterSet high, class_sign());
    const char32_t from = low.ranges().front().first;
    if (high.size() != 1 || high.ranges().front().first < from) {
      return bad_pattern("has a range that is empty, or ends with a class");
    }
    const CharacterSet range = {{from, high.ranges().front().first}};
    return range.within(CharacterSet::all());
  }

  Result<CharacterSet> class_sign() {
    const char32_t sign = text_[at_++];
    if (sign != '\\') {
      return CharacterSet{{sign, sign}};
    }
    if (eat('b')) {
      return CharacterSet{{'\b', '\b'}};
    }
    return escape();
  }

  const std::u32string text_;
  size_t at_ = 0;
};

bool fit_sequence(PatternTree& tree, const MatchLength& length);
bool fit_repeat(PatternTree& tree, const MatchLength& length);

}  // namespace

Error bad_pattern(const std::string& what) { return {ErrorCode::kInvalidArgument, what}; }

Result<PatternTree> parse_pattern(std::string_view text) {
  if (text.size() > limits::kPatternBytesMax) {
    return bad_pattern("must have at most " + std::to_string(limits::kPatternBytesMax) + " bytes");
  }
  auto characters = characters_of(text);
  if (!characters) {
    return bad_pattern("must be UTF-8");
  }
  return Parser(*std::move(characters)).run();
}

MatchLength match_length(const PatternTree& tree) {
  MatchLength all{.least = 0, .most = 0};
  switch (tree.kind) {
    case Kind::kSet:
      return {1, 1};
    case Kind::kBegin:
    case Kind::kEnd:
      return all;
    case Kind::kSequence:
      for (const PatternTree& part : tree.parts) {
        const MatchLength one = match_length(part);
        all = {plus(all.least, one.least), plus(all.most, one.most)};
      }
      return all;
    case Kind::kChoice:
      all.least = kUnbounded;
      for (const PatternTree& part : tree.parts) {
        const MatchLength one = match_length(part);
        all = {std::min(all.least, one.least), std::max(all.most, one.most)};
      }
      return all;
    case Kind::kRepeat: {
      const MatchLength one = match_length(tree.parts.front());
      return {times(tree.least, one.least), times(tree.most, one.most)};
    }
  }
  return all;
}

bool fit_length(PatternTree& tree, const MatchLength& length) {
  const MatchLength now = match_length(tree);
  if (now.least >= length.least && now.most <= length.most) {
    return true;
  }
  if (now.most < length.least || now.least > length.most) {
    return false;
  }
  switch (tree.kind) {
    case Kind::kSequence:
      return fit_sequence(tree, length);
    case Kind::kRepeat:
      return fit_repeat(tree, length);
    case Kind::kChoice:
      std::erase_if(tree.parts, [&](PatternTree& part) { return !fit_length(part, length); });
      return !tree.parts.empty();
    default:
      return false;
  }
}

namespace {

// Every part keeps its least length, and the parts without a bound share what is left.
bool fit_sequence(PatternTree& tree, const MatchLength& length) {
  std::vector<MatchLength> lengths;
  MatchLength now{.least = 0, .most = 0};
  int64_t open = 0;
  for (const PatternTree& part : tree.parts) {
    lengths.push_back(match_length(part));
    now.least = plus(now.least, lengths.back().least);
    const bool bounded = lengths.back().most != kUnbounded;
    now.most = plus(now.most, bounded ? lengths.back().most : lengths.back().least);
    open += bounded ? 0 : 1;
  }
  int64_t spare = length.most == kUnbounded ? kUnbounded : length.most - now.least;
  int64_t missing = std::max<int64_t>(length.least - now.least, 0);
  for (size_t i = 0; i < tree.parts.size(); ++i) {
    MatchLength& part = lengths[i];
    const bool bounded = part.most != kUnbounded;
    const int64_t able = bounded ? part.most - part.least : kUnbounded;
    const int64_t share = bounded || open == 0  ? spare
                          : spare == kUnbounded ? spare
                                                : spare / open--;
    const int64_t taken = std::min(able, std::max(share, std::min(missing, spare)));
    const int64_t more = std::min(missing, taken);
    missing -= more;
    part.least += more;
    part.most = taken == kUnbounded ? kUnbounded : part.least - more + taken;
    spare = spare == kUnbounded ? spare : spare - taken;
    if (!fit_length(tree.parts[i], part)) {
      return false;
    }
  }
  return missing == 0;
}

bool fit_repeat(PatternTree& tree, const MatchLength& length) {
  const MatchLength one = match_length(tree.parts.front());
  if (one.most == 0) {
    return length.least == 0;
  }
  if (one.most == kUnbounded) {
    // Few rounds of a bounded part, rather than many of a part that has no room.
    const int64_t rounds = std::min(tree.most, std::max<int64_t>(tree.least, 4));
    if (length.most == kUnbounded || rounds == 0 ||
        !fit_length(tree.parts.front(), {.least = 0, .most = length.most / rounds})) {
      return false;
    }
    tree.most = rounds;
    return fit_length(tree, length);
  }
  if (length.most != kUnbounded) {
    tree.most = std::min(tree.most, length.most / one.most);
  }
  if (length.least > 0) {
    if (one.least == 0 && !fit_length(tree.parts.front(), {.least = 1, .most = one.most})) {
      return false;
    }
    const int64_t least = std::max<int64_t>(one.least, 1);
    tree.least = std::max(tree.least, (length.least + least - 1) / least);
  }
  return tree.least <= tree.most;
}

}  // namespace
}  // namespace pdjob::engine
