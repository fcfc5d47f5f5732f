#include "engine/schema/pattern.h"

#include <algorithm>
#include <utility>

#include "common/limits.h"
#include "engine/schema/generated_patterns.h"
#include "engine/schema/pattern_tree.h"

namespace pdjob::engine {
namespace {

using Kind = PatternTree::Kind;

// Where the text stands decides which characters are written as they are.
enum class Place : uint8_t { kInJson, kRaw };

PatternTree anything() {
  PatternTree any{.kind = Kind::kRepeat, .least = 0, .most = kUnbounded};
  any.parts.push_back({.kind = Kind::kSet, .set = CharacterSet::all()});
  return any;
}

bool has_anchor(const PatternTree& tree) {
  return tree.kind == Kind::kBegin || tree.kind == Kind::kEnd ||
         std::any_of(tree.parts.begin(), tree.parts.end(), has_anchor);
}

struct Anchors {
  bool begin = false;
  bool end = false;
};
// Takes those around a sequence.
Anchors take_anchors(PatternTree& sequence) {
  auto& parts = sequence.parts;
  Anchors anchors{.begin = !parts.empty() && parts.front().kind == Kind::kBegin};
  if (anchors.begin) {
    parts.erase(parts.begin());
  }
  anchors.end = !parts.empty() && parts.back().kind == Kind::kEnd;
  if (anchors.end) {
    parts.pop_back();
  }
  return anchors;
}

// Makes of a tree that may match anywhere one that matches the whole text.
Status match_whole(PatternTree& tree) {
  if (tree.kind == Kind::kChoice) {
    for (PatternTree& part : tree.parts) {
      PDJOB_TRY_STATUS(match_whole(part));
    }
    return ok();
  }
  if (tree.kind != Kind::kSequence) {
    tree = PatternTree{.parts = {std::move(tree)}};
  }
  auto& parts = tree.parts;
  const bool group = parts.size() == 1 &&
                     (parts.front().kind == Kind::kChoice || parts.front().kind == Kind::kSequence);
  if (group) {
    PatternTree inner = std::move(parts.front());
    tree = std::move(inner);
    return match_whole(tree);
  }
  const Anchors anchors = take_anchors(tree);
  if (has_anchor(tree)) {
    return bad_pattern("has a ^ or $ inside");
  }
  if (!(anchors.begin && anchors.end) && match_length(tree).least == 0) {
    tree = anything();  // The empty match is somewhere in every text.
    return ok();
  }
  if (!anchors.begin) {
    parts.insert(parts.begin(), anything());
  }
  if (!anchors.end) {
    parts.push_back(anything());
  }
  return ok();
}

bool matches_everything(const PatternTree& tree) {
  if (tree.kind == Kind::kChoice) {
    return std::any_of(tree.parts.begin(), tree.parts.end(), matches_everything);
  }
  return tree.kind == Kind::kRepeat && tree.least == 0 && tree.most == kUnbounded &&
         tree.parts.front().kind == Kind::kSet &&
         tree.parts.front().set.size() == CharacterSet::all().size();
}

size_t weight_of(const PatternTree& tree) {
  size_t weight = tree.kind == Kind::kSet ? 1 : 0;
  for (const PatternTree& part : tree.parts) {
    weight = std::min(weight + weight_of(part), limits::kPatternWeightMax + 1);
  }
  if (tree.kind == Kind::kRepeat) {
    const int64_t rounds = std::max<int64_t>(tree.most == kUnbounded ? tree.least : tree.most, 1);
    const auto most = static_cast<int64_t>(limits::kPatternWeightMax + 1);
    weight *= static_cast<size_t>(std::min(rounds, most));
  }
  return std::min(weight, limits::kPatternWeightMax + 1);
}

class Writer {
 public:
  explicit Writer(Place place) : place_(place) {}

  Result<std::string> write(const PatternTree& tree) {
    PDJOB_TRY_STATUS(append(tree));
    return "^" + out_ + "$";
  }

 private:
  Status append(const PatternTree& tree) {
    switch (tree.kind) {
      case Kind::kSet:
        return append_set(tree.set);
      case Kind::kSequence:
        for (const PatternTree& part : tree.parts) {
          PDJOB_TRY_STATUS(append(part));
        }
        return ok();
      case Kind::kChoice:
        return append_choice(tree);
      case Kind::kRepeat:
        return append_repeat(tree);
      case Kind::kBegin:
      case Kind::kEnd:
        break;
    }
    return bad_pattern("has a ^ or $ inside");
  }

  Status append_choice(const PatternTree& tree) {
    out_ += '(';
    for (const PatternTree& part : tree.parts) {
      out_ += &part == tree.parts.data() ? "" : "|";
      PDJOB_TRY_STATUS(append(part));
    }
    out_ += ')';
    return ok();
  }

  Status append_repeat(const PatternTree& tree) {
    const PatternTree& part = tree.parts.front();
    if (tree.most == 0) {
      return ok();
    }
    const bool grouped = part.kind != Kind::kSet && part.kind != Kind::kChoice;
    const size_t begin = out_.size();
    out_ += grouped ? "(" : "";
    PDJOB_TRY_STATUS(append(part));
    out_ += grouped ? ")" : "";
    const auto count = [](int64_t number) { return std::to_string(number); };
    if (tree.most == kUnbounded) {
      out_ += tree.least == 0 ? "*" : tree.least == 1 ? "+" : "{" + count(tree.least) + ",}";
    } else if (tree.least == 0 && tree.most == 1) {
      // XGrammar 0.2.8 lets (ab+)? begin with the b.
      const bool is_group = out_[begin] == '(';
      out_.insert(begin, is_group ? "(|" : "");
      out_ += is_group ? ')' : '?';
    } else if (tree.least == tree.most) {
      out_ += tree.most == 1 ? "" : "{" + count(tree.most) + "}";
    } else {
      out_ += "{" + count(tree.least) + "," + count(tree.most) + "}";
    }
    return ok();
  }

