// The version of this build. A launcher and its agents must have the same. Pure.
#pragma once

namespace pdjob::launcher {

const char* build_version();

}  // namespace pdjob::launcher
