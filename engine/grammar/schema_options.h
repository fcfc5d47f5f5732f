// Whether the options of a oneOf exclude each other, so that it means the same as anyOf. Only for
// json_schema.cc and its door, picojson. Pure.
#pragma once

#include <functional>

#include <picojson.h>

namespace pdjob::engine {

// The schema that a $ref leads to, or the given one; null if that is none.
using FollowRef = std::function<const picojson::object*(const picojson::value&)>;

// True if each pair of options differs in type, or in the values of a property that all of them
// require, or in their own values (const, enum).
bool exclude_each_other(const picojson::array& options, const FollowRef& follow);

}  // namespace pdjob::engine
