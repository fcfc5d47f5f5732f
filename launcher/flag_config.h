// The configuration of a worker or router that is started by hand: its flags as a job file, so that
// every key exists once, with the same checks. Pure.
#pragma once

#include <string>
#include <vector>

#include "common/result.h"

namespace pdjob::launcher {

// Each setting is "section.key=value" ("engine.threads=2", "prefill.engine.threads=2"); later ones
// win. The text is YAML. kInvalidArgument: a setting is not of that form.
Result<std::string> yaml_of_settings(const std::vector<std::string>& settings);

}  // namespace pdjob::launcher
