#include "launcher/placement/gang_search.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <tuple>

#include "common/check.h"

namespace pdjob::launcher {
namespace {

using Outcome = SearchResult::Outcome;

// What is left of a node, in numbers only.
struct Left {
  int64_t cores = 0;
  int64_t gpus = 0;
  int64_t memory = 0;
  std::vector<int64_t> file_uses;   // By file.
  std::vector<uint32_t> gpu_parts;  // Percent of each GPU; empty: nobody wants a part of one.
  friend bool operator==(const Left&, const Left&) = default;
};

struct Want {
  int64_t cores = 0;
  int64_t gpus = 0;
  uint32_t gpu_percent = kWholeGpu;
  int64_t memory = 0;
  size_t file = 0;  // The first of several groups brings it to a node.
  int64_t file_bytes = 0;
  uint32_t workers = 0;  // Their parts, each counted as a worker.
  uint32_t most = 0;     // On one node.
};

constexpr uint32_t kMany = std::numeric_limits<uint32_t>::max();

uint32_t times(int64_t free, int64_t each) {
  if (each <= 0) {
    return kMany;
  }
  return free <= 0 ? 0 : static_cast<uint32_t>(std::min<int64_t>(free / each, kMany));
}

uint32_t parts_in(const std::vector<uint32_t>& left, uint32_t percent) {
  uint32_t parts = 0;
  for (const uint32_t each : left) {
    parts += each / percent;
  }
  return parts;
}

// Each takes the fullest GPUs that have room for it. Requires: there is room. Parts that divide
// each other fit like this whenever they fit at all, if the larger ones come first.
void take_gpus(std::vector<uint32_t>& left, const Want& want, uint32_t workers) {
  for (int64_t more = workers * want.gpus; more > 0; --more) {
    auto fullest = left.end();
    for (auto each = left.begin(); each != left.end(); ++each) {
      if (*each >= want.gpu_percent && (fullest == left.end() || *each < *fullest)) {
        fullest = each;
      }
    }
    PDJOB_CHECK(fullest != left.end());
    *fullest -= want.gpu_percent;
  }
  std::ranges::sort(left);
}

bool parts_divide_each_other(const std::vector<SearchGroup>& groups) {
  uint32_t larger = 0;
  for (const SearchGroup& group : groups) {
    if (group.demand.shares_gpu()) {
      if (larger % group.demand.gpu_percent != 0) {
        return false;
      }
      larger = group.demand.gpu_percent;
    }
  }
  return true;
}

// One decision after the other: how many workers of a group one node gets. The decisions for the
// first group come first, from the first node to the last one.
class Search {
 public:
  Search(const std::vector<NodeShare>& nodes, const std::vector<SearchGroup>& groups,
         bool overcommit, uint64_t steps_max)
      : nodes_(nodes.size()), steps_left_(steps_max) {
    std::map<std::string, size_t> files;
    for (const SearchGroup& group : groups) {
      const Demand& demand = group.demand;
      wants_.push_back(
          {.cores = demand.cores,
           .gpus = demand.gpus,
           .gpu_percent = demand.gpu_percent,
           .memory = static_cast<int64_t>(demand.memory_bytes),
           .file = files.try_emplace(demand.file, files.size()).first->second,
           .file_bytes = demand.file.empty() ? 0 : static_cast<int64_t>(demand.file_bytes),
           .workers = group.workers * demand.parts,
           .most = demand.parts > 1 ? group.workers : kMany});
      divides_gpus_ = divides_gpus_ || demand.shares_gpu();
    }
    for (size_t n = 0; n < nodes.size(); ++n) {
      measure(nodes[n], groups, files, overcommit, nodes_[n]);
      if (divides_gpus_) {
        nodes_[n].gpu_parts = nodes[n].gpu_parts_free();
        std::ranges::sort(nodes_[n].gpu_parts);
        nodes_[n].left.gpu_parts = nodes_[n].gpu_parts;
      }
    }
    counts_.assign(wants_.size(), std::vector<uint32_t>(nodes_.size()));
    order_nodes();
  }

  SearchResult run() {
    SearchResult result{.outcome = decide(), .counts = {}};
    if (result.outcome == Outcome::kFound) {
      result.counts.assign(wants_.size(), std::vector<uint32_t>(nodes_.size()));
      for (size_t g = 0; g < wants_.size(); ++g) {
        for (size_t n = 0; n < nodes_.size(); ++n) {
          result.counts[g][nodes_[n].index] = counts_[g][n];
        }
      }
    }
    return result;
  }

