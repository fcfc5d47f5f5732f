#include "launcher/scaling/replacement_pace.h"

#include <algorithm>

namespace pdjob::launcher {

ReplacementPace::ReplacementPace(Duration first, const std::vector<GroupWait>& record)
    : first_(first) {
  for (const GroupWait& group : record) {
    groups_[group.name] = {.name = group.name,
                           .next = group.next,
                           .wait = std::clamp(group.wait, first, std::max(first, kWaitMax))};
  }
}

bool ReplacementPace::allows(std::string_view group, Instant now) const {
  const auto found = groups_.find(group);
  return found == groups_.end() || now >= found->second.next;
}

void ReplacementPace::replaced(const std::string& group, Instant now) {
  const auto [found, is_new] = groups_.try_emplace(group, GroupWait{.name = group, .wait = first_});
  GroupWait& row = found->second;
  row.wait = now >= row.next + row.wait ? first_ : row.wait;
  row.next = now + row.wait;
  row.wait = std::min(2 * row.wait, kWaitMax);
}

std::vector<GroupWait> ReplacementPace::record() const {
  std::vector<GroupWait> record;
  for (const auto& [name, group] : groups_) {
    record.push_back(group);
  }
  return record;
}

}  // namespace pdjob::launcher
