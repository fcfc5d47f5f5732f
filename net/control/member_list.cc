#include "net/control/member_list.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <tuple>
#include <unordered_set>

namespace pdjob::net {
namespace {

// prefill-2 comes before prefill-10.
auto place_of(const WorkerEntry& entry) {
  return std::tuple(entry.role, entry.name.size(), std::string_view(entry.name));
}

void change(std::vector<WorkerEntry>& list, const std::vector<WorkerEntry>& changed,
            const std::vector<Departure>& left) {
  std::unordered_set<std::string_view> gone;
  for (const Departure& departure : left) {
    gone.insert(departure.name);
  }
  for (const WorkerEntry& entry : changed) {
    gone.insert(entry.name);
  }
  std::erase_if(list, [&](const WorkerEntry& entry) { return gone.contains(entry.name); });
  list.insert(list.end(), changed.begin(), changed.end());
  std::ranges::sort(list, {}, place_of);
}

}  // namespace

bool MemberList::take(const Membership& told) {
  if (told.version < version_ || told.since > version_) {
    return false;
  }
  version_ = told.version;
  if (told.since == 0) {
    workers_.clear();
    routers_.clear();
    stores_.clear();
  }
  change(workers_, told.workers, told.left);
  change(routers_, told.routers, told.left);
  change(stores_, told.stores, told.left);
  return true;
}

std::vector<WorkerEntry> MemberList::serving() const {
  std::vector<WorkerEntry> serving;
  std::ranges::copy_if(workers_, std::back_inserter(serving), [](const WorkerEntry& worker) {
    return worker.standing == Standing::kServing;
  });
  return serving;
}

}  // namespace pdjob::net
