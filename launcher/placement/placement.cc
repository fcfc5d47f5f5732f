#include "launcher/placement/placement.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "common/check.h"

namespace pdjob::launcher {
namespace {

bool admits(const NodeShare& share, const Demand& demand, const Placement::Terms& terms) {
  return (terms.cluster.empty() || share.node().cluster == terms.cluster) &&
         (terms.overcommit ? share.lack(demand) : share.shortfall(demand)).none();
}

uint32_t level_of(const std::string& node, const TrustLevels* levels) {
  const auto level = levels == nullptr ? TrustLevels::const_iterator() : levels->find(node);
  return levels == nullptr || level == levels->end() ? 0 : level->second;
}

// The position in a Rank says what is compared there.
Reason reason_at(size_t position, const Demand& demand, bool tight) {
  const bool pack = demand.arrange == Arrange::kPack;
  switch (position) {
    case 0:
      return Reason::kOthersAreFull;
    case 1:
      return Reason::kTrusted;
    case 2:
      return Reason::kSameCluster;
    case 3:
      return Reason::kGpusNear;
    case 4:
      return Reason::kLeavesGpus;
    case 5:
      return tight ? Reason::kTightest : pack ? Reason::kBesideModel : Reason::kFewestOfGroup;
    case 6:
      return Reason::kKvStays;
    default:
      return tight ? Reason::kTightest : Reason::kMostCores;
  }
}

// How many places of so many parts on different nodes there are, where `rooms` has the parts that
// each node could take. No node helps more than once with one place; nothing else is in the way.
uint64_t whole_places(const std::vector<uint64_t>& rooms, uint64_t parts, uint64_t enough) {
  uint64_t places = 0;
  for (uint64_t step = std::bit_floor(enough); step > 0; step /= 2) {
    const uint64_t tried = places + step;
    uint64_t sum = 0;
    for (const uint64_t room : rooms) {
      sum += std::min(room, tried);
    }
    places = tried <= enough && sum >= tried * parts ? tried : places;
  }
  return places;
}

// In thousandths of what is wanted, over all that is short.
uint64_t distance(const Shortfall& lack, const Demand& demand) {
  const auto share = [](uint64_t missing, uint64_t wanted) {
    return wanted == 0 ? 0
                       : static_cast<uint64_t>(1000.0 * static_cast<double>(missing) /
                                               static_cast<double>(wanted));
  };
  return share(lack.cores, demand.cores) + share(lack.gpus, demand.gpus) +
         share(lack.memory_bytes, demand.memory_bytes + demand.file_bytes);
}

}  // namespace

const char* to_string(Reason reason) {
  switch (reason) {
    case Reason::kOthersAreFull:
      return "others are full";
    case Reason::kTrusted:
      return "others failed lately";
    case Reason::kSameCluster:
      return "its model is in this cluster";
    case Reason::kGpusNear:
      return "its GPUs are near each other";
    case Reason::kLeavesGpus:
      return "leaves GPUs to others";
    case Reason::kFewestOfGroup:
      return "fewest of its group";
    case Reason::kBesideModel:
      return "beside its model";
    case Reason::kKvStays:
      return "KV stays on the node";
    case Reason::kTightest:
      return "leaves least over";
    case Reason::kMostCores:
      return "most free cores";
    case Reason::kFirstName:
      return "first by name";
    case Reason::kOnlyOne:
      return "the only node that fits";
    case Reason::kSearched:
      return "found by search";
  }
  PDJOB_CHECK(false, static_cast<int>(reason));
}

Placement::Placement(const std::vector<Node>& nodes) {
  for (const Node& node : nodes) {
    add(node);
  }
}

const Placement::NodeState* Placement::find(const std::string& node) const {
  const auto row = std::ranges::lower_bound(
      rows_, node, {},
      [](const NodeState& each) -> const std::string& { return each.share.node().name; });
  return row != rows_.end() && row->share.node().name == node ? &*row : nullptr;
}

Placement::NodeState* Placement::find(const std::string& node) {
  return const_cast<NodeState*>(std::as_const(*this).find(node));
}

const Node* Placement::node(const std::string& name) const {
  const NodeState* const row = find(name);
  return row == nullptr ? nullptr : &row->share.node();
}

bool Placement::has_room_elsewhere(const Demand& demand, const std::string& node,
                                   uint32_t level_max, const TrustLevels& levels) const {
  const auto with_room = std::ranges::count_if(rows_, [&](const NodeState& row) {
    const std::string& name = row.share.node().name;
    return name != node && level_of(name, &levels) <= level_max && row.share.accepted_by(demand) &&
           row.share.lack(demand).none();
  });
  return static_cast<uint64_t>(with_room) >= demand.parts;
}

bool Placement::shares_cores(const Place& place, const Demand& demand) const {
  const NodeState* const row = find(place.node);
  if (row == nullptr || !demand.lends || row->share.cores_free() > 0) {
    return false;
  }
  const auto own = std::ranges::find(kinds_, demand, &Kind::demand);
  return own != kinds_.end() && std::ranges::any_of(own->partners, [&](size_t partner) {
           return row->counts[partner] > 0 && kinds_[partner].demand.lends;
         });
}

void Placement::add(const Node& node) {
  ++changes_;
  NodeState* known = find(node.name);
  if (known != nullptr) {
    move_counts(*known, node.cluster);
    known->share.resize(node);
  } else {
    const auto after = std::ranges::upper_bound(
        rows_, node.name, {},
        [](const NodeState& each) -> const std::string& { return each.share.node().name; });
    known = &*rows_.insert(after, NodeState{.share = NodeShare(node),
                                            .counts = std::vector<int64_t>(kinds_.size()),
                                            .accepted = std::vector<char>(kinds_.size())});
  }
  for (size_t kind = 0; kind < kinds_.size(); ++kind) {
    known->accepted[kind] = static_cast<char>(known->share.accepted_by(kinds_[kind].demand));
  }
}

void Placement::remove(const std::string& node) {
  ++changes_;
  if (const NodeState* const row = find(node)) {
    move_counts(*row, "");
    rows_.erase(rows_.begin() + (row - rows_.data()));
  }
}

void Placement::move_counts(const NodeState& row, const std::string& to) {
  for (size_t kind = 0; kind < kinds_.size(); ++kind) {
    kinds_[kind].in_cluster[row.share.node().cluster] -= row.counts[kind];
    if (!to.empty()) {
      kinds_[kind].in_cluster[to] += row.counts[kind];
    }
  }
}

size_t Placement::kind_of(const Demand& demand) {
  for (size_t kind = 0; kind < kinds_.size(); ++kind) {
    if (kinds_[kind].demand == demand) {
      return kind;
    }
  }
  const size_t added = kinds_.size();
  kinds_.push_back({.demand = demand, .partners = {}, .relatives = {added}, .in_cluster = {}});
  for (size_t kind = 0; kind < added && !demand.model.empty(); ++kind) {
    if (kinds_[kind].demand.model != demand.model) {
      continue;
    }
    kinds_[kind].relatives.push_back(added);
    kinds_[added].relatives.push_back(kind);
    if (kinds_[kind].demand.role != demand.role) {
      kinds_[kind].partners.push_back(added);
      kinds_[added].partners.push_back(kind);
    }
  }
  for (NodeState& row : rows_) {
    row.counts.push_back(0);
    row.accepted.push_back(static_cast<char>(row.share.accepted_by(demand)));
  }
  return added;
}

std::map<std::string, int64_t, std::less<>> Placement::relatives_by_cluster(size_t kind) const {
  std::map<std::string, int64_t, std::less<>> sums;
  for (const size_t relative : kinds_[kind].relatives) {
    for (const auto& [cluster, count] : kinds_[relative].in_cluster) {
      sums[cluster] += count;
    }
  }
  return sums;
}

// Smaller is better. reason_at() names the positions.
Placement::Rank Placement::rank(const NodeState& row, size_t kind, int64_t relatives_in_cluster,
                                const Terms& terms) const {
  const Demand& demand = kinds_[kind].demand;
  const int64_t distrust = level_of(row.share.node().name, terms.levels);
  const int64_t strained = row.share.shortfall(demand).none() ? 0 : 1;
  const auto gpus_free = static_cast<int64_t>(row.share.gpus_free());
  const int64_t gpus_wasted = demand.gpus == 0 ? gpus_free : 0;
  if (terms.tight) {
    return {strained, distrust, 0, 0, gpus_wasted, gpus_free, 0, row.share.cores_free()};
  }
  const auto sum = [&](const std::vector<size_t>& kinds) {
    int64_t total = 0;
    for (const size_t each : kinds) {
      total += row.counts[each];
    }
    return total;
  };
  const int64_t own = row.counts[kind];
  const bool pack = demand.arrange == Arrange::kPack;
  const int64_t gpus_apart =
      demand.near != Near::kNothing && row.share.near_gpus_free() < demand.gpus ? 1 : 0;
  const int64_t lonely = sum(kinds_[kind].partners) > own ? 0 : 1;
  return {strained,
          distrust,
          -relatives_in_cluster,
          gpus_apart,
          gpus_wasted,
          pack ? -sum(kinds_[kind].relatives) : own,
          pack ? 0 : lonely,
          -row.share.cores_free()};
}

std::optional<Reason> Placement::take_part(size_t kind, const Terms& terms,
                                           const std::set<std::string>& clusters_left_out,
                                           Place& place) {
  const Demand& demand = kinds_[kind].demand;
  const auto relatives = relatives_by_cluster(kind);
  constexpr Rank kNone = {std::numeric_limits<int64_t>::max()};
  NodeState* best = nullptr;
  Rank first = kNone;
  Rank second = kNone;
  for (NodeState& row : rows_) {
    const Node& node = row.share.node();
    if (row.accepted[kind] == 0 || !admits(row.share, demand, terms) ||
        place.has_part_on(node.name) || clusters_left_out.contains(node.cluster)) {
      continue;
    }
    const auto near = relatives.find(node.cluster);
    const Rank own = rank(row, kind, near == relatives.end() ? 0 : near->second, terms);
    if (own < first) {
      second = std::exchange(first, own);
      best = &row;
    } else {
      second = std::min(second, own);
    }
  }
  if (best == nullptr) {
    return std::nullopt;
  }
  count(*best, kind, 1);
  place.add(best->share.take(demand));
  const auto differs =
      static_cast<size_t>(std::ranges::mismatch(first, second).in1 - first.begin());
  return second == kNone          ? Reason::kOnlyOne
         : differs < first.size() ? reason_at(differs, demand, terms.tight)
                                  : Reason::kFirstName;
}

std::optional<ChosenPlace> Placement::take(const Demand& demand, const Terms& terms) {
  const size_t kind = kind_of(demand);
  std::set<std::string> too_small;  // Clusters.
  while (true) {
    ChosenPlace choice;
    const auto why = take_part(kind, terms, too_small, choice.place);
    if (!why) {
      return std::nullopt;
    }
    choice.why = *why;
    const std::string cluster = find(choice.place.node)->share.node().cluster;
    Terms beside = terms;
    beside.cluster = cluster;
    uint32_t parts = 1;
    while (parts < demand.parts && take_part(kind, beside, {}, choice.place)) {
      ++parts;
    }
    if (parts == demand.parts) {
      return choice;
    }
    release(choice.place, demand);
    too_small.insert(cluster);
  }
}

std::optional<Place> Placement::take_on(const std::vector<std::string>& nodes,
                                        const Demand& demand) {
  Place place;
  for (const std::string& node : nodes) {
    NodeState* const row = find(node);
    if (row == nullptr || !row->share.accepted_by(demand) || !row->share.lack(demand).none()) {
      release(place, demand);
      return std::nullopt;
    }
    count(*row, kind_of(demand), 1);
    place.add(row->share.take(demand));
  }
  return place;
}

void Placement::take(const Place& place, const Demand& demand) {
  for (const PlacePart& part : place.parts()) {
    if (NodeState* const row = find(part.node)) {
      count(*row, kind_of(demand), 1);
      row->share.take(part, demand);
    }
  }
}

void Placement::release(const Place& place, const Demand& demand) {
  for (const PlacePart& part : place.parts()) {
    if (NodeState* const row = find(part.node)) {
      count(*row, kind_of(demand), -1);
      row->share.release(part, demand);
    }
  }
}

void Placement::count(NodeState& row, size_t kind, int64_t change) {
  ++changes_;
  row.counts[kind] += change;
  PDJOB_CHECK(row.counts[kind] >= 0, row.share.node().name);
  kinds_[kind].in_cluster[row.share.node().cluster] += change;
}

uint64_t Placement::room(const Demand& demand, const Terms& terms, uint64_t enough) const {
  std::map<std::string_view, std::vector<uint64_t>> rooms;  // By cluster, of each node.
  uint64_t count = 0;
  for (const NodeState& row : rows_) {
    const std::string& cluster = row.share.node().cluster;
    if (count >= enough || !row.share.accepted_by(demand) ||
        (!terms.cluster.empty() && cluster != terms.cluster)) {
      continue;
    }
    if (demand.parts == 1) {
      count += row.share.room(demand, terms.overcommit, enough - count);
    } else {
      rooms[cluster].push_back(row.share.room(demand, terms.overcommit, enough));
    }
  }
  for (const auto& [cluster, nodes] : rooms) {
    count += count < enough ? whole_places(nodes, demand.parts, enough - count) : 0;
  }
  return count;
}

std::string Placement::nearest(const Demand& demand) const {
  const NodeState* best = nullptr;
  std::tuple<size_t, uint64_t> least;
  for (const NodeState& row : rows_) {
    const std::tuple own(refusals(row.share.node(), demand).size(),
                         distance(row.share.lack(demand), demand));
    if (best == nullptr || own < least) {
      best = &row;
      least = own;
    }
  }
  if (best == nullptr) {
    return "there is no node";
  }
  const Node& node = best->share.node();
  std::vector<std::string> reasons = refusals(node, demand);
  const Shortfall lack = best->share.lack(demand);
  if (!lack.none()) {
    reasons.push_back("lacks " + lack.text());
  }
  if (lack.cores > 0 && !node.cores_bound.empty()) {
    reasons.push_back("has " + cores_text(node));
  }
  if (lack.memory_bytes > 0 && !node.memory_bound.empty()) {
    reasons.push_back("has " + memory_text(node));
  }
  std::string text = "node " + node.name + " comes nearest: it";
  for (const std::string& reason : reasons) {
    text += (&reason == &reasons.front() ? " " : ", ") + reason;
  }
  return text;
}

std::vector<std::string> Placement::clusters() const {
  std::set<std::string> names;
  for (const NodeState& row : rows_) {
    names.insert(row.share.node().cluster);
  }
  return {names.begin(), names.end()};
}

std::vector<NodeShare> Placement::shares() const {
  std::vector<NodeShare> shares;
  for (const NodeState& row : rows_) {
    shares.push_back(row.share);
  }
  return shares;
}

}  // namespace pdjob::launcher
