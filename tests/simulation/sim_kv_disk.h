// SimKvDisk: the disk behind a store of the KV world. It outlives stores, reads and writes fail now
// and then, and a cut of the power loses or tears what was written since the last one. A double is
// needed because no test can cut the power of a disk. Loop-bound.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "common/random.h"
#include "store/block_disk.h"

namespace pdjob::simulation {

class SimKvDisk final : public store::BlockDisk {
 public:
  explicit SimKvDisk(uint64_t seed, double fails) : random_(seed), fails_(fails) {}

  Status read(store::SlotId slot, std::span<std::byte> rows) override;
  Status write(const store::StoredBlock& block, std::span<const std::byte> rows) override;
  void cut_power();
  // As store::FileDisk finds them.
  std::vector<store::StoredBlock> blocks() const;

 private:
  struct Written {
    store::StoredBlock block;
    std::vector<std::byte> rows;
  };

  Random random_;
  const double fails_;
  std::map<store::SlotId, Written> slots_;
  std::set<store::SlotId> unsynced_;
};

}  // namespace pdjob::simulation
