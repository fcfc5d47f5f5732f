// FileDisk: blocks in files of one folder of the owner's. Two files per slab: `N.kv` has the rows,
// and `N.blocks` says which blocks they are: a header with the slab's shape, and one entry per
// slot.
//
// Nothing is synced. An entry is erased before its rows are replaced, and written behind them, and
// has a checksum of its own; the rows have their digest. So whatever a crash or a power cut leaves
// is found: a block is lost, or fails when it is sent.
//
// The folder of a store is the first of FOLDER/0, FOLDER/1, ... that no other store has locked.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/files/fd.h"
#include "common/result.h"
#include "store/block_disk.h"

namespace pdjob::store {

class FileDisk final : public BlockDisk {
 public:
  // Appends what an earlier store left to `found`, and removes files that are of no use with these
  // slabs. kInvalidArgument: others may write to the folder.
  static Result<std::unique_ptr<FileDisk>> open(const std::string& folder, uint64_t slab_bytes,
                                                uint32_t slabs, std::vector<StoredBlock>& found);

  Status read(SlotId slot, std::span<std::byte> rows) override;
  Status write(const StoredBlock& block, std::span<const std::byte> rows) override;
  const std::string& path() const { return path_; }

 private:
  FileDisk(std::string path, Fd folder, Fd lock, uint64_t slab_bytes)
      : path_(std::move(path)),
        folder_(std::move(folder)),
        lock_(std::move(lock)),
        slab_bytes_(slab_bytes) {}

  Status find_blocks(uint32_t slabs, std::vector<StoredBlock>& found);
  void find_blocks_of(uint32_t slab, std::vector<StoredBlock>& found) const;

  const std::string path_;
  const Fd folder_;
  const Fd lock_;
  const uint64_t slab_bytes_;
};

}  // namespace pdjob::store
