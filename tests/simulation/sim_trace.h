// The events of a run, line by line. They are hashed, so that two runs can be compared, and printed
// on request.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "common/random.h"
#include "common/time.h"

namespace pdjob::simulation {

class SimTrace {
 public:
  enum class Print { kNo, kYes };
  explicit SimTrace(Print print) : print_(print) {}

  void line(Instant now, const std::string& who, const std::string& what) {
    const int64_t at = now.time_since_epoch().count();
    hash_ = mix(hash_ ^ static_cast<uint64_t>(at));
    for (const std::string* text : {&who, &what}) {
      for (const char c : *text) {
        hash_ = (hash_ ^ static_cast<uint8_t>(c)) * 0x100000001b3;  // FNV-1a
      }
    }
    ++lines_;
    if (print_ == Print::kYes) {
      const Duration since_start = now - Instant(std::chrono::hours(1));
      std::printf("%12.6f  %-6s %s\n", seconds(since_start), who.c_str(), what.c_str());
    }
  }

  uint64_t hash() const { return hash_; }
  uint64_t lines() const { return lines_; }

 private:
  const Print print_;
  uint64_t hash_ = 0;
  uint64_t lines_ = 0;
};

}  // namespace pdjob::simulation
