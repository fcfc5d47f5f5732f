#include "launcher/placement/gang.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "launcher/placement/gang_search.h"

namespace pdjob::launcher {
namespace {

using Counts = std::vector<uint32_t>;  // By group.
using Members = std::vector<size_t>;   // Groups, by number.
using Terms = Placement::Terms;

// A placement that is only tried.
struct Attempt {
  Placement placement;
  GangPlaces places;
};

bool take_one(Attempt& attempt, const Group& group, size_t number, const Terms& terms) {
  auto choice = attempt.placement.take(group.demand, terms);
  if (choice) {
    attempt.places[number].push_back(std::move(*choice));
  }
  return choice.has_value();
}

std::vector<GroupCount> counts_of(const Attempt& attempt, const Counts& wanted) {
  std::vector<GroupCount> counts;
  for (size_t g = 0; g < wanted.size(); ++g) {
    counts.push_back({.placed = attempt.places[g].size(), .wanted = wanted[g]});
  }
  return counts;
}

class Placer {
 public:
  Placer(const Placement& placement, const std::vector<Group>& groups)
      : placement_(placement), groups_(groups) {
    const std::vector<NodeShare> shares = placement.shares();
    overcommits_ = std::ranges::any_of(
        shares, [](const NodeShare& share) { return share.node().overcommits; });
  }

  std::optional<Attempt> place(const Counts& wanted);
  void grow(Attempt& attempt) const;
  // Why place(wanted) failed.
  std::string shortage(const Counts& wanted) const;

 private:
  enum class First { kScarcest, kLargest };

  Attempt begin() const { return {placement_, GangPlaces(groups_.size())}; }
  std::optional<Attempt> place_near(const Counts& wanted, bool overcommit) const;
  bool place_model(Attempt& attempt, const Members& members, const Counts& wanted,
                   bool overcommit) const;
  bool take_turns(Attempt& attempt, const Members& members, const Counts& wanted,
                  const Terms& terms) const;
  Members order_by(First first, const Counts& wanted, bool overcommit) const;
  Attempt place_tightly(First first, const Counts& wanted, bool overcommit) const;
  // What is searched for, and the group of each want.
  struct Division {
    const Counts& wanted;
    bool overcommit = false;
    std::vector<SearchGroup> wants = {};
    Members groups = {};
    uint32_t searches_left = 64;
  };
  std::optional<Attempt> place_by_search(const Counts& wanted, bool overcommit);
  std::optional<Attempt> divide(size_t g, Division& division);
  std::optional<Attempt> divide_over(std::span<const std::string> clusters, size_t g,
                                     uint32_t workers, Division& division);
  std::optional<Attempt> search(Division& division);
  std::vector<Members> models() const;

