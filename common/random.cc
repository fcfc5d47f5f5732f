#include "common/random.h"

#include <sys/random.h>

#include "common/check.h"

namespace pdjob {

uint64_t entropy() {
  uint64_t value = 0;
  PDJOB_CHECK(getrandom(&value, sizeof value, 0) == sizeof value);
  return value;
}

}  // namespace pdjob
