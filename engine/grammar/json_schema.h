// Reads a client's JSON schema. The schema is refused unless all of it is within limits, understood
// and followed exactly. The result is a schema with fewer keywords and the same meaning. XGrammar
// gets only this one, never the client's. Pure.
//
// One rule is stricter than JSON Schema (OpenAI's strict mode). An object has only the named
// properties, in that order, unless additionalProperties allows others.
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"

namespace pdjob::engine {

// Fails with kInvalidArgument if the text is not a JSON schema, is too large, or uses unsupported
// keywords. The message names the JSON path, such as $.properties.age.
Result<std::string> normalise_json_schema(std::string_view schema);

}  // namespace pdjob::engine