  const Placement& placement_;
  const std::vector<Group>& groups_;
  bool overcommits_ = false;
  bool gave_up_ = false;
};

bool complete(const Attempt& attempt, const Counts& wanted) {
  return next_group(counts_of(attempt, wanted)) == wanted.size();
}

std::optional<Attempt> Placer::place(const Counts& wanted) {
  for (const bool overcommit : {false, true}) {
    if (overcommit && !overcommits_) {
      break;
    }
    const bool hopeless = std::ranges::any_of(groups_, [&](const Group& group) {
      const uint32_t count = wanted[static_cast<size_t>(&group - groups_.data())];
      return placement_.room(group.demand, {.overcommit = overcommit}, count) < count;
    });
    if (hopeless) {
      continue;
    }
    if (auto near = place_near(wanted, overcommit)) {
      return near;
    }
    for (const First first : {First::kScarcest, First::kLargest}) {
      Attempt tight = place_tightly(first, wanted, overcommit);
      if (complete(tight, wanted)) {
        return tight;
      }
    }
    if (auto found = place_by_search(wanted, overcommit)) {
      return found;
    }
  }
  return std::nullopt;
}

std::vector<Members> Placer::models() const {
  std::vector<Members> models;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const auto same = std::ranges::find_if(models, [&](const Members& members) {
      return groups_[members.front()].demand.model == groups_[g].demand.model;
    });
    same == models.end() ? models.push_back({g}) : same->push_back(g);
  }
  return models;
}

std::optional<Attempt> Placer::place_near(const Counts& wanted, bool overcommit) const {
  Attempt attempt = begin();
  for (const Members& members : models()) {
    if (!place_model(attempt, members, wanted, overcommit)) {
      return std::nullopt;
    }
  }
  return attempt;
}

// In the first cluster that holds all of it, else over all of them.
bool Placer::place_model(Attempt& attempt, const Members& members, const Counts& wanted,
                         bool overcommit) const {
  const std::vector<std::string> clusters = attempt.placement.clusters();
  for (const std::string& cluster : clusters) {
    const Terms terms{.overcommit = overcommit, .cluster = cluster};
    const bool room =
        clusters.size() > 1 && std::ranges::all_of(members, [&](size_t g) {
          return attempt.placement.room(groups_[g].demand, terms, wanted[g]) >= wanted[g];
        });
    if (!room) {
      continue;
    }
    Attempt trial = attempt;
    if (take_turns(trial, members, wanted, terms)) {
      attempt = std::move(trial);
      return true;
    }
  }
  return take_turns(attempt, members, wanted, {.overcommit = overcommit});
}

bool Placer::take_turns(Attempt& attempt, const Members& members, const Counts& wanted,
                        const Terms& terms) const {
  Counts only(wanted.size());
  for (const size_t g : members) {
    only[g] = wanted[g];
  }
  std::vector<GroupCount> counts = counts_of(attempt, only);
  for (size_t g = next_group(counts); g < groups_.size(); g = next_group(counts)) {
    if (!take_one(attempt, groups_[g], g, terms)) {
      return false;
    }
    ++counts[g].placed;
  }
  return true;
}

// The groups from the one that wants the largest share of its room, or from the one with the
// largest workers.
Members Placer::order_by(First first, const Counts& wanted, bool overcommit) const {
  std::vector<std::pair<std::array<int64_t, 3>, size_t>> order;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Demand& demand = groups_[g].demand;
    if (first == First::kLargest) {
      const auto memory = static_cast<int64_t>(demand.memory_bytes);
      const int64_t gpus = int64_t{demand.gpus} * demand.gpu_percent;
      order.push_back({{-gpus, -int64_t{demand.cores}, -memory}, g});
      continue;
    }
    constexpr uint64_t kFull = 1000;  // Times of what is wanted.
    const uint64_t enough = kFull * wanted[g];
    const uint64_t room = placement_.room(demand, {.overcommit = overcommit}, enough);
    order.push_back({{static_cast<int64_t>(enough == 0 ? 0 : kFull * room / wanted[g])}, g});
  }
  std::ranges::sort(order);
  Members members;
  for (const auto& [rank, g] : order) {
    members.push_back(g);
  }
  return members;
}

// It may be incomplete.
Attempt Placer::place_tightly(First first, const Counts& wanted, bool overcommit) const {
  Attempt attempt = begin();
  for (const size_t g : order_by(first, wanted, overcommit)) {
    const Terms terms{.overcommit = overcommit, .tight = true};
    while (attempt.places[g].size() < wanted[g] && take_one(attempt, groups_[g], g, terms)) {
    }
  }
  return attempt;
}

// The parts of a worker are in one cluster, and the search knows no clusters. So it is asked for
// each way to divide such workers over them.
std::optional<Attempt> Placer::place_by_search(const Counts& wanted, bool overcommit) {
  Division division{.wanted = wanted, .overcommit = overcommit};
  return divide(0, division);
}

std::optional<Attempt> Placer::divide(size_t g, Division& division) {
  if (g == groups_.size()) {
    return search(division);
  }
  const std::vector<std::string> clusters = placement_.clusters();
  if (groups_[g].demand.parts == 1 || clusters.size() == 1) {
    division.wants.push_back({.demand = groups_[g].demand, .workers = division.wanted[g]});
    division.groups.push_back(g);
    auto found = divide(g + 1, division);
    division.wants.pop_back();
    division.groups.pop_back();
    return found;
  }
  return divide_over(clusters, g, division.wanted[g], division);
}

// The first of these clusters gets all of the workers, or fewer.
std::optional<Attempt> Placer::divide_over(std::span<const std::string> clusters, size_t g,
                                           uint32_t workers, Division& division) {
  if (clusters.empty()) {
    return workers == 0 ? divide(g + 1, division) : std::nullopt;
  }
  std::optional<Attempt> found;
  for (uint32_t here = workers + 1; here-- > 0 && !found;) {
    SearchGroup part{.demand = groups_[g].demand, .workers = here};
    const auto& may = part.demand.clusters;
    if (here > 0 && !may.empty() && std::ranges::find(may, clusters.front()) == may.end()) {
      continue;
    }
    part.demand.clusters = {clusters.front()};
    division.wants.push_back(std::move(part));
    division.groups.push_back(g);
    found = divide_over(clusters.subspan(1), g, workers - here, division);
    division.wants.pop_back();
    division.groups.pop_back();
  }
  return found;
}

