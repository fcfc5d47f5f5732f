#include "tests/simulation/sim_kv_disk.h"

#include <algorithm>

namespace pdjob::simulation {

using store::SlotId;
using store::StoredBlock;

Status SimKvDisk::read(SlotId slot, std::span<std::byte> rows) {
  const auto found = slots_.find(slot);
  if (random_.chance(fails_) || found == slots_.end() || found->second.rows.size() != rows.size()) {
    return Error{ErrorCode::kUnavailable, "a read that fails"};
  }
  std::ranges::copy(found->second.rows, rows.begin());
  return ok();
}

Status SimKvDisk::write(const StoredBlock& block, std::span<const std::byte> rows) {
  std::erase_if(slots_, [&](const auto& other) {
    return other.first == block.slot ||
           (other.first.slab == block.slot.slab && other.second.block.shape != block.shape);
  });
  if (random_.chance(fails_)) {
    return Error{ErrorCode::kUnavailable, "a write that fails"};
  }
  slots_[block.slot] = {.block = block, .rows = {rows.begin(), rows.end()}};
  unsynced_.insert(block.slot);
  return ok();
}

void SimKvDisk::cut_power() {
  for (const SlotId slot : unsynced_) {
    const auto written = slots_.find(slot);
    if (written == slots_.end()) {
      continue;
    }
    if (random_.chance(0.3)) {
      slots_.erase(written);
    } else if (random_.chance(0.5)) {
      std::vector<std::byte>& rows = written->second.rows;
      const auto from = static_cast<ptrdiff_t>(random_.below(rows.size()));
      std::fill(rows.begin() + from, rows.end(), std::byte{0});
    }
  }
  unsynced_.clear();
}

std::vector<StoredBlock> SimKvDisk::blocks() const {
  std::vector<StoredBlock> found;
  for (const auto& [slot, written] : slots_) {
    found.push_back(written.block);
  }
  return found;
}

}  // namespace pdjob::simulation
