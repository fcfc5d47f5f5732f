// Edits JSON objects in their text: one pass of simdjson finds a few top-level members, and new
// bodies are composed around them. All other bytes stay as they are. Escapes in a member's name do
// not hide it. An edit applies to every repetition of a name, because readers differ in which one
// counts.
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

namespace pdjob::openai {

struct JsonEdit {
  std::string_view name;
  std::string_view value;  // JSON text; empty: remove the member.
};

// Names to look for, in a small hash table. The compiler makes the table of a fixed list. It holds
// views of the names, which must outlive it. Value.
class JsonNames {
 public:
  static constexpr size_t kMax = 48;

  constexpr JsonNames() = default;
  // Keeps the first of equal names. Requires: at most kMax.
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
  // Returns size() for an unknown name.
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
  std::array<uint8_t, kSlots> index_at_{};  // Index + 1; 0: free.
};

// One scanned object. Holds positions, and views of the text and the names, which must outlive it.
// Value.
class JsonObject {
 public:
  static constexpr size_t kSlack = 64;  // Spare capacity that lets a text be parsed in place.

  // The values whose brackets are checked: they must match, and nest at most limits::kJsonDepthMax
  // deep. So all readers agree on where a value ends. Values are not checked further.
  enum class Check : uint8_t {
    kAll,    // For a text that others also read.
    kNamed,  // For a reply whose other members nobody reads.
  };
  // Finds the members called `names`. kInvalidArgument: `text` is not exactly one JSON object. A
  // text with kSlack bytes of spare capacity is parsed in place.
  static Result<JsonObject> scan(const std::string& text, const JsonNames& names,
                                 Check check = Check::kAll);
  static Result<JsonObject> scan(const std::string& text, std::span<const std::string_view> names) {
    return scan(text, JsonNames(names));
  }

  // The raw value of the last member of that name; empty if there is none. Requires: `name` was
  // scanned for.
  std::string_view value(std::string_view name) const;

  // Returns a new text. Members are replaced in place or removed; absent ones are added at the end.
  // Requires: the names were scanned for.
  std::string edited(std::span<const JsonEdit> edits) const;

 private:
  struct Member {
    size_t name = 0;  // Index in names_.
    bool is_first = false;
    bool is_last = false;
    size_t gap_begin = 0;  // End of the member before, or after '{'.
    size_t begin = 0;      // The name's opening quote.
    size_t value_begin = 0;
    size_t value_end = 0;
    size_t next_begin = 0;  // Start of the next member; undefined for the last.
  };

  std::string_view text_;
  JsonNames names_;
  std::vector<Member> members_;  // The found ones, in order of position.
  size_t members_total_ = 0;
  size_t inside_begin_ = 0;  // After '{'.
  size_t inside_end_ = 0;    // End of the last value; without members, after '{'.
};

// scan() and edited() in one call. Pure.
Result<std::string> edit_json_object(const std::string& text, std::span<const JsonEdit> edits);

struct JsonMember {
  std::string name;        // Unescaped.
  std::string_view value;  // Raw.
};
// All top-level members in order. Their values point into the text. kInvalidArgument as in
// JsonObject::scan(). Pure.
Result<std::vector<JsonMember>> json_members(const std::string& text);
Result<std::vector<JsonMember>> json_members(std::string&& text) = delete;

// True for a text that is JSON in every detail; the functions above check less. Pure.
bool is_valid_json(std::string_view text);

// Pure.
bool is_valid_utf8(std::string_view text);

// Appends `json` without white space between tokens; the tokens stay unchanged. Pure.
void append_compact(std::string& out, std::string_view json);

// True if an odd number of backslashes stands before text[at]. Pure.
inline bool is_json_escaped(std::string_view text, size_t at) {
  size_t first = at;
  while (first > 0 && text[first - 1] == '\\') {
    --first;
  }
  return (at - first) % 2 == 1;
}

// The end of the string that opens at text[at]: the position after its closing quote, or
// text.size() without one. Pure.
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

// The text of a JSON string that value() returned; empty optional for other values. Pure.
std::optional<std::string> json_string(std::string_view value);

// The raw items of a JSON array of objects that value() returned; otherwise an empty list. Pure.
std::vector<std::string> json_array_items(std::string_view value);

}  // namespace pdjob::openai
