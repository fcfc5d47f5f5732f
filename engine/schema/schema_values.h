// Reads what a schema says of one string, number or listed value. Only for json_schema.cc, since it
// exposes picojson. Pure.
#pragma once

#include <string>
#include <vector>

#include "engine/schema/schema_json.h"

namespace pdjob::engine {

// All lengths and counts of items of one schema together are bounded.
class SchemaCounts {
 public:
  explicit SchemaCounts(SchemaNotes& notes) : notes_(notes) {}

  // Reads `least` and `most`, such as minLength and maxLength, into `out`. A `most` beyond the
  // bound becomes the bound. Fails with kInvalidArgument.
  Status read(const picojson::object& in, const std::string& path, const std::string& least,
              const std::string& most, int64_t bound, picojson::object& out);

 private:
  SchemaNotes& notes_;
  size_t together_ = 0;
};

// `in` has the client's words for strings; `out` gets those that XGrammar follows.
Status read_string_words(const picojson::object& in, const std::string& path, SchemaNotes& notes,
                         SchemaCounts& counts, picojson::object& out);

// `type`: "integer" or "number". Sets `nothing` if no number fits.
Status read_number_words(const std::string& type, const picojson::object& in,
                         const std::string& path, SchemaNotes& notes, picojson::object& out,
                         bool& nothing);

bool has_type(const picojson::value& value, const std::string& type);

// The values of an enum that fit the words beside it.
picojson::array values_that_fit(const picojson::array& values, const picojson::object& schema,
                                const std::vector<std::string>& types);

}  // namespace pdjob::engine
