// ScalingRecord: what the next launcher of a job needs to know about its sizes. Values.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/time.h"

namespace pdjob::launcher {

// A decision, or what happened to a process, with its reason.
struct Note {
  static constexpr size_t kTextBytesMax = 1024;
  Instant at{};
  std::string text;  // Whole lines.
  friend bool operator==(const Note&, const Note&) = default;
};

struct ScalingRecord {
  static constexpr size_t kNotesMax = 256;
  std::vector<Note> notes;           // The newest last.
  std::vector<std::string> by_hand;  // Groups whose size a person has set.
  friend bool operator==(const ScalingRecord&, const ScalingRecord&) = default;
};

}  // namespace pdjob::launcher
