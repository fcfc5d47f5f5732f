// The JSON of a schema, and what its words are. Only for files that read schemas, since it exposes
// picojson. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <picojson.h>

#include "common/result.h"

namespace pdjob::engine {

// Parses a schema, within the limit of its nesting. Members that are null are left out, as they ask
// for nothing: some serializers write every field. Fails with kInvalidArgument.
Result<picojson::value> parse_schema(std::string_view text);

const picojson::value* member(const picojson::object& object, const std::string& name);

// True if the member is this boolean.
bool says(const picojson::object& object, const std::string& name, bool what);

bool is_number(const picojson::value& value);
double number_of(const picojson::value& value);  // picojson's get<double>() changes the value.

// True for {"not": {}} and false: no value fits.
bool allows_nothing(const picojson::value& schema);

// True if the word asks something of values. Unknown words are annotations, as JSON Schema says.
bool constrains(const std::string& word);
// The words that only apply to values of this type.
const std::vector<std::string>& words_of_type(const std::string& type);

// "the JSON schema at PATH: WHAT", with the path cut if it is long.
Error refused_schema(const std::string& path, const std::string& what);

// The parts of a schema that its output is not held to.
class SchemaNotes {
 public:
  // `exact`: there must be none.
  explicit SchemaNotes(bool exact) : exact_(exact) {}

  // Fails with kInvalidArgument if there must be none; `step` is the way from `path` to the place.
  Status not_held(const std::string& path, const std::string& word, const std::string& why,
                  const std::string& step = "");
  // An annotation that is not followed; never fails.
  void ignored(const std::string& path, const std::string& word);

  // "properties.a: uniqueItems"
  std::vector<std::string> take() { return std::move(notes_); }

 private:
  const bool exact_;
  std::vector<std::string> notes_;
};

}  // namespace pdjob::engine
