// ReplacementPace: when a serving worker of a group may be replaced, whatever the reason. After
// each replacement the group waits: for a first time, then twice as long each time, up to kWaitMax.
// The wait falls back after a while without a replacement. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/time.h"

namespace pdjob::launcher {

// For the next launcher, so that launchers that die cause no further replacements. Value.
struct GroupWait {
  std::string name;
  Instant next{};  // No replacement before.
  Duration wait{};
  friend bool operator==(const GroupWait&, const GroupWait&) = default;
};

class ReplacementPace {
 public:
  static constexpr Duration kWaitMax = std::chrono::hours(1);

  // Goes on with the record of an earlier launcher, whatever is in it.
  explicit ReplacementPace(Duration first, const std::vector<GroupWait>& record = {});

  bool allows(std::string_view group, Instant now) const;
  void replaced(const std::string& group, Instant now);
  std::vector<GroupWait> record() const;

 private:
  const Duration first_;
  std::map<std::string, GroupWait, std::less<>> groups_;
};

}  // namespace pdjob::launcher
