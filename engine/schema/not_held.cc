#include "engine/schema/not_held.h"

#include <algorithm>

#include "common/limits.h"

namespace pdjob::engine {

void NotHeld::add(const std::string& place, const std::vector<std::string>& parts) {
  constexpr size_t kRoomForTheRest = 32;
  for (const std::string& part : parts) {
    const bool inside = part.find(": ") != std::string::npos;
    std::string one = place;
    one.append(inside ? "." : ": ").append(part);
    std::replace_if(
        one.begin(), one.end(), [](char sign) { return sign < 0x20 || sign > 0x7E || sign == ';'; },
        '?');
    if (line_.size() + one.size() + kRoomForTheRest > limits::kNotHeldBytesMax) {
      ++left_out_;
      continue;
    }
    line_ += (line_.empty() ? "" : "; ") + one;
  }
}

std::string NotHeld::line() const {
  if (left_out_ == 0) {
    return line_;
  }
  return line_ + (line_.empty() ? "" : "; ") + "and " + std::to_string(left_out_) + " more";
}

}  // namespace pdjob::engine
