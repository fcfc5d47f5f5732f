// JSON objects edited where they stand: one pass of simdjson finds a few top-level members, and new
// bodies are composed around them. What is not edited stays as it was, byte for byte. Members are
// found whatever escapes their names are written with, and an edit applies to every repetition of a
// name, since readers differ in which of them counts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/check.h"
#include "common/result.h"

namespace pdjob::net {

struct JsonEdit {
  std::string_view name;
  std::string_view value;  // JSON text; empty: the member is removed.
};

// Names of members that are looked for: a small hash table, which a fixed list has made when it is
// compiled. Views of the names, which must outlive it. Value.
class JsonNames {
 public:
  static constexpr size_t kMax = 32;

  constexpr JsonNames() = default;
  // Of equal names, the first. Requires: at most kMax.
  constexpr explicit JsonNames(std::span<const std::string_view> names) : names_(names) {
    PDJOB_CHECK(names.size() <= kMax, names.size());
    for (size_t i = 0; i < names.size(); ++i) {
      size_t slot = slot_of(names[i]);
      while (index_at_[slot] != 0) {
        slot = (slot + 1) % kSlots;
      }
      index_at_[slot] = static_cast<uint8_t>(i + 1);
    }
  }

  size_t size() const { return names_.size(); }
  std::string_view operator[](size_t index) const { return names_[index]; }
  // size(), if it is none of them.
  size_t index_of(std::string_view name) const {
    for (size_t slot = slot_of(name); index_at_[slot] != 0; slot = (slot + 1) % kSlots) {
      if (names_[index_at_[slot] - 1U] == name) {
        return index_at_[slot] - 1U;
      }
    }
    return size();
  }

 private:
  static constexpr size_t kSlots = 2 * kMax;
  static constexpr size_t slot_of(std::string_view name) {
    if (name.empty()) {
      return 0;
    }
    const auto code = [](char c) { return static_cast<size_t>(static_cast<unsigned char>(c)); };
    return (name.size() * 5 + code(name.front()) * 3 + code(name.back())) % kSlots;
  }

  std::span<const std::string_view> names_;
  std::array<uint8_t, kSlots> index_at_{};  // One more than the index; 0: free.
};

// One object, scanned. Holds positions, and views of the text and of the names, which must outlive
// it. Value.
class JsonObject {
 public:
  static constexpr size_t kSlack = 64;  // Spare capacity that lets a text be parsed where it is.

  // The values whose brackets must match, and nest no deeper than limits::kJsonDepthMax, so that no
  // two readers disagree on where they end. Nothing else is looked at inside of values.
  enum class Check : uint8_t {
    kAll,    // Of a text that somebody else reads, too.
    kNamed,  // Of a reply: nobody reads the other members.
  };
  // Finds the members called `names`. kInvalidArgument unless `text` is one JSON object and nothing
  // else. A text with kSlack bytes of spare capacity is parsed where it is.
  static Result<JsonObject> scan(const std::string& text, const JsonNames& names,
                                 Check check = Check::kAll);
  static Result<JsonObject> scan(const std::string& text, std::span<const std::string_view> names) {
    return scan(text, JsonNames(names));
  }

  // The value as it stands, of the last of that name; empty: none. Requires: `name` was scanned
  // for.
  std::string_view value(std::string_view name) const;

  // A new text: members replaced where they are, or removed; absent ones are added at the end.
  // Requires: the names were scanned for.
  std::string edited(std::span<const JsonEdit> edits) const;

 private:
  struct Member {
    size_t name = 0;  // Index in names_.
    bool is_first = false;
    bool is_last = false;
    size_t gap_begin = 0;  // Where the member before ends, or after '{'.
    size_t begin = 0;      // Of the name's quote.
    size_t value_begin = 0;
    size_t value_end = 0;
    size_t next_begin = 0;  // Of the following member; meaningless for the last.
  };

  std::string_view text_;
  JsonNames names_;
  std::vector<Member> members_;  // The found ones, in order of position.
  size_t members_total_ = 0;
  size_t inside_begin_ = 0;  // After '{'.
  size_t inside_end_ = 0;    // Where the last value ends; without members, after '{'.
};

// scan() and edited() in one. Pure.
Result<std::string> edit_json_object(const std::string& text, std::span<const JsonEdit> edits);

struct JsonMember {
  std::string name;        // Unescaped.
  std::string_view value;  // As it stands.
};
// All top-level members, in their order. kInvalidArgument as from JsonObject::scan(). Pure.
Result<std::vector<JsonMember>> json_members(const std::string& text);

// Is it JSON down to its last bracket? What is above looks no deeper than it must. Pure.
bool is_valid_json(std::string_view text);

// Appends `json` without the white space between its tokens; the tokens stay as they were written.
// Pure.
void append_compact(std::string& out, std::string_view json);

// Whether what stands at text[at] has an odd number of backslashes before it. Pure.
inline bool is_json_escaped(std::string_view text, size_t at) {
  size_t first = at;
  while (first > 0 && text[first - 1] == '\\') {
    --first;
  }
  return (at - first) % 2 == 1;
}

// Where a string that opens at text[at] ends: the position after its quote; text.size() if it does
// not end. Pure.
inline size_t end_of_json_string(std::string_view text, size_t at) {
  while (true) {
    const size_t quote = text.find('"', at + 1);
    if (quote == std::string_view::npos) {
      return text.size();
    }
    if (!is_json_escaped(text, quote)) {
      return quote + 1;
    }
    at = quote;
  }
}

// The text of a JSON string as found by value(); nothing if it is none. Pure.
std::optional<std::string> json_string(std::string_view value);

// The texts of the items of a JSON array as found by value(), if they are objects; else none. Pure.
std::vector<std::string> json_array_items(std::string_view value);

}  // namespace pdjob::net