std::optional<Attempt> Placer::search(Division& division) {
  if (division.searches_left == 0) {
    gave_up_ = true;
    return std::nullopt;
  }
  division.searches_left -= 1;
  const std::vector<NodeShare> nodes = placement_.shares();
  // Parts of GPUs are taken as the search takes them: the larger ones first.
  std::vector<size_t> order(division.wants.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(),
                           [&](size_t w) { return division.wants[w].demand.gpu_percent; });
  std::vector<SearchGroup> wants;
  for (const size_t w : order) {
    wants.push_back(division.wants[w]);
  }
  const SearchResult result = search_places(nodes, wants, division.overcommit);
  gave_up_ = gave_up_ || result.outcome == SearchResult::Outcome::kGivenUp;
  if (result.outcome != SearchResult::Outcome::kFound) {
    return std::nullopt;
  }
  Attempt attempt = begin();
  for (size_t w = 0; w < wants.size(); ++w) {
    const size_t g = division.groups[order[w]];
    const uint32_t workers = wants[w].workers;
    std::vector<std::string> parts;  // Their nodes. None has more than there are workers.
    for (size_t n = 0; n < nodes.size(); ++n) {
      parts.insert(parts.end(), result.counts[w][n], nodes[n].node().name);
    }
    for (uint32_t worker = 0; worker < workers; ++worker) {
      std::vector<std::string> own;
      for (size_t i = worker; i < parts.size(); i += workers) {
        own.push_back(parts[i]);
      }
      auto place = attempt.placement.take_on(own, groups_[g].demand);
      PDJOB_CHECK(place.has_value(), groups_[g].name);
      attempt.places[g].push_back({.place = std::move(*place), .why = Reason::kSearched});
    }
  }
  return attempt;
}

void Placer::grow(Attempt& attempt) const {
  Counts wanted;
  for (const Group& group : groups_) {
    wanted.push_back(group.workers);
  }
  std::vector<GroupCount> counts = counts_of(attempt, wanted);
  for (size_t g = next_group(counts); g < groups_.size(); g = next_group(counts)) {
    counts[g].stuck = !take_one(attempt, groups_[g], g, {});
    counts[g].placed += counts[g].stuck ? 0 : 1;
  }
}

std::string Placer::shortage(const Counts& wanted) const {
  const Attempt attempt = place_tightly(First::kScarcest, wanted, overcommits_);
  std::string text;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const size_t placed = attempt.places[g].size();
    if (placed >= wanted[g]) {
      continue;
    }
    const uint32_t parts = groups_[g].demand.parts;
    const Shortfall each{
        .cores = groups_[g].demand.cores,
        .gpus = groups_[g].demand.gpus,
        .gpu_percent = groups_[g].demand.gpu_percent,
        .memory_bytes = groups_[g].demand.memory_bytes + groups_[g].demand.file_bytes};
    text += (text.empty() ? "" : "; ") + groups_[g].name + " has places for " +
            std::to_string(placed) + " of " + std::to_string(wanted[g]) + " workers, each with " +
            (parts > 1 ? std::to_string(parts) + " nodes of " : "") +
            (each.none() ? "a node" : each.text()) + ": " +
            attempt.placement.nearest(groups_[g].demand);
  }
  return text + (gave_up_ ? "; there may be a way to place them that was not found" : "");
}

}  // namespace

size_t next_group(const std::vector<GroupCount>& groups) {
  size_t best = groups.size();
  for (size_t g = 0; g < groups.size(); ++g) {
    const GroupCount& group = groups[g];
    if (group.stuck || group.placed >= group.wanted) {
      continue;
    }
    if (best == groups.size() ||
        group.placed * groups[best].wanted < groups[best].placed * group.wanted) {
      best = g;
    }
  }
  return best;
}

Result<GangPlaces> place_together(Placement& placement, const std::vector<Group>& groups) {
  Counts all;
  Counts least;
  for (const Group& group : groups) {
    PDJOB_CHECK(group.workers_min <= group.workers, group.name);
    all.push_back(group.workers);
    least.push_back(group.workers_min);
  }
  Placer placer(placement, groups);
  std::optional<Attempt> attempt = placer.place(all);
  if (!attempt && least != all) {
    attempt = placer.place(least);
    if (attempt) {
      placer.grow(*attempt);
    }
  }
  if (!attempt) {
    return Error{ErrorCode::kUnavailable, placer.shortage(least)};
  }
  placement = std::move(attempt->placement);
  return std::move(attempt->places);
}

}  // namespace pdjob::launcher
