// Reads a client's JSON schema. All of it is bounded, understood and followed exactly, or it is
// refused. The result is a schema of fewer words with the same meaning. XGrammar gets this one,
// never what a client wrote. Pure.
//
// One thing is narrower than in JSON Schema: an object has only the properties that are named, in
// that order, unless additionalProperties allows others (OpenAI's strict mode).
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"

namespace pdjob::engine {

// kInvalidArgument: not JSON, no schema, too much, or not supported; the message begins with the
// JSON path, such as $.properties.age.
Result<std::string> normalise_json_schema(std::string_view schema);

}  // namespace pdjob::engine
