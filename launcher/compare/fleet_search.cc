#include "launcher/compare/fleet_search.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"

namespace pdjob::launcher {

std::string Fleet::name() const {
  std::string text =
      disaggregated() ? std::to_string(prefill) + " prefill + " + std::to_string(decode) + " decode"
                      : std::to_string(both) + " both";
  if (settings.chunk > 0) {
    text += ", chunk " + std::to_string(settings.chunk);
  }
  if (settings.sequences > 0) {
    text += ", " + std::to_string(settings.sequences) + " sequences";
  }
  return text + (settings.spills ? ", idle workers help" : "");
}

FleetScore FleetSearch::score(const Fleet& fleet, double rate) {
  const auto [found, is_new] = scores_.try_emplace({fleet, rate});
  if (is_new) {
    found->second = simulate_(fleet, rate);
  }
  return found->second;
}

// Climbs to the split that no split one step beside it beats. The steps shrink.
FoundFleet FleetSearch::best_split(uint32_t workers, const FleetSettings& settings, Climb& climb) {
  PDJOB_CHECK(workers >= 2);
  const auto at = [&](int64_t prefill) {
    const Fleet fleet{.prefill = static_cast<uint32_t>(prefill),
                      .decode = workers - static_cast<uint32_t>(prefill),
                      .settings = settings};
    return FoundFleet{fleet, score(fleet, options_.margin)};
  };
  const int64_t most = int64_t{workers} - 1;
  const int64_t begin = std::llround(climb.prefill_share * workers);
  FoundFleet best = at(std::clamp<int64_t>(begin, 1, most));
  for (int64_t step = std::max<int64_t>(1, workers / 8); step > 0;) {
    bool moved = false;
    for (const int64_t way : {step, -step}) {
      const int64_t next = int64_t{best.fleet.prefill} + way;
      if (next < 1 || next > most) {
        continue;
      }
      if (const FoundFleet other = at(next); other.score.better_than(best.score)) {
        best = other;
        moved = true;
        break;
      }
    }
    step = moved ? step : step / 2;
  }
  climb.prefill_share = static_cast<double>(best.fleet.prefill) / workers;
  return best;
}

FoundFleet FleetSearch::best_both(uint32_t workers, const FleetSettings& settings, Climb& climb) {
  const auto at = [&](size_t chunk) {
    Fleet fleet{.both = workers, .settings = settings};
    fleet.settings.chunk = options_.chunks[chunk];
    return FoundFleet{fleet, score(fleet, options_.margin)};
  };
  FoundFleet best = at(climb.chunk);
  for (bool moved = true; moved;) {
    moved = false;
    for (const size_t next : {climb.chunk + 1, climb.chunk - 1}) {  // -1 of 0 is out of range.
      if (next >= options_.chunks.size()) {
        continue;
      }
      if (const FoundFleet other = at(next); other.score.better_than(best.score)) {
        best = other;
        climb.chunk = next;
        moved = true;
        break;
      }
    }
  }
  return best;
}

FoundFleet FleetSearch::best_sizes(Kind kind, uint32_t workers, const FleetSettings& settings,
                                   Climb& climb) {
  const FoundFleet found = kind == Kind::kSplit ? best_split(workers, settings, climb)
                                                : best_both(workers, settings, climb);
  if (!nearest_ || found.score.better_than(nearest_->score)) {
    nearest_ = found;
  }
  return found;
}

std::optional<FoundFleet> FleetSearch::smallest_of(Kind kind) {
  Climb climb{.chunk = options_.chunks.size() / 2};
  const uint32_t least = kind == Kind::kSplit ? 2 : 1;
  uint32_t too_few = least - 1;
  std::optional<FoundFleet> found;
  for (uint32_t workers = least; !found && too_few < options_.workers_max;) {
    const FoundFleet best = best_sizes(kind, workers, {}, climb);
    if (enough(best.score)) {
      found = best;
    } else {
      too_few = workers;
      workers = std::min(workers * 2, options_.workers_max);
    }
  }
  while (found && found->fleet.workers() - too_few > 1) {
    const uint32_t middle = (too_few + found->fleet.workers()) / 2;
    const FoundFleet best = best_sizes(kind, middle, {}, climb);
    if (enough(best.score)) {
      found = best;
    } else {
      too_few = middle;
    }
  }
  return found;
}

std::vector<FleetSettings> FleetSearch::changes_of(const Fleet& fleet) const {
  std::vector<FleetSettings> changes;
  for (const uint32_t sequences : options_.sequences) {
    FleetSettings changed = fleet.settings;
    changed.sequences = sequences;
    changes.push_back(changed);
  }
  if (fleet.disaggregated() && !fleet.settings.spills) {
    FleetSettings changed = fleet.settings;
    changed.spills = true;
    changes.push_back(changed);
  }
  return changes;
}

FoundFleet FleetSearch::refined(FoundFleet found, uint32_t workers) {
  const Kind kind = found.fleet.disaggregated() ? Kind::kSplit : Kind::kBoth;
  const auto chunk = std::ranges::find(options_.chunks, found.fleet.settings.chunk);
  Climb climb{.chunk = chunk == options_.chunks.end()
                           ? 0
                           : static_cast<size_t>(chunk - options_.chunks.begin()),
              .prefill_share =
                  static_cast<double>(found.fleet.prefill) / std::max(found.fleet.workers(), 1U)};
  FoundFleet best = best_sizes(kind, workers, found.fleet.settings, climb);
  for (const FleetSettings& changed : changes_of(found.fleet)) {
    Climb from = climb;
    const FoundFleet other = best_sizes(kind, workers, changed, from);
    best = other.score.better_than(best.score) ? other : best;
  }
  return best;
}

FleetAnswer FleetSearch::finished(FleetAnswer answer) {
  answer.nearest = nearest_;
  answer.simulated = scores_.size();
  return answer;
}

FleetAnswer FleetSearch::smallest() {
  FleetAnswer answer;
  // Half of the workers do each half of the work, so a pair is no faster than one of both roles.
  answer.alone = {};
  for (const uint32_t chunk : {options_.chunks.front(), options_.chunks.back()}) {
    const FleetScore one = score({.both = 1, .settings = {.chunk = chunk}}, kOneByOne);
    answer.alone = one.better_than(answer.alone) || answer.alone.strain == 0 ? one : answer.alone;
  }
  answer.possible = enough(answer.alone);
  if (!answer.possible) {
    return finished(answer);
  }
  std::vector<FoundFleet> enough_fleets;
  for (const Kind kind : {Kind::kBoth, Kind::kSplit}) {
    std::optional<FoundFleet> found = smallest_of(kind);
    const uint32_t least = kind == Kind::kSplit ? 2 : 1;
    while (found && found->fleet.workers() > least) {
      const FoundFleet smaller = refined(*found, found->fleet.workers() - 1);
      if (!enough(smaller.score)) {
        break;
      }
      found = smaller;
    }
    if (found) {
      enough_fleets.push_back(*found);
    }
  }
  std::ranges::stable_sort(enough_fleets, [](const FoundFleet& one, const FoundFleet& other) {
    return one.fleet.workers() != other.fleet.workers()
               ? one.fleet.workers() < other.fleet.workers()
               : one.score.better_than(other.score);
  });
  if (!enough_fleets.empty()) {
    answer.best = enough_fleets.front();
  }
  if (enough_fleets.size() > 1) {
    answer.runner_up = enough_fleets.back();
  }
  return finished(answer);
}

FleetAnswer FleetSearch::best_of(uint32_t workers) {
  PDJOB_CHECK(workers > 0);
  FleetAnswer answer;
  std::vector<FoundFleet> fleets;
  for (const Kind kind : {Kind::kBoth, Kind::kSplit}) {
    if (kind == Kind::kSplit && workers < 2) {
      continue;
    }
    Climb climb{.chunk = options_.chunks.size() / 2};
    const FoundFleet first = best_sizes(kind, workers, {}, climb);
    fleets.push_back(refined(first, workers));
  }
  std::ranges::stable_sort(fleets, [](const FoundFleet& one, const FoundFleet& other) {
    return one.score.better_than(other.score);
  });
  answer.best = fleets.front();
  if (fleets.size() > 1) {
    answer.runner_up = fleets.back();
  }
  return finished(answer);
}

}  // namespace pdjob::launcher
