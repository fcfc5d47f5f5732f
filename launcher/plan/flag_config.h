// The configuration of a worker or router that is started by hand. Its flags become a job file, so
// that every key is declared once, with the same checks. Pure.
#pragma once

#include <string>
#include <vector>

#include "common/result.h"

namespace pdjob::launcher {

// Each setting is "section.key=value" ("engine.threads=2", "prefill.engine.threads=2"). Later
// settings win. Returns YAML. kInvalidArgument: a setting has another form.
Result<std::string> yaml_of_settings(const std::vector<std::string>& settings);

}  // namespace pdjob::launcher
