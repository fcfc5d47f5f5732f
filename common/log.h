// Logs one line per event to stderr, which the launcher points at the process's own log file. The
// only door to spdlog. Cores do not log; their shells log the events and effects. Secrets, prompts
// and outputs are never logged. Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace pdjob::log {

enum class Level { kDebug, kInfo, kWarn, kError, kNothing };

// Puts the process's name into every line. Earlier lines go to stderr without a name.
void start(const std::string& process_name, Level level);

void debug(std::string_view message);
void info(std::string_view message);
void warn(std::string_view message);
void error(std::string_view message);

}  // namespace pdjob::log
