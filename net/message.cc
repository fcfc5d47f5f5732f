#include "net/message.h"

#include "common/check.h"

namespace pdjob::net {

const char* to_string(Role role) {
  switch (role) {
    case Role::kPrefill:
      return "prefill";
    case Role::kDecode:
      return "decode";
    case Role::kBoth:
      return "both";
    case Role::kRouter:
      return "router";
  }
  PDJOB_CHECK(false, static_cast<int>(role));
}

}  // namespace pdjob::net
