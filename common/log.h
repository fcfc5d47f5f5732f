// Logs one line per event to stderr, which the launcher points at the process's own log file. The
// only door to spdlog. Cores do not log; their shells log the events and effects. Secrets, prompts
// and outputs are never logged. Thread-safe.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "common/time.h"

namespace pdjob::log {

enum class Level { kDebug, kInfo, kWarn, kError, kNothing };

// Puts the process's name into every line. Earlier lines go to stderr without a name.
void start(const std::string& process_name, Level level);

void debug(std::string_view message);
void info(std::string_view message);
void warn(std::string_view message);
void error(std::string_view message);

}  // namespace pdjob::log

namespace pdjob {

// Limits one kind of warning to one line per interval; counters have all of them. Value.
class WarnGate {
 public:
  explicit WarnGate(Duration interval = std::chrono::seconds(1)) : interval_(interval) {}

  // Returns true if the warning is to be logged now.
  bool opens(Instant now) {
    const bool open = now - opened_ >= interval_;
    opened_ = open ? now : opened_;
    return open;
  }

 private:
  Duration interval_;
  Instant opened_{};
};

}  // namespace pdjob