 private:
  struct NodeLeft {
    size_t index = 0;  // As given.
    Left left;
    std::vector<uint32_t> gpu_parts;  // Before the first decision.
    std::vector<char> open;           // By group: the node is accepted.
    bool limited = true;              // Otherwise only files count.
    bool alike(const NodeLeft& other) const {
      return left == other.left && open == other.open && limited == other.limited;
    }
  };
  // A decision and the alternatives to it that are left: smaller numbers, down to `least`.
  struct Frame {
    uint32_t taken = 0;
    uint32_t least = 0;
    uint32_t before = 0;  // Workers of the group that wait for a node.
  };

  static void measure(const NodeShare& share, const std::vector<SearchGroup>& groups,
                      const std::map<std::string, size_t>& files, bool overcommit, NodeLeft& to) {
    const bool loose = overcommit && share.node().overcommits;
    to.limited = !loose;
    to.left = {.cores = share.cores_free(),
               .gpus = static_cast<int64_t>(share.gpus_free()),
               .memory = loose ? share.memory_for_files() : share.memory_free(),
               .file_uses = std::vector<int64_t>(files.size())};
    for (const auto& [file, number] : files) {
      to.left.file_uses[number] = share.has_file(file) ? 1 : 0;
    }
    for (const SearchGroup& group : groups) {
      const bool gpus = !loose || share.node().gpus.size() >= group.demand.gpus;
      to.open.push_back(static_cast<char>(gpus && share.accepted_by(group.demand)));
    }
  }

  // Like nodes stand side by side. While they have the same workers, the second one never gets more
  // of the next group than the first one, because exchanging the two would lead to the same.
  void order_nodes() {
    for (size_t n = 0; n < nodes_.size(); ++n) {
      nodes_[n].index = n;
    }
    const auto key = [](const NodeLeft& node) {
      return std::tie(node.left.cores, node.left.gpus, node.left.memory, node.open, node.limited,
                      node.left.file_uses, node.left.gpu_parts);
    };
    std::ranges::sort(nodes_, [&](const NodeLeft& a, const NodeLeft& b) {
      return key(a) != key(b) ? key(a) > key(b) : a.index < b.index;
    });
    for (size_t n = 0; n < nodes_.size(); ++n) {
      like_previous_.push_back(n > 0 && nodes_[n].alike(nodes_[n - 1]));
    }
  }

  bool same_so_far(size_t g, size_t n) const {
    return std::all_of(counts_.begin(), counts_.begin() + static_cast<std::ptrdiff_t>(g),
                       [n](const auto& counts) { return counts[n] == counts[n - 1]; });
  }

  uint32_t capacity(size_t g, size_t n) const {
    const NodeLeft& node = nodes_[n];
    const Want& want = wants_[g];
    if (node.open[g] == 0) {
      return 0;
    }
    const int64_t file = node.left.file_uses[want.file] > 0 ? 0 : want.file_bytes;
    if (file > 0 && file > node.left.memory) {
      return 0;
    }
    if (!node.limited) {
      return want.most;
    }
    const uint32_t gpus = want.gpu_percent < kWholeGpu
                              ? parts_in(node.left.gpu_parts, want.gpu_percent)
                              : times(node.left.gpus, want.gpus);
    return std::min({want.most, times(node.left.cores, want.cores), gpus,
                     times(node.left.memory - file, want.memory)});
  }

  // The node gets so many workers of the group.
  void set_count(size_t g, size_t n, uint32_t workers) {
    const int64_t more = int64_t{workers} - counts_[g][n];
    counts_[g][n] = workers;
    move(g, n, more);
  }

  // The groups up to this one take their GPUs anew: which of them were whole depends on the order.
  void divide_gpus(size_t g, size_t n) {
    Left& left = nodes_[n].left;
    left.gpu_parts = nodes_[n].gpu_parts;
    for (size_t each = 0; each <= g; ++each) {
      take_gpus(left.gpu_parts, wants_[each], counts_[each][n]);
    }
    left.gpus = std::ranges::count(left.gpu_parts, kWholeGpu);
  }

  void move(size_t g, size_t n, int64_t workers) {
    if (workers == 0) {
      return;
    }
    Left& left = nodes_[n].left;
    const Want& want = wants_[g];
    if (nodes_[n].limited) {
      left.cores -= workers * want.cores;
      left.memory -= workers * want.memory;
      if (divides_gpus_) {
        divide_gpus(g, n);
      } else {
        left.gpus -= workers * want.gpus;
      }
    }
    int64_t& uses = left.file_uses[want.file];
    const bool had = uses > 0;
    uses += workers;
    left.memory -= had == (uses > 0) ? 0 : workers > 0 ? want.file_bytes : -want.file_bytes;
  }

