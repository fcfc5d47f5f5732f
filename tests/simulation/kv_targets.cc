#include "tests/simulation/kv_targets.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace pdjob::simulation {

KvTargets::KvTargets(KvProcess& process, size_t places) : process_(process), places_(places) {}

bool KvTargets::fetch(TransferId id, const kvtransfer::EndpointAddress& peer, Wanted wanted,
                      Instant deadline) {
  if (fetches_.contains(id) || free() == 0) {
    return false;
  }
  auto place = std::ranges::find_if(slots_, [](const Slot& slot) { return slot.canary != 0; });
  if (place == slots_.end()) {
    Slot& made = slots_.emplace_back();
    made.canary = mix(slots_.size());
    made.rows.fill(made.canary, 0, kKvRowsMax);
    place = std::prev(slots_.end());
  }
  process_.expect(place->rows.holds(place->canary, kKvRowsMax),
                  "rows that were given on are not written:", id);
  place->canary = 0;
  const uint64_t number = ++fetches_made_;
  const uint32_t rows = wanted.rows;
  fetches_[id] = {.slot = static_cast<size_t>(place - slots_.begin()),
                  .wanted = std::move(wanted),
                  .number = number};
  if (deadline != kNever) {
    process_.loop().call_at(deadline + std::chrono::milliseconds(1), [=, this] {
      const auto found = fetches_.find(id);
      process_.expect(
          found == fetches_.end() || found->second.number != number || found->second.reported,
          "a fetch ends by its deadline:", id);
    });
  }
  process_.endpoint().receiver().fetch(id, peer, place->rows.region(), rows, deadline);
  return true;
}

std::vector<TransferId> KvTargets::ids() const {
  std::vector<TransferId> ids;
  for (const auto& [id, fetch] : fetches_) {
    ids.push_back(id);
  }
  return ids;
}

bool KvTargets::take(const kvtransfer::FetchDone& event) {
  const auto found = fetches_.find(event.id);
  if (found == fetches_.end() || found->second.reported) {
    return false;
  }
  const Fetch& fetch = found->second;
  const KvRows& rows = slots_[fetch.slot].rows;
  process_.expect(
      event.rows == fetch.wanted.rows &&
          std::ranges::any_of(fetch.wanted.owners,
                              [&](uint64_t owner) { return rows.holds(owner, fetch.wanted.rows); }),
      "committed rows are the sender's:", event.id);
  process_.expect(event.tail == fetch.wanted.tail, "a tail arrives as it was sent:", event.id);
  give_on(event.id);
  return true;
}

bool KvTargets::take(const kvtransfer::FetchFailed& event) {
  const auto found = fetches_.find(event.id);
  if (found == fetches_.end() || found->second.reported) {
    return false;
  }
  found->second.reported = true;
  if (event.region_safe) {
    give_on(event.id);
  }
  return true;
}

bool KvTargets::take(const kvtransfer::FetchReleased& event) {
  const auto found = fetches_.find(event.id);
  if (found == fetches_.end() || !found->second.reported) {
    return false;
  }
  give_on(event.id);
  return true;
}

void KvTargets::give_on(TransferId id) {
  const auto fetch = fetches_.extract(id);
  Slot& slot = slots_[fetch.mapped().slot];
  slot.canary = mix(fetch.mapped().number + 1000);
  slot.rows.fill(slot.canary, 0, kKvRowsMax);
}

void KvTargets::check_idle() const {
  process_.expect(fetches_.empty(), "every fetch ends and gives its rows on, but", fetches_.size(),
                  "live");
  for (const Slot& slot : slots_) {
    process_.expect(slot.canary == 0 || slot.rows.holds(slot.canary, kKvRowsMax),
                    "rows that were given on are not written");
  }
}

}  // namespace pdjob::simulation
