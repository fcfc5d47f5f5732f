#include "openai/json/json_edit.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include <nlohmann/json.hpp>
#include <simdjson.h>

#include "common/check.h"
#include "common/limits.h"

namespace pdjob::openai {
namespace {

namespace ondemand = simdjson::ondemand;

// A parser takes about six bytes per byte of text. The parser that we keep never grows beyond this
// text size.
constexpr size_t kKeptParserText = 1 * limits::kMiB;

static_assert(JsonObject::kSlack >= simdjson::SIMDJSON_PADDING);

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Skips white space before `end`, and returns the new end.
size_t skip_space_back(std::string_view text, size_t end) {
  while (end > 0 && is_space(text[end - 1])) {
    --end;
  }
  return end;
}

bool may_start_value(char c) {
  return c == '"' || c == '{' || c == '[' || (c >= '0' && c <= '9') || c == '-' || c == 't' ||
         c == 'f' || c == 'n';
}

// The brackets and quotes among sixteen bytes: each one has the highest bit of its byte set.
using Marks = std::array<uint64_t, 2>;
static_assert(std::endian::native == std::endian::little);
static_assert(simdjson::SIMDJSON_PADDING >= sizeof(Marks));

Marks brackets_and_quotes(const char* at) {
  using Block = unsigned char __attribute__((vector_size(sizeof(Marks))));
  Block block;
  std::memcpy(&block, at, sizeof block);
  // '[' and '{' differ in one bit, and so do ']' and '}'.
  const Block folded = block | static_cast<unsigned char>(0x20);
  const Block found = (folded == '{') | (folded == '}') | (block == '"');
  const Block highest = found & static_cast<unsigned char>(0x80);
  Marks marks;
  std::memcpy(marks.data(), &highest, sizeof marks);
  return marks;
}

// Follows the brackets of one value, starting with its first.
class Brackets {
 public:
  // Takes a bracket outside of strings. False: it does not match, or nests too deep.
  bool take(char bracket) {
    if (bracket == '{' || bracket == '[') {
      is_object_ = is_object_ << 1 | (bracket == '{' ? 1 : 0);
      return ++depth_ + 1 < limits::kJsonDepthMax;  // The object around it is a level, too.
    }
    const bool matches = depth_ > 0 && (is_object_ & 1) == (bracket == '}' ? 1U : 0U);
    is_object_ >>= 1;
    depth_ -= matches ? 1 : 0;
    return matches;
  }
  bool closed() const { return depth_ == 0; }

