// SyncedFolders: which folders the code under test has synced to the disk.
#pragma once

#include <string>

namespace pdjob::batch {

// Counts from its making on. One at a time.
class SyncedFolders {
 public:
  SyncedFolders();
  ~SyncedFolders();
  SyncedFolders(const SyncedFolders&) = delete;
  SyncedFolders& operator=(const SyncedFolders&) = delete;

  bool has(const std::string& folder) const;
  void clear();
};

}  // namespace pdjob::batch
