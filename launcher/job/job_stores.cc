// Where the stores of a Job are (job.h): one on each node with workers that use it, if the node has
// the memory. A store stays as long as its node, and ends with it.
#include <cstddef>
#include <set>
#include <string>
#include <utility>

#include "launcher/job/job.h"
#include "store/store_config.h"

namespace pdjob::launcher {

// The plan has those of the first nodes. Workers that come later may be on others.
void Job::add_stores(Turn& turn) {
  if (!store_ || !places_ ||
      std::exchange(stores_noted_, placement_.changes()) == placement_.changes()) {
    return;
  }
  std::set<std::string> without;
  for (const Process& process : processes_) {
    const JobGroup* const group = group_of(process.role, process.model);
    if (group != nullptr && group->uses_store && !process.place.node.empty()) {
      without.insert(process.place.node);
    }
  }
  size_t stores = 0;
  for (const Process& process : processes_) {
    if (process.is_store() && process.name != store::kMaster) {
      without.erase(process.place.node);
      ++stores;
    }
  }
  for (const std::string& node : without) {
    if (stores == limits::kWorkersMax) {
      return;
    }
    const auto place = placement_.take_on({node}, store_->demand);
    if (!place) {
      continue;
    }
    placement_.release(*place, store_->demand);  // add() takes it.
    uint64_t number = 0;
    while (find("store-" + std::to_string(number)) != nullptr) {
      ++number;
    }
    ProcessPlan plan = *store_;
    plan.name = "store-" + std::to_string(number);
    plan.place = *place;
    start(add(std::move(plan)), turn);
    ++stores;
  }
}

// Its node is lost, and its place given back.
void Job::end_store(Process& process, Turn& turn) {
  if (process.alive()) {
    process.fate = Fate::kEnd;
  } else {
    supervision_.dismiss(process, Fate::kEnd, turn);
    ended(process, turn);
  }
}

}  // namespace pdjob::launcher