 private:
  static_assert(limits::kJsonDepthMax <= 64);
  uint64_t is_object_ = 0;  // One bit per open bracket, the innermost lowest.
  size_t depth_ = 0;
};

// Checks the brackets of a value that starts with one; the text may continue behind it. False: they
// do not match, or nest too deep.
bool brackets_match(simdjson::padded_string_view text, size_t at) {
  Brackets brackets;
  bool quoted = false;
  for (; at < text.size(); at += sizeof(Marks)) {
    const Marks found = brackets_and_quotes(text.data() + at);
    for (size_t half = 0; half < found.size(); ++half) {
      for (uint64_t marks = found[half]; marks != 0; marks &= marks - 1) {
        const size_t mark =
            at + half * sizeof marks + static_cast<size_t>(std::countr_zero(marks)) / 8;
        if (text[mark] == '"') {
          quoted = !quoted || is_json_escaped(text, mark);
        } else if (!quoted && !brackets.take(text[mark])) {
          return false;
        } else if (!quoted && brackets.closed()) {
          return mark < text.size();
        }
      }
    }
  }
  return false;
}

struct Span {
  size_t begin = 0;  // Start of the name.
  size_t value_begin = 0;
};

// Names are rarely escaped; such a name is the text between its quotes.
std::optional<std::string_view> plain_name(const char* begin, const char* end) {
  const char* at = begin;
  while (at < end && *at != '"' && *at != '\\') {
    ++at;
  }
  return at < end && *at == '"' ? std::optional(std::string_view(begin, at)) : std::nullopt;
}

// Calls `found(unescaped name, span)` for each top-level member; true from it: check the brackets.
// Returns false unless the text is one JSON object.
template <class Found>
bool walk(ondemand::parser& parser, simdjson::padded_string_view text, const Found& found) {
  ondemand::document document;
  ondemand::object object;
  if (parser.iterate(text).get(document) != simdjson::SUCCESS ||
      document.get_object().get(object) != simdjson::SUCCESS) {
    return false;
  }
  for (auto item : object) {
    ondemand::field field;
    if (std::move(item).get(field) != simdjson::SUCCESS) {
      return false;
    }
    const char* const name_begin = field.key().raw() - 1;
    const auto plain = plain_name(name_begin + 1, text.data() + text.size());
    std::string_view name = plain.value_or(std::string_view());
    if (!plain && field.unescaped_key().get(name) != simdjson::SUCCESS) {
      return false;
    }
    const char* const value_begin = field.value().raw_json_token().data();
    const auto value_at = static_cast<size_t>(value_begin - text.data());
    const bool nests = *value_begin == '[' || *value_begin == '{';
    const bool checked = found(name, Span{static_cast<size_t>(name_begin - text.data()), value_at});
    if (!may_start_value(*value_begin) || (nests && checked && !brackets_match(text, value_at))) {
      return false;
    }
  }
  // Nothing follows the object; simdjson has no simpler way to ask.
  return document.current_location().error() == simdjson::OUT_OF_BOUNDS;
}

template <class Found>
bool walk_padded(simdjson::padded_string_view text, const Found& found) {
  if (text.size() > kKeptParserText) {
    ondemand::parser parser;
    return walk(parser, text, found);
  }
  thread_local ondemand::parser parser;
  return walk(parser, text, found);
}

template <class Found>
bool walk(const std::string& text, const Found& found) {
  if (text.capacity() - text.size() >= JsonObject::kSlack) {
    return walk_padded(simdjson::padded_string_view(text.data(), text.size(), text.capacity()),
                       found);
  }
  return walk_padded(simdjson::padded_string(text), found);
}

// Returns the end of the value before a member: white space and one comma follow it.
size_t end_before(std::string_view text, size_t member_begin) {
  return skip_space_back(text, skip_space_back(text, member_begin) - 1);
}

Error not_an_object() { return {ErrorCode::kInvalidArgument, "not a JSON object"}; }

// Between two such characters, white space separates tokens.
bool is_word(char c) { return std::string_view("{}[],:\"").find(c) == std::string_view::npos; }

}  // namespace

Result<JsonObject> JsonObject::scan(const std::string& text, const JsonNames& names, Check check) {
  JsonObject object;
  object.text_ = text;
  object.names_ = names;
  object.members_.reserve(names.size());
  size_t gap_begin = 0;
  bool previous_found = false;
  const auto found = [&](std::string_view name, const Span& span) {
    if (object.members_total_ == 0) {
      object.inside_begin_ = gap_begin = text.find('{') + 1;
    } else {
      gap_begin = end_before(text, span.begin);
    }
    if (previous_found) {
      Member& previous = object.members_.back();
      previous.is_last = false;
      previous.value_end = gap_begin;
      previous.next_begin = span.begin;
    }
    const size_t index = object.names_.index_of(name);
    previous_found = index < object.names_.size();
    if (previous_found) {
      object.members_.push_back({.name = index,
                                 .is_first = object.members_total_ == 0,
                                 .is_last = true,
                                 .gap_begin = gap_begin,
                                 .begin = span.begin,
                                 .value_begin = span.value_begin});
    }
    ++object.members_total_;
    return previous_found || check == Check::kAll;
  };
  if (!walk(text, found)) {
    return not_an_object();
  }
  // The text ends in '}' and white space.
  object.inside_end_ = end_before(text, text.size());
  if (object.members_total_ == 0) {
    object.inside_begin_ = object.inside_end_;
  }
  if (previous_found) {
    object.members_.back().value_end = object.inside_end_;
  }
  return object;
}

std::string_view JsonObject::value(std::string_view name) const {
  const size_t index = names_.index_of(name);
  PDJOB_CHECK(index < names_.size(), name);
  for (auto member = members_.rbegin(); member != members_.rend(); ++member) {
    if (member->name == index) {
      return text_.substr(member->value_begin, member->value_end - member->value_begin);
    }
  }
  return {};
}

std::string JsonObject::edited(std::span<const JsonEdit> edits) const {
  std::array<const JsonEdit*, JsonNames::kMax> edit_of{};
  size_t added_bytes = 0;
  for (const JsonEdit& edit : edits) {
    const size_t index = names_.index_of(edit.name);
    PDJOB_CHECK(index < names_.size(), edit.name);
    edit_of[index] = &edit;
    added_bytes += edit.name.size() + edit.value.size() + 4;
  }
  std::string out;
  out.reserve(text_.size() + added_bytes);
  size_t copied = 0;
  const auto copy_to = [&](size_t end) {
    if (end > copied) {
      out.append(text_.substr(copied, end - copied));
      copied = end;
    }
  };
  size_t removed = 0;
  bool starts_with_removed = true;  // All members so far were removed.
  size_t expected_begin = 0;        // Start of the next member, as long as that holds.
  std::array<bool, JsonNames::kMax> present{};
  for (const Member& member : members_) {
    const JsonEdit* const edit = edit_of[member.name];
    present[member.name] = true;
    starts_with_removed =
        starts_with_removed && (member.is_first || (removed > 0 && member.begin == expected_begin));
    if (edit == nullptr) {
      starts_with_removed = false;
    } else if (!edit->value.empty()) {
      copy_to(member.value_begin);
      out.append(edit->value);
      copied = member.value_end;
      starts_with_removed = false;
    } else {
      ++removed;
      // The comma before the member goes with it; for the first one, the comma after it.
      copy_to(member.gap_begin);
      copied = starts_with_removed && !member.is_last ? member.next_begin : member.value_end;
      expected_begin = member.next_begin;
    }
  }
  copy_to(inside_end_);
  bool is_empty = removed == members_total_;
  for (size_t i = 0; i < names_.size(); ++i) {
    if (edit_of[i] != nullptr && !edit_of[i]->value.empty() && !present[i]) {
      out.append(std::exchange(is_empty, false) ? "\"" : ",\"").append(names_[i]).append("\":");
      out.append(edit_of[i]->value);
    }
  }
  out.append(text_.substr(copied));
  return out;
}

Result<std::string> edit_json_object(const std::string& text, std::span<const JsonEdit> edits) {
  std::vector<std::string_view> names;
  for (const JsonEdit& edit : edits) {
    names.push_back(edit.name);
  }
  PDJOB_TRY(const JsonObject object, JsonObject::scan(text, names));
  return object.edited(edits);
}

Result<std::vector<JsonMember>> json_members(const std::string& text) {
  std::vector<JsonMember> members;
  const std::string_view all = text;
  const auto end_value = [&](size_t end) {
    if (!members.empty()) {
      std::string_view& value = members.back().value;
      value = value.substr(0, end - static_cast<size_t>(value.data() - all.data()));
    }
  };
  const auto found = [&](std::string_view name, const Span& span) {
    end_value(end_before(all, span.begin));
    members.push_back({std::string(name), all.substr(span.value_begin)});
    return true;
  };
  if (!walk(text, found)) {
    return not_an_object();
  }
  end_value(end_before(all, all.size()));
  return members;
}

bool is_valid_json(std::string_view text) {
  simdjson::dom::parser parser;
  return parser.parse(text.data(), text.size()).error() == simdjson::SUCCESS;
}

bool is_valid_utf8(std::string_view text) {
  return simdjson::validate_utf8(text.data(), text.size());
}

void append_compact(std::string& out, std::string_view json) {
  bool in_string = false;
  bool spaced = false;
  for (size_t at = 0; at < json.size(); ++at) {
    const char c = json[at];
    if (!in_string && is_space(c)) {
      spaced = true;
      continue;
    }
    if (std::exchange(spaced, false) && !out.empty() && is_word(out.back()) && is_word(c)) {
      out.push_back(' ');
    }
    out.push_back(c);
    if (in_string && c == '\\' && at + 1 < json.size()) {
      out.push_back(json[++at]);
    } else if (c == '"') {
      in_string = !in_string;
    }
  }
}

std::optional<std::string> json_string(std::string_view value) {
  if (value.size() < 2 || value.front() != '"' || value.back() != '"') {
    return std::nullopt;
  }
  if (value.find('\\') == std::string_view::npos) {
    return std::string(value.substr(1, value.size() - 2));
  }
  const auto parsed = nlohmann::json::parse(value, nullptr, false);
  return parsed.is_string() ? std::optional(parsed.get<std::string>()) : std::nullopt;
}

std::vector<std::string> json_array_items(std::string_view value) {
  std::vector<std::string> items;
  size_t depth = 0;
  size_t begin = 0;
  bool in_string = false;
  for (size_t at = 0; at < value.size(); ++at) {
    if (value[at] == '\\') {
      ++at;  // Only strings have backslashes; a quote may follow.
    } else if (value[at] == '"') {
      in_string = !in_string;
    } else if (!in_string && value[at] == '{') {
      begin = depth == 0 ? at : begin;
      ++depth;
    } else if (!in_string && value[at] == '}' && depth > 0) {
      --depth;
      if (depth == 0) {
        items.emplace_back(value.substr(begin, at + 1 - begin));
      }
    }
  }
  return items;
}

}  // namespace pdjob::openai
