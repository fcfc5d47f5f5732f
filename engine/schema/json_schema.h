// Reads a client's JSON schema. The result is a schema with fewer keywords, which XGrammar follows
// exactly; XGrammar gets only this one, never the client's. Every output of it fits the client's
// schema, except for the parts that the result names. Pure.
//
// One rule is stricter than JSON Schema (OpenAI's strict mode). An object has only the named
// properties, in that order, unless additionalProperties allows others.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace pdjob::engine {

struct SchemaDemand {
  bool exact = true;    // Refuse what cannot be held. Otherwise name it, and hold the rest.
  bool object = false;  // The value is an object, even if the schema does not say so.
};

struct ReadSchema {
  std::string text;
  // What the output is not held to: "properties.tags: uniqueItems". At most kSchemaNotesMax.
  std::vector<std::string> not_held;
};

// Fails with kInvalidArgument if the text is not a JSON schema, is too large, allows no value, or
// cannot be held as demanded. The message names the JSON path, such as $.properties.age.
Result<ReadSchema> normalise_json_schema(std::string_view schema, const SchemaDemand& demand = {});

}  // namespace pdjob::engine
