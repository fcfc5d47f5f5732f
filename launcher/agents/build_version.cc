#include "launcher/agents/build_version.h"

namespace pdjob::launcher {

const char* build_version() { return PDJOB_VERSION; }

}  // namespace pdjob::launcher
