#include "tests/simulation/sim_disk.h"

#include <algorithm>
#include <cstring>
#include <new>

#include <sqlite3.h>

namespace pdjob::simulation {

// SQLite's door to a disk: https://www.sqlite.org/vfs.html. In WAL mode with an exclusive lock, it
// needs no shared memory, so these are files of version 1.
class SimDisk::Vfs {
 public:
  explicit Vfs(SimDisk& disk) {
    vfs_.iVersion = 1;
    vfs_.szOsFile = sizeof(Handle);
    vfs_.mxPathname = 512;
    vfs_.zName = "simulated disk";
    vfs_.pAppData = &disk;
    vfs_.xOpen = open;
    vfs_.xDelete = remove;
    vfs_.xAccess = access;
    vfs_.xFullPathname = full_path;
    vfs_.xRandomness = randomness;
    vfs_.xSleep = [](sqlite3_vfs*, int microseconds) { return microseconds; };
    vfs_.xCurrentTime = [](sqlite3_vfs*, double* days) {
      *days = 2'460'000;
      return SQLITE_OK;
    };
    vfs_.xGetLastError = [](sqlite3_vfs*, int, char*) { return 0; };
    sqlite3_vfs_register(&vfs_, /*makeDflt=*/1);
  }
  ~Vfs() { sqlite3_vfs_unregister(&vfs_); }
  Vfs(const Vfs&) = delete;
  Vfs& operator=(const Vfs&) = delete;

 private:
  struct Handle {
    sqlite3_file base;  // SQLite wants it first.
    SimDisk* disk;
    std::shared_ptr<File> file;
  };
  static SimDisk& disk_of(sqlite3_vfs* vfs) { return *static_cast<SimDisk*>(vfs->pAppData); }
  static Handle& handle_of(sqlite3_file* file) { return *reinterpret_cast<Handle*>(file); }

  static int open(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags,
                  int* flags_out) {
    SimDisk& disk = disk_of(vfs);
    file->pMethods = nullptr;
    if (disk.frozen_ || (name == nullptr && (flags & SQLITE_OPEN_CREATE) == 0)) {
      return SQLITE_CANTOPEN;
    }
    std::shared_ptr<File> opened = std::make_shared<File>();  // A temporary file has no name.
    if (name != nullptr) {
      std::shared_ptr<File>& place = disk.files_[name];
      if (place == nullptr) {
        place = opened;
      }
      opened = place;
    }
    new (file) Handle{.base = {&kMethods}, .disk = &disk, .file = std::move(opened)};
    if (flags_out != nullptr) {
      *flags_out = flags;
    }
    return SQLITE_OK;
  }
  static int remove(sqlite3_vfs* vfs, const char* name, int /*sync_folder*/) {
    SimDisk& disk = disk_of(vfs);
    return disk.frozen_ || disk.files_.erase(name) > 0 ? SQLITE_OK : SQLITE_IOERR_DELETE_NOENT;
  }
  static int access(sqlite3_vfs* vfs, const char* name, int /*flags*/, int* result) {
    const SimDisk& disk = disk_of(vfs);
    *result = disk.files_.contains(name) ? 1 : 0;
    return SQLITE_OK;
  }
  static int full_path(sqlite3_vfs* /*vfs*/, const char* name, int size, char* out) {
    sqlite3_snprintf(size, out, "%s", name);
    return SQLITE_OK;
  }
  static int randomness(sqlite3_vfs* vfs, int size, char* out) {
    std::generate_n(out, size, [&] { return static_cast<char>(disk_of(vfs).random_.next()); });
    return size;
  }

