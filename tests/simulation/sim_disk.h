// SimDisk: the files of one simulated machine, in memory, as SQLite sees them. A write that was not
// synced is lost in a power cut, or survives, or survives in part: each for itself. A killed
// process writes nothing more, but the kernel keeps what it wrote.
//
// While it lives, SQLite keeps all files of this process on it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/random.h"

struct sqlite3_vfs;

namespace pdjob::simulation {

class SimDisk {
 public:
  explicit SimDisk(uint64_t seed);
  ~SimDisk();
  SimDisk(const SimDisk&) = delete;
  SimDisk& operator=(const SimDisk&) = delete;

  // Runs `end`, which destroys the process that has files open, as kill -9 does: nothing that
  // happens meanwhile reaches the disk.
  template <class End>
  void kill(const End& end) {
    frozen_ = true;
    end();
    frozen_ = false;
    changes_left_.reset();
  }
  // Requires: no file is open.
  void cut_power();
  // Nothing that happens after so many more changes reaches the disk, until kill() has ended the
  // process: as if it died there. Renames are changes, too.
  void crash_after(uint64_t changes) { changes_left_ = changes; }
  bool crashed() const { return changes_left_ == 0; }

  // Files that SQLite does not know, for a program that appends to them. A file that is not there
  // is empty. A rename survives a power cut at once.
  void append(const std::string& name, std::string_view bytes);
  void sync(const std::string& name);
  void cut(const std::string& name, uint64_t size);
  void rename(const std::string& from, const std::string& to);
  std::string content(const std::string& name) const;

 private:
  class Vfs;
  struct File {
    std::string content;
    std::string synced;
    bool durable = false;                                    // It was synced at least once.
    std::vector<std::pair<uint64_t, std::string>> unsynced;  // Writes: where, and what.
  };

  // False: it does not reach the disk.
  bool change();
  File& file_called(const std::string& name);
  void write(File& file, uint64_t offset, std::string_view bytes);
  void truncate(File& file, uint64_t size);
  void sync(File& file);

  Random random_;
  std::map<std::string, std::shared_ptr<File>> files_;
  bool frozen_ = false;
  std::optional<uint64_t> changes_left_;  // Empty: it does not crash.
  const std::unique_ptr<Vfs> vfs_;
};

}  // namespace pdjob::simulation
