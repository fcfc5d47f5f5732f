// Placement: which node a process runs on, by what the nodes have, what runs there already, and
// where the model's other workers are. It says why. Nodes with equal reasons are taken by name.
//
// It never breaks a rule of a demand (cluster, labels) or of a node (node.h: what is promised
// once). The parts of a place are on different nodes of one cluster. Which groups fit together is
// decided by gang.h. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/placement/demand.h"
#include "launcher/placement/node.h"
#include "launcher/placement/node_share.h"
#include "launcher/placement/node_trust.h"

namespace pdjob::launcher {

// What made a node better than the next best one, in the order in which nodes are compared.
enum class Reason {
  kOthersAreFull,  // They would have to overcommit.
  kTrusted,        // Processes died or were slow on the others lately (node_trust.h).
  kSameCluster,    // More workers of its model are in this cluster.
  kGpusNear,       // One NVLink island of it has enough free GPUs.
  kLeavesGpus,     // It needs no GPU, and others may.
  kFewestOfGroup,  // Arrange::kSpread.
  kBesideModel,    // Arrange::kPack: more workers of its model are on this node.
  kKvStays,        // A worker of the model's other role is on this node.
  kTightest,       // The job fits only if little is left over.
  kMostCores,
  kFirstName,
  kOnlyOne,   // No other node has room.
  kSearched,  // Only a search found places for all.
};
const char* to_string(Reason reason);

struct ChosenPlace {
  Place place;
  Reason why = Reason::kFirstName;
};

class Placement {
 public:
  struct Terms {
    bool overcommit = true;         // Where nodes allow it.
    bool tight = false;             // Leaves little over; other preferences do not count.
    std::string_view cluster = {};  // Only there; empty: anywhere.
    // A node with a higher level is taken only if those with a lower one have no room.
    const TrustLevels* levels = nullptr;
  };

  explicit Placement(const std::vector<Node>& nodes);

  // A node that is known already gets its new size.
  void add(const Node& node);
  // What ran there is forgotten.
  void remove(const std::string& node);
  bool has(const std::string& node) const { return find(node) != nullptr; }
  // Null: unknown.
  const Node* node(const std::string& name) const;
  // Whether another node with at most this level has room.
  bool has_room_elsewhere(const Demand& demand, const std::string& node, uint32_t level_max,
                          const TrustLevels& levels) const;

  // Takes the best place; empty: no node has room.
  std::optional<ChosenPlace> take(const Demand& demand, const Terms& terms);
  std::optional<ChosenPlace> take(const Demand& demand) { return take(demand, Terms{}); }
  // Takes a place with a part on each of these nodes; empty: one has no room.
  std::optional<Place> take_on(const std::vector<std::string>& nodes, const Demand& demand);
  // Takes a place that was chosen before, all its parts, whether there is room or not. Parts on
  // unknown nodes are ignored.
  void take(const Place& place, const Demand& demand);
  void release(const Place& place, const Demand& demand);

  // How many such processes there is room for, if nothing else is taken. Counts up to `enough`.
  uint64_t room(const Demand& demand, const Terms& terms, uint64_t enough) const;
  // Says, for people, which node comes nearest to having room, and what it lacks. One sentence.
  std::string nearest(const Demand& demand) const;

  // True if such a worker at this place shares its cores with a worker that it exchanges KV with:
  // their engines lend each other threads, and the node has no core beyond those that its processes
  // were promised. One of them alone could use all these cores.
  bool shares_cores(const Place& place, const Demand& demand) const;
  // Grows whenever an answer of shares_cores() may have changed.
  uint64_t changes() const { return changes_; }

  std::vector<std::string> clusters() const;
  // In order of name.
  std::vector<NodeShare> shares() const;

 private:
  // A group, and where its workers are.
  struct Kind {
    Demand demand;
    std::vector<size_t> partners;   // Kinds that exchange KV with it.
    std::vector<size_t> relatives;  // Kinds of the same model, itself among them.
    std::map<std::string, int64_t, std::less<>> in_cluster;
  };
  struct NodeState {
    NodeShare share;
    std::vector<int64_t> counts;  // By kind.
    std::vector<char> accepted;   // By kind.
  };
  using Rank = std::array<int64_t, 8>;

  const NodeState* find(const std::string& node) const;
  NodeState* find(const std::string& node);
  // There are few: the groups of a job.
  size_t kind_of(const Demand& demand);
  std::map<std::string, int64_t, std::less<>> relatives_by_cluster(size_t kind) const;
  Rank rank(const NodeState& row, size_t kind, int64_t relatives_in_cluster,
            const Terms& terms) const;
  // Adds the best part to the place, on a node that has none yet. Nothing: no node has room.
  std::optional<Reason> take_part(size_t kind, const Terms& terms,
                                  const std::set<std::string>& clusters_left_out, Place& place);
  void count(NodeState& row, size_t kind, int64_t change);
  // The row's processes count for another cluster; empty: for none.
  void move_counts(const NodeState& row, const std::string& to);

  uint64_t changes_ = 0;
  std::vector<NodeState> rows_;  // In order of name.
  std::vector<Kind> kinds_;
};

}  // namespace pdjob::launcher