  static int close(sqlite3_file* file) {
    handle_of(file).~Handle();
    return SQLITE_OK;
  }
  static int read(sqlite3_file* file, void* to, int size, sqlite3_int64 offset) {
    const std::string& content = handle_of(file).file->content;
    const auto bytes = static_cast<size_t>(size);
    const size_t begin = std::min(static_cast<size_t>(offset), content.size());
    const size_t there = std::min(bytes, content.size() - begin);
    std::memcpy(to, content.data() + begin, there);
    std::memset(static_cast<char*>(to) + there, 0, bytes - there);
    return there == bytes ? SQLITE_OK : SQLITE_IOERR_SHORT_READ;
  }
  static int write(sqlite3_file* file, const void* from, int size, sqlite3_int64 offset) {
    const Handle& handle = handle_of(file);
    handle.disk->write(*handle.file, static_cast<uint64_t>(offset),
                       {static_cast<const char*>(from), static_cast<size_t>(size)});
    return SQLITE_OK;
  }
  static int truncate(sqlite3_file* file, sqlite3_int64 size) {
    const Handle& handle = handle_of(file);
    handle.disk->truncate(*handle.file, static_cast<uint64_t>(size));
    return SQLITE_OK;
  }
  static int sync(sqlite3_file* file, int /*flags*/) {
    const Handle& handle = handle_of(file);
    handle.disk->sync(*handle.file);
    return SQLITE_OK;
  }
  static int file_size(sqlite3_file* file, sqlite3_int64* size) {
    *size = static_cast<sqlite3_int64>(handle_of(file).file->content.size());
    return SQLITE_OK;
  }
  static int lock(sqlite3_file* /*file*/, int /*kind*/) { return SQLITE_OK; }
  static int is_locked(sqlite3_file* /*file*/, int* result) {
    *result = 0;
    return SQLITE_OK;
  }
  static int control(sqlite3_file* /*file*/, int /*what*/, void* /*value*/) {
    return SQLITE_NOTFOUND;
  }
  static int sector_size(sqlite3_file* /*file*/) { return 512; }
  static int device_traits(sqlite3_file* /*file*/) { return SQLITE_IOCAP_POWERSAFE_OVERWRITE; }

  static constexpr sqlite3_io_methods kMethods = {.iVersion = 1,
                                                  .xClose = close,
                                                  .xRead = read,
                                                  .xWrite = write,
                                                  .xTruncate = truncate,
                                                  .xSync = sync,
                                                  .xFileSize = file_size,
                                                  .xLock = lock,
                                                  .xUnlock = lock,
                                                  .xCheckReservedLock = is_locked,
                                                  .xFileControl = control,
                                                  .xSectorSize = sector_size,
                                                  .xDeviceCharacteristics = device_traits,
                                                  .xShmMap = nullptr,
                                                  .xShmLock = nullptr,
                                                  .xShmBarrier = nullptr,
                                                  .xShmUnmap = nullptr,
                                                  .xFetch = nullptr,
                                                  .xUnfetch = nullptr};

  sqlite3_vfs vfs_{};
};

namespace {

void put(std::string& content, uint64_t offset, std::string_view bytes) {
  content.resize(std::max<size_t>(content.size(), offset + bytes.size()));
  content.replace(offset, bytes.size(), bytes);
}

}  // namespace

SimDisk::SimDisk(uint64_t seed) : random_(seed), vfs_(std::make_unique<Vfs>(*this)) {}
SimDisk::~SimDisk() = default;

bool SimDisk::change() {
  if (changes_left_) {
    *changes_left_ -= *changes_left_ > 0 ? 1 : 0;
    frozen_ = frozen_ || *changes_left_ == 0;
  }
  return !frozen_;
}

void SimDisk::write(File& file, uint64_t offset, std::string_view bytes) {
  if (change()) {
    put(file.content, offset, bytes);
    file.unsynced.emplace_back(offset, bytes);
  }
}

// It may be lost whole.
void SimDisk::truncate(File& file, uint64_t size) {
  if (change()) {
    file.content.resize(size);
  }
}

void SimDisk::sync(File& file) {
  if (change()) {
    file.synced = file.content;
    file.durable = true;
    file.unsynced.clear();
  }
}

SimDisk::File& SimDisk::file_called(const std::string& name) {
  std::shared_ptr<File>& file = files_[name];
  file = file == nullptr ? std::make_shared<File>() : file;
  return *file;
}

void SimDisk::append(const std::string& name, std::string_view bytes) {
  File& file = file_called(name);
  write(file, file.content.size(), bytes);
}

void SimDisk::sync(const std::string& name) { sync(file_called(name)); }

void SimDisk::cut(const std::string& name, uint64_t size) { truncate(file_called(name), size); }

void SimDisk::rename(const std::string& from, const std::string& to) {
  if (change() && files_.contains(from)) {
    files_[to] = files_.at(from);
    files_[to]->durable = true;
    files_.erase(from);
  }
}

std::string SimDisk::content(const std::string& name) const {
  const auto found = files_.find(name);
  return found == files_.end() ? std::string() : found->second->content;
}

void SimDisk::cut_power() {
  std::erase_if(files_, [](const auto& entry) { return !entry.second->durable; });
  for (auto& [name, file] : files_) {
    for (const auto& [offset, bytes] : file->unsynced) {
      const uint64_t survives = random_.below(2 * bytes.size() + 1);
      if (random_.chance(0.5)) {
        put(file->synced, offset, std::string_view(bytes).substr(0, survives));
      }
    }
    file->unsynced.clear();
    file->content = file->synced;
  }
}

}  // namespace pdjob::simulation
