// Disk: the files to which a batch appends, so that a simulation can lose what was not synced.
// Names are paths. Calls block. Errors name the file. Loop-bound, or of one helper thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/result.h"

namespace pdjob::batch {

// A file that only grows. Its end closes it.
class AppendFile {
 public:
  virtual ~AppendFile() = default;
  virtual Status append(std::string_view bytes) = 0;
  // Afterwards all that was appended survives a power cut.
  virtual Status sync() = 0;
};

class Disk {
 public:
  virtual ~Disk() = default;
  // Opens the file, makes it if it is not there, and cuts it to `size`. kCorrupt: it is shorter.
  virtual Result<std::unique_ptr<AppendFile>> open(const std::string& name, uint64_t size) = 0;
  // Appends `size` bytes of `from` to `out`.
  virtual Status copy(const std::string& from, uint64_t offset, uint64_t size, AppendFile& out) = 0;
  // Replaces `to`, and survives a power cut. Succeeds, too, if it was done before: `from` is gone
  // and `to` is there.
  virtual Status rename(const std::string& from, const std::string& to) = 0;
};

// Afterwards the names in the folder survive a power cut: files and folders that were made, linked
// or renamed there.
Status sync_folder(const std::string& folder);

// Who may read the files that a disk makes. kOwner: it follows no link to another file, either.
enum class Readers { kOwner, kAll };
std::unique_ptr<Disk> real_disk(Readers readers = Readers::kAll);

}  // namespace pdjob::batch