  // What the nodes from n on could take of the group if they took nothing else.
  std::vector<uint64_t> capacity_from(size_t g) {
    std::vector<uint64_t> sums(nodes_.size() + 1);
    for (size_t n = nodes_.size(); n-- > 0;) {
      sums[n] = sums[n + 1] + capacity(g, n);
    }
    steps_left_ -= std::min<uint64_t>(steps_left_, nodes_.size());
    return sums;
  }

  static int64_t gpu_percent_of(const NodeLeft& node) {
    const std::vector<uint32_t>& parts = node.left.gpu_parts;
    return parts.empty() ? node.left.gpus * kWholeGpu
                         : std::accumulate(parts.begin(), parts.end(), int64_t{0});
  }

  // Whether the nodes have enough in sum for this and the later groups.
  bool enough_in_sum(size_t g) const {
    Left left;
    for (const NodeLeft& node : nodes_) {
      const bool open = std::any_of(node.open.begin() + static_cast<std::ptrdiff_t>(g),
                                    node.open.end(), [](char each) { return each != 0; });
      if (open && !node.limited) {
        return true;
      }
      left.cores += open ? std::max<int64_t>(node.left.cores, 0) : 0;
      left.gpus += open ? gpu_percent_of(node) : 0;
      left.memory += open ? std::max<int64_t>(node.left.memory, 0) : 0;
    }
    for (size_t each = g; each < wants_.size(); ++each) {
      left.cores -= wants_[each].workers * wants_[each].cores;
      left.gpus -= wants_[each].workers * wants_[each].gpus * wants_[each].gpu_percent;
      left.memory -= wants_[each].workers * wants_[each].memory;
    }
    return left.cores >= 0 && left.gpus >= 0 && left.memory >= 0;
  }

  // Every later group must have room on its own, and all of them in sum.
  bool enter(size_t g) {
    if (!enough_in_sum(g)) {
      return false;
    }
    for (size_t later = g + 1; later < wants_.size(); ++later) {
      if (capacity_from(later).front() < wants_[later].workers) {
        return false;
      }
    }
    rooms_[g] = capacity_from(g);
    return rooms_[g].front() >= wants_[g].workers;
  }

  Outcome decide();
  bool descend();
  bool back();

  std::vector<NodeLeft> nodes_;
  std::vector<Want> wants_;
  bool divides_gpus_ = false;  // Somebody wants a part of a GPU.
  std::vector<char> like_previous_;
  std::vector<std::vector<uint32_t>> counts_;
  std::vector<std::vector<uint64_t>> rooms_;
  std::vector<Frame> frames_;  // One for each decision.
  uint64_t steps_left_;
};

// Makes the next decision; false: there is none that can lead on.
bool Search::descend() {
  const size_t g = frames_.size() / nodes_.size();
  const size_t n = frames_.size() % nodes_.size();
  if (n == 0 && !enter(g)) {
    return false;
  }
  const uint32_t waiting =
      n == 0 ? wants_[g].workers : frames_.back().before - frames_.back().taken;
  uint32_t most = std::min(waiting, capacity(g, n));
  if (like_previous_[n] != 0 && same_so_far(g, n)) {
    most = std::min(most, counts_[g][n - 1]);
  }
  const uint64_t later = rooms_[g][n + 1];
  const uint32_t least = later >= waiting ? 0 : static_cast<uint32_t>(waiting - later);
  if (least > most) {
    return false;
  }
  set_count(g, n, most);
  frames_.push_back({.taken = most, .least = least, .before = waiting});
  return true;
}

// Takes back decisions until one has an alternative, and takes that; false: none has.
bool Search::back() {
  while (!frames_.empty()) {
    const size_t g = (frames_.size() - 1) / nodes_.size();
    const size_t n = (frames_.size() - 1) % nodes_.size();
    Frame& last = frames_.back();
    if (last.taken > last.least) {
      set_count(g, n, --last.taken);
      return true;
    }
    set_count(g, n, 0);
    frames_.pop_back();
  }
  return false;
}

Outcome Search::decide() {
  rooms_.resize(wants_.size());
  const size_t decisions = wants_.size() * nodes_.size();
  while (frames_.size() < decisions) {
    if (steps_left_ == 0) {
      return Outcome::kGivenUp;
    }
    --steps_left_;
    if (!descend() && !back()) {
      return Outcome::kImpossible;
    }
  }
  return decisions > 0 || wants_.empty() ? Outcome::kFound : Outcome::kImpossible;
}

}  // namespace

SearchResult search_places(const std::vector<NodeShare>& nodes,
                           const std::vector<SearchGroup>& groups, bool overcommit,
                           uint64_t steps_max) {
  SearchResult result = Search(nodes, groups, overcommit, steps_max).run();
  if (result.outcome == Outcome::kImpossible && !parts_divide_each_other(groups)) {
    result.outcome = Outcome::kGivenUp;
  }
  return result;
}

}  // namespace pdjob::launcher