  Status append_set(const CharacterSet& set) {
    static const CharacterSet escaped_in_json = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
    const bool in_json = place_ == Place::kInJson;
    const CharacterSet raw = in_json ? set.without(escaped_in_json) : set;
    std::vector<std::string> ways;
    if (!raw.empty()) {
      ways.push_back(written(raw));
    }
    // A class of few characters means each of them; a large one has enough without these.
    constexpr size_t kFew = 200;
    if (in_json && (raw.empty() || set.size() < kFew)) {
      static constexpr std::pair<char, const char*> kEscapes[] = {
          {'"', R"(\\")"},  {'\\', R"(\\\\)"}, {'\n', R"(\\n)"}, {'\r', R"(\\r)"},
          {'\t', R"(\\t)"}, {'\f', R"(\\f)"},  {'\b', R"(\\b)"}};
      for (const auto& [sign, escape] : kEscapes) {
        if (set.has(static_cast<char32_t>(sign))) {
          ways.emplace_back(escape);
        }
      }
    }
    if (ways.empty()) {
      return bad_pattern("must not match a control character");
    }
    std::string joined;
    for (const std::string& way : ways) {
      joined += (joined.empty() ? "" : "|") + way;
    }
    const bool bare = ways.size() == 1 && !raw.empty();
    out_ += bare ? joined : "(" + joined + ")";
    return ok();
  }

  static std::string written(const CharacterSet& set) {
    if (set.size() == 1) {
      return written(set.ranges().front().first);
    }
    std::string out = "[";
    for (const auto& [low, high] : set.ranges()) {
      out += written(low);
      out += high == low ? "" : high == low + 1 ? written(high) : "-" + written(high);
    }
    return out + "]";
  }

  static std::string written(char32_t sign) {
    constexpr std::string_view kSpecial = R"(^$\.*+?()[]{}|-/)";
    static constexpr char kHex[] = "0123456789abcdef";
    if (sign >= 0x20 && sign < 0x7F) {
      const char plain = static_cast<char>(sign);
      return kSpecial.find(plain) == std::string_view::npos ? std::string{plain}
                                                            : std::string{'\\', plain};
    }
    std::string hex;
    for (; sign > 0 || hex.size() < 2; sign >>= 4U) {
      hex.insert(hex.begin(), kHex[sign & 0xFU]);
    }
    return hex.size() == 2 && hex < "80" ? "\\x" + hex : "\\u{" + hex + "}";
  }

  const Place place_;
  std::string out_;
};

Result<std::string> write_pattern(const PatternTree& tree, Place place) {
  if (weight_of(tree) > limits::kPatternWeightMax) {
    return bad_pattern("repeats too much");
  }
  return Writer(place).write(tree);
}

// A pattern without its anchors. None if it cannot be followed, or has alternatives outside of
// groups.
struct Anchored {
  std::string_view inside;
  Anchors at;
};
std::optional<Anchored> read_anchors(std::string_view pattern) {
  Result<PatternTree> tree = parse_pattern(pattern);
  if (!tree || tree->kind == Kind::kChoice) {
    return std::nullopt;
  }
  Anchored read{.inside = pattern, .at = take_anchors(*tree)};
  read.inside.remove_prefix(read.at.begin ? 1 : 0);
  read.inside.remove_suffix(read.at.end ? 1 : 0);
  return read;
}

}  // namespace

Result<std::string> translate_pattern(std::string_view pattern, const MatchLength& length) {
  PDJOB_TRY(PatternTree tree, parse_pattern(followed_form(pattern)));
  PDJOB_TRY_STATUS(match_whole(tree));
  if (matches_everything(tree)) {
    return std::string();
  }
  MatchLength bound = length;
  if (bound.most != kUnbounded) {
    bound.most = std::min(bound.most, std::max<int64_t>(bound.least, limits::kPatternLengthMax));
  }
  if (!fit_length(tree, bound)) {
    return bad_pattern("does not fit minLength and maxLength");
  }
  return write_pattern(tree, Place::kInJson);
}

std::optional<std::string> join_patterns(std::string_view one, std::string_view other) {
  auto first = read_anchors(one);
  auto last = read_anchors(other);
  if (!first || !last || (first->at.begin && last->at.begin) || (first->at.end && last->at.end)) {
    return std::nullopt;
  }
  if (last->at.begin || first->at.end) {
    std::swap(first, last);
  }
  if (first->at.end || last->at.begin) {
    return std::nullopt;  // One of them anchors both sides.
  }
  std::string joined(first->at.begin ? "^" : "");
  joined.append(first->inside).append(".*").append(last->inside);
  return joined += last->at.end ? "$" : "";
}

Result<std::string> translate_regex(std::string_view regex) {
  PDJOB_TRY(PatternTree tree, parse_pattern(followed_form(regex)));
  // The text matches as a whole, with anchors or without.
  if (tree.kind == Kind::kChoice) {
    std::for_each(tree.parts.begin(), tree.parts.end(), take_anchors);
  } else {
    take_anchors(tree);
  }
  return write_pattern(tree, Place::kRaw);
}

}  // namespace pdjob::engine
