// The texts of `--help` below the options of each command: what its columns mean, and examples.
// Pure.
#pragma once

#include <string_view>

namespace pdjob::launcher {

// `command` is "" for pdjob itself, "batch status" for a command of a command. Empty: unknown.
std::string_view help_text_of(std::string_view command);

}  // namespace pdjob::launcher
