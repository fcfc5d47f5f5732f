#include "launcher/placement/gpu_choice.h"

#include <algorithm>
#include <map>
#include <optional>

#include "common/check.h"

namespace pdjob::launcher {
namespace {

using Gpus = std::vector<size_t>;  // Places in the list, in ascending order.
using GroupOf = uint32_t GpuState::*;

class Chooser {
 public:
  explicit Chooser(const std::vector<GpuState>& gpus) : gpus_(gpus) {}

  Gpus choose(Gpus pool, size_t count) const {
    Gpus chosen;
    while (chosen.size() < count) {
      const size_t more = count - chosen.size();
      if (const auto island = smallest_with(pool, &GpuState::island, more)) {
        const auto socket = smallest_with(*island, &GpuState::numa, more);
        take(socket ? *socket : *island, more, chosen);
        break;
      }
      pool = smallest_with(pool, &GpuState::numa, more).value_or(pool);
      const Gpus island = largest(pool, &GpuState::island);
      if (island.empty()) {
        take(pool, more, chosen);
        break;
      }
      take(island, island.size(), chosen);
      std::erase_if(pool, [&](size_t gpu) { return std::ranges::binary_search(island, gpu); });
    }
    return chosen;
  }

  // Empty: no group is known.
  Gpus largest(const Gpus& pool, GroupOf group) const {
    Gpus best;
    for (auto& [number, members] : groups(pool, group)) {
      best = members.size() > best.size() ? members : best;
    }
    return best;
  }

 private:
  static void take(const Gpus& from, size_t count, Gpus& chosen) {
    PDJOB_CHECK(count <= from.size(), count);
    chosen.insert(chosen.end(), from.begin(), from.begin() + static_cast<std::ptrdiff_t>(count));
  }

  std::map<uint32_t, Gpus> groups(const Gpus& pool, GroupOf group) const {
    std::map<uint32_t, Gpus> groups;
    for (const size_t gpu : pool) {
      if (gpus_[gpu].*group != kUnknownGroup) {
        groups[gpus_[gpu].*group].push_back(gpu);
      }
    }
    return groups;
  }

  std::optional<Gpus> smallest_with(const Gpus& pool, GroupOf group, size_t count) const {
    std::optional<Gpus> best;
    for (auto& [number, members] : groups(pool, group)) {
      if (members.size() >= count && (!best || members.size() < best->size())) {
        best = members;
      }
    }
    return best;
  }

  const std::vector<GpuState>& gpus_;
};

}  // namespace

std::vector<size_t> choose_gpus(const std::vector<GpuState>& gpus, size_t count) {
  PDJOB_CHECK(count <= gpus.size(), count);
  if (count == 0) {
    return {};
  }
  std::vector<uint32_t> used;
  for (const GpuState& gpu : gpus) {
    used.push_back(gpu.used);
  }
  std::ranges::nth_element(used, used.begin() + static_cast<std::ptrdiff_t>(count - 1));
  const uint32_t most = used[count - 1];
  Gpus chosen;
  Gpus pool;
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (gpus[i].used <= most) {
      (gpus[i].used < most ? chosen : pool).push_back(i);
    }
  }
  const Gpus others = Chooser(gpus).choose(std::move(pool), count - chosen.size());
  chosen.insert(chosen.end(), others.begin(), others.end());
  std::ranges::sort(chosen);
  return chosen;
}

size_t choose_part(const std::vector<GpuState>& gpus, uint32_t percent) {
  PDJOB_CHECK(!gpus.empty());
  size_t fullest = gpus.size();
  size_t emptiest = 0;
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (gpus[i].used + percent <= kWholeGpu &&
        (fullest == gpus.size() || gpus[i].used > gpus[fullest].used)) {
      fullest = i;
    }
    emptiest = gpus[i].used < gpus[emptiest].used ? i : emptiest;
  }
  return fullest < gpus.size() ? fullest : emptiest;
}

size_t most_near_free(const std::vector<GpuState>& gpus) {
  Gpus all;
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (gpus[i].used == 0) {
      all.push_back(i);
    }
  }
  const auto known = [&](GroupOf group) {
    return std::ranges::any_of(gpus,
                               [&](const GpuState& gpu) { return gpu.*group != kUnknownGroup; });
  };
  const Chooser chooser(gpus);
  return known(&GpuState::island) ? chooser.largest(all, &GpuState::island).size()
         : known(&GpuState::numa) ? chooser.largest(all, &GpuState::numa).size()
                                  : all.size();
}

}  // namespace pdjob::launcher
