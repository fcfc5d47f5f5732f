// SimDisk: the files of one simulated machine, in memory, as SQLite sees them. A write that was not
// synced is lost in a power cut, or survives, or survives in part: each for itself. A killed
// process writes nothing more, but the kernel keeps what it wrote.
//
// While it lives, SQLite keeps all files of this process on it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
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
  }
  // Requires: no file is open.
  void cut_power();

 private:
  class Vfs;
  struct File {
    std::string content;
    std::string synced;
    bool durable = false;                                    // It was synced at least once.
    std::vector<std::pair<uint64_t, std::string>> unsynced;  // Writes: where, and what.
  };

  void write(File& file, uint64_t offset, std::string_view bytes);
  void truncate(File& file, uint64_t size);
  void sync(File& file);

  Random random_;
  std::map<std::string, std::shared_ptr<File>> files_;
  bool frozen_ = false;
  const std::unique_ptr<Vfs> vfs_;
};

}  // namespace pdjob::simulation
