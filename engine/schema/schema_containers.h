// Reads what a schema says of arrays and objects. Only for json_schema.cc, since it exposes
// picojson. Pure.
#pragma once

#include <functional>
#include <string>

#include "engine/schema/schema_json.h"
#include "engine/schema/schema_values.h"

namespace pdjob::engine {

// Where an array or object is read.
struct SchemaContext {
  std::string path;
  // Reads a schema below it; false: no value fits. `step`: its way from here, ".items".
  std::function<Result<picojson::value>(const picojson::value& schema, const std::string& step)>
      below;
  SchemaNotes& notes;
  SchemaCounts& counts;
};

// `in` has the client's words; `out` gets those that XGrammar follows. Sets `none` if no value
// fits.
Status read_array_words(const picojson::object& in, const SchemaContext& context,
                        picojson::object& out, bool& none);
Status read_object_words(const picojson::object& in, const SchemaContext& context,
                         picojson::object& out, bool& none);

}  // namespace pdjob::engine
