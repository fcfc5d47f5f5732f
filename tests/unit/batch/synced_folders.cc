#include "tests/unit/batch/synced_folders.h"

#include <filesystem>
#include <mutex>
#include <set>
#include <system_error>

#include <sys/syscall.h>
#include <unistd.h>

namespace {

std::mutex mutex;
std::set<std::string> synced;
bool counts = false;

}  // namespace

// Comes before the C library's. SQLite and helper threads call it, too.
extern "C" int fsync(int fd) {
  {
    const std::scoped_lock lock(mutex);
    if (counts) {
      std::error_code ignored;
      synced.insert(
          std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), ignored).string());
    }
  }
  return static_cast<int>(syscall(SYS_fsync, fd));
}

namespace pdjob::batch {

SyncedFolders::SyncedFolders() {
  clear();
  const std::scoped_lock lock(mutex);
  counts = true;
}

SyncedFolders::~SyncedFolders() {
  const std::scoped_lock lock(mutex);
  counts = false;
}

bool SyncedFolders::has(const std::string& folder) const {
  const std::scoped_lock lock(mutex);
  return synced.contains(folder);
}

void SyncedFolders::clear() {
  const std::scoped_lock lock(mutex);
  synced.clear();
}

}  // namespace pdjob::batch
