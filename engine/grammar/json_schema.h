// Reads a client's JSON schema: what is in it is bounded, understood and followed exactly, or
// refused. What comes out is a schema of fewer words with the same meaning, the only form that
// XGrammar is given. Never what a client wrote. Pure.
//
// Narrower than JSON Schema in this: an object has the properties that are named and no others,
// unless additionalProperties allows them (OpenAI's strict mode), in the order in which they are
// named.
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"

namespace pdjob::engine {

// kInvalidArgument: not JSON, no schema, too much, or not supported; the message begins with the
// JSON path, such as $.properties.age.
Result<std::string> normalise_json_schema(std::string_view schema);

}  // namespace pdjob::engine
