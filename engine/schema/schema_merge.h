// Makes one schema of several that all apply to a value: of allOf, and of what stands beside $ref,
// anyOf or oneOf. Only for json_schema.cc, since it exposes picojson. Pure.
#pragma once

#include <string>

#include "engine/schema/schema_json.h"
#include "engine/schema/schema_references.h"

namespace pdjob::engine {

class SchemaMerger {
 public:
  SchemaMerger(SchemaReferences& references, SchemaNotes& notes)
      : references_(references), notes_(notes) {}

  // A schema without $ref and allOf at its top that means all of them; false if they exclude each
  // other. `path` is for errors. Fails with kInvalidArgument if they cannot be put together.
  Result<picojson::value> merge(const picojson::array& schemas, const std::string& path);

 private:
  Status add(picojson::object& into, const picojson::value& schema, const std::string& path,
             size_t depth);
  Status add_word(picojson::object& into, const std::string& word, const picojson::value& value,
                  const std::string& path);
  Status add_options(picojson::object& into, const std::string& word, const picojson::value& value,
                     const std::string& path);

  SchemaReferences& references_;
  SchemaNotes& notes_;
  size_t merged_ = 0;
};

}  // namespace pdjob::engine
