#include "engine/text_stream.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

namespace pdjob::engine {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct Character {
  size_t bytes = 0;
  enum { kWhole, kInvalid, kUnfinished } state = kInvalid;
};

// The character at the beginning of `text` (not empty). An invalid one spans its maximal valid
// prefix, as Unicode recommends.
Character first_character(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = at(0);
  if (lead < 0x80) {
    return {1, Character::kWhole};
  }
  if (lead < 0xC2 || lead > 0xF4) {
    return {1, Character::kInvalid};
  }
  const size_t bytes = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte is narrower for some leads: no overlong forms, surrogates, or code points past
  // U+10FFFF.
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < bytes; ++i) {
    if (i == text.size()) {
      return {i, Character::kUnfinished};
    }
    if (at(i) < (i == 1 ? low : 0x80) || at(i) > (i == 1 ? high : 0xBF)) {
      return {i, Character::kInvalid};
    }
  }
  return {bytes, Character::kWhole};
}

// Appends the complete or invalid characters in the first `limit` bytes of `text`. Returns how many
// bytes it used.
size_t append_characters(std::string_view text, size_t limit, std::string& out) {
  size_t done = 0;
  while (done < limit) {
    const Character next = first_character(text.substr(done));
    if (next.state == Character::kUnfinished || done + next.bytes > limit) {
      break;
    }
    out += next.state == Character::kWhole ? text.substr(done, next.bytes) : kReplacement;
    done += next.bytes;
  }
  return done;
}

// Appends all of `text`; an incomplete character at its end is replaced.
void append_all(std::string_view text, std::string& out) {
  if (append_characters(text, text.size(), out) < text.size()) {
    out += kReplacement;
  }
}

struct Match {
  size_t begin = 0;
  size_t end = 0;
};

// The stop string that ends first in the text, behind its first `passed` bytes. If several end
// there, the one that begins first wins. So the result does not depend on how the text was split
// into tokens.
std::optional<Match> find_stop(std::string_view text, size_t passed,
                               const std::vector<std::string>& stops) {
  std::optional<Match> found;
  for (const std::string& stop : stops) {
    const size_t begin = text.find(stop, passed < stop.size() ? 0 : passed - stop.size() + 1);
    if (begin == std::string_view::npos) {
      continue;
    }
    const Match match{begin, begin + stop.size()};
    if (!found || match.end < found->end ||
        (match.end == found->end && match.begin < found->begin)) {
      found = match;
    }
  }
  return found;
}

// The start of the longest suffix of `text` that begins some stop string; text.size() if there is
// none.
size_t possible_stop(std::string_view text, const std::vector<std::string>& stops) {
  size_t start = text.size();
  for (const std::string& stop : stops) {
    const size_t longest = std::min(stop.size() - 1, text.size());
    for (size_t at = text.size() - longest; at < start; ++at) {
      if (std::string_view(stop).starts_with(text.substr(at))) {
        start = at;
      }
    }
  }
  return start;
}

}  // namespace

TextStream::TextStream(const StopParams& stop) : include_stop_(stop.include_stop_string) {
  std::vector<std::string> stops = stop.strings;
  std::erase(stops, "");
  stops_ = std::make_shared<const std::vector<std::string>>(std::move(stops));
}

bool TextStream::push(std::string_view piece, std::string& out, Stops stops) {
  held_ += piece;
  passed_ = stops == Stops::kPass ? held_.size() : passed_;
  if (const auto stop = find_stop(held_, passed_, *stops_)) {
    stop_ = held_.substr(stop->begin, stop->end - stop->begin);
    append_all(std::string_view(held_).substr(0, include_stop_ ? stop->end : stop->begin), out);
    held_.clear();
    return true;
  }
  const size_t shown = append_characters(held_, possible_stop(held_, *stops_), out);
  held_.erase(0, shown);
  passed_ -= std::min(passed_, shown);
  return false;
}

void TextStream::finish(std::string& out) {
  append_all(held_, out);
  held_.clear();
}

}  // namespace pdjob::engine
