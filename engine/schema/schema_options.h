// Finds whether the options of a oneOf exclude each other; then it means the same as anyOf. Only
// for json_schema.cc, since it exposes picojson. Pure.
#pragma once

#include <functional>

#include <picojson.h>

namespace pdjob::engine {

// The schema that a $ref leads to, or the given one without a $ref; null if there is none.
using FollowRef = std::function<const picojson::object*(const picojson::value&)>;

// True if each two options differ in type, in their own values (const, enum), in the values of a
// property that both require, or in the properties that they require and allow.
bool exclude_each_other(const picojson::array& options, const FollowRef& follow);

}  // namespace pdjob::engine
