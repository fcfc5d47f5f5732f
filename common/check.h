// PDJOB_CHECK(condition, values...) catches our own bugs. It is always on. It prints the expression
// and the values, then aborts; the launcher's restart policy sees the exit. Do not use it for
// failures that a user, a peer or the machine can cause.
#pragma once

#include <sstream>
#include <string>

namespace pdjob {

[[noreturn]] void check_failed(const char* file, int line, const char* expression,
                               const std::string& values);

template <class... Values>
[[noreturn]] void check_failed_with(const char* file, int line, const char* expression,
                                    const Values&... values) {
  std::ostringstream text;
  ((text << ' ' << values), ...);
  check_failed(file, line, expression, text.str());
}

}  // namespace pdjob

#define PDJOB_CHECK(condition, ...)                                                          \
  do {                                                                                       \
    if (!(condition)) [[unlikely]] {                                                         \
      ::pdjob::check_failed_with(__FILE__, __LINE__, #condition __VA_OPT__(, ) __VA_ARGS__); \
    }                                                                                        \
  } while (false)
