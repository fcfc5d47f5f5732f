#include "common/check.h"

#include <cstdio>
#include <cstdlib>

namespace pdjob {

void check_failed(const char* file, int line, const char* expression, const std::string& values) {
  std::fprintf(stderr, "%s:%d: check failed: %s%s%s\n", file, line, expression,
               values.empty() ? "" : ":", values.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace pdjob
