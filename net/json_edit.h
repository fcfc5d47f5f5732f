// JSON objects edited where they stand: one pass of simdjson finds a few top-level members, and new
// bodies are composed around them. What is not edited stays as it was, byte for byte. Members are
// found whatever escapes their names are written with, and an edit applies to every repetition of a
// name, since readers differ in which of them counts.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace pdjob::net {

struct JsonEdit {
  std::string_view name;
  std::string_view value;  // JSON text; empty: the member is removed.
};

// One object, scanned. Holds positions, and views of the text and of the names, which must outlive
// it. Value.
class JsonObject {
 public:
  static constexpr size_t kNamesMax = 32;
  static constexpr size_t kSlack = 64;  // Spare capacity that lets a text be parsed where it is.

  // Finds the members called `names`. kInvalidArgument unless `text` is one JSON object and nothing
  // else; what is inside values is not looked at more closely than is needed to find their ends. A
  // text with kSlack bytes of spare capacity is parsed where it is. Requires: at most kNamesMax
  // names.
  static Result<JsonObject> scan(const std::string& text, std::span<const std::string_view> names);

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

  size_t index_of(std::string_view name) const;

  std::string_view text_;
  std::span<const std::string_view> names_;
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

// The text of a JSON string as found by value(); nothing if it is none. Pure.
std::optional<std::string> json_string(std::string_view value);

// The texts of the items of a JSON array as found by value(), if they are objects; else none. Pure.
std::vector<std::string> json_array_items(std::string_view value);

}  // namespace pdjob::net
