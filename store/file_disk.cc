#include "store/file_disk.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/crypto/blake2b.h"
#include "common/files/own_files.h"
#include "common/limits.h"
#include "common/parse_number.h"

namespace pdjob::store {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "files are read as they are in memory");

constexpr int kStoresMax = 64;  // With one folder.
constexpr std::string_view kRows = ".kv";
constexpr std::string_view kTable = ".blocks";
constexpr uint64_t kEntriesAt = 32 * limits::kKiB;
constexpr std::array<char, 8> kMagic = {'p', 'd', 'j', 'o', 'b', 'k', 'v', '3'};

struct Header {
  std::array<char, 8> magic = kMagic;
  uint64_t slab_bytes = 0;
  uint32_t rows = 0;
  uint32_t windows = 0;
  std::array<uint32_t, limits::kWindowsMax> row_bytes{};
  uint64_t checksum = 0;
};
struct Entry {
  uint64_t name_high = 0, name_low = 0;
  uint64_t parent_high = 0, parent_low = 0;
  uint64_t owner = 0;
  uint64_t digest = 0;
  uint32_t depth = 0;
  uint32_t has_parent = 0;
  uint64_t checksum = 0;
};
static_assert(sizeof(Header) <= kEntriesAt && std::is_trivially_copyable_v<Header>);
static_assert(sizeof(Entry) == 64 && std::has_unique_object_representations_v<Entry>);

// Covers all bytes before the last member, and is keyed by what they belong to.
template <class T>
uint64_t checksum_of(const T& record, uint64_t of) {
  const auto bytes = std::as_bytes(std::span(&record, 1)).first(sizeof(T) - sizeof(uint64_t));
  const Digest digest = Blake2b("pdjob kv file").add(of).add(bytes).finish();
  uint64_t checksum = 0;
  std::memcpy(&checksum, digest.data(), sizeof(checksum));
  return checksum;
}

Header header_of(const BlockShape& shape, uint64_t slab_bytes) {
  Header header{.slab_bytes = slab_bytes,
                .rows = shape.rows,
                .windows = static_cast<uint32_t>(shape.row_bytes.size())};
  std::ranges::copy(shape.row_bytes, header.row_bytes.begin());
  header.checksum = checksum_of(header, 0);
  return header;
}

Entry entry_of(const StoredBlock& stored, const Header& header) {
  const Block& block = stored.block;
  const BlockName parent = block.parent.value_or(BlockName{});
  Entry entry{.name_high = block.name.high,
              .name_low = block.name.low,
              .parent_high = parent.high,
              .parent_low = parent.low,
              .owner = block.owner.value,
              .digest = stored.digest,
              .depth = block.depth,
              .has_parent = block.parent ? 1U : 0U};
  entry.checksum = checksum_of(entry, header.checksum);
  return entry;
}

StoredBlock block_of(const Entry& entry, const BlockShape& shape, SlotId slot) {
  StoredBlock stored{.shape = shape, .digest = entry.digest, .slot = slot};
  stored.block.name = {.high = entry.name_high, .low = entry.name_low};
  if (entry.has_parent != 0) {
    stored.block.parent = {.high = entry.parent_high, .low = entry.parent_low};
  }
  stored.block.owner = kvtransfer::BlockOwner{entry.owner};
  stored.block.depth = entry.depth;
  return stored;
}

struct File {
  Fd fd;
  std::string path;
};

// `move` is pread or pwrite. Moves all bytes.
template <class Move, class Byte>
Status move_all(Move move, const File& file, std::span<Byte> bytes, uint64_t at) {
  while (!bytes.empty()) {
    const ssize_t moved = move(file.fd.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (moved < 0 && errno == EINTR) {
      continue;
    }
    if (moved < 0) {
      return system_error(file.path);
    }
    if (moved == 0) {
      return Error{ErrorCode::kCorrupt, file.path + ": the file is shorter than it was"};
    }
    bytes = bytes.subspan(static_cast<size_t>(moved));
    at += static_cast<uint64_t>(moved);
  }
  return ok();
}

template <class T>
Status read_record(const File& file, T& record, uint64_t at) {
  return move_all(::pread, file, std::as_writable_bytes(std::span(&record, 1)), at);
}
template <class T>
Status write_record(const File& file, const T& record, uint64_t at) {
  return move_all(::pwrite, file, std::as_bytes(std::span(&record, 1)), at);
}

std::string file_of(uint32_t slab, std::string_view suffix) {
  return std::to_string(slab).append(suffix);
}

Result<File> open_file(const Fd& folder, const std::string& folder_path, const std::string& name,
                       int flags) {
  File file{.fd = Fd(::openat(folder.get(), name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC,
                              S_IRUSR | S_IWUSR)),
            .path = folder_path + '/' + name};
  if (!file.fd.valid()) {
    return system_error(file.path);
  }
  return file;
}

Result<Fd> lock_folder(const std::string& path) {
  PDJOB_TRY_STATUS(make_own_folder(path));
  Fd lock(::open((path + "/lock").c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC,
                 S_IRUSR | S_IWUSR));
  if (!lock.valid()) {
    return system_error(path + "/lock", ErrorCode::kInvalidArgument);
  }
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return Error{ErrorCode::kOverloaded, path + " belongs to another store"};
  }
  return lock;
}

}  // namespace

Result<std::unique_ptr<FileDisk>> FileDisk::open(const std::string& folder, uint64_t slab_bytes,
                                                 uint32_t slabs, std::vector<StoredBlock>& found) {
  PDJOB_TRY_STATUS(make_own_folder(folder));
  for (int number = 0; number < kStoresMax; ++number) {
    std::string path = folder + '/' + std::to_string(number);
    auto lock = lock_folder(path);
    if (!lock && lock.error().code == ErrorCode::kOverloaded) {
      continue;
    }
    if (!lock) {
      return lock.error();
    }
    Fd opened(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!opened.valid()) {
      return system_error(path);
    }
    std::unique_ptr<FileDisk> disk(
        new FileDisk(std::move(path), std::move(opened), std::move(*lock), slab_bytes));
    PDJOB_TRY_STATUS(disk->find_blocks(slabs, found));
    return disk;
  }
  return Error{ErrorCode::kOverloaded,
               folder + " has as many stores as it can have: " + std::to_string(kStoresMax)};
}

Status FileDisk::find_blocks(uint32_t slabs, std::vector<StoredBlock>& found) {
  std::error_code error;
  for (fs::directory_iterator each(path_, error), end; !error && each != end;
       each.increment(error)) {
    const std::string suffix = each->path().extension();
    const auto slab = parse_number<uint32_t>(each->path().stem().string());
    if ((suffix != kRows && suffix != kTable) || !slab) {
      continue;
    }
    const size_t before = found.size();
    if (*slab < slabs && suffix == kTable) {
      find_blocks_of(*slab, found);
    }
    if (*slab >= slabs || (suffix == kTable && found.size() == before)) {
      ::unlinkat(folder_.get(), file_of(*slab, kRows).c_str(), 0);
      ::unlinkat(folder_.get(), file_of(*slab, kTable).c_str(), 0);
    }
  }
  return error ? Status(Error{ErrorCode::kUnavailable, path_ + ": " + error.message()}) : ok();
}

// Finds nothing in a broken table.
void FileDisk::find_blocks_of(uint32_t slab, std::vector<StoredBlock>& found) const {
  const auto file = open_file(folder_, path_, file_of(slab, kTable), O_RDONLY);
  Header header;
  if (!file || !read_record(*file, header, 0) || header.magic != kMagic ||
      header.checksum != checksum_of(header, 0) || header.slab_bytes != slab_bytes_ ||
      header.windows > header.row_bytes.size()) {
    return;
  }
  const BlockShape shape{
      .rows = header.rows,
      .row_bytes = {header.row_bytes.begin(), header.row_bytes.begin() + header.windows}};
  if (!is_sound(shape)) {
    return;
  }
  std::vector<Entry> entries(slab_bytes_ / slot_bytes(shape));
  // The table ends with the last entry that was written.
  std::span<std::byte> bytes = std::as_writable_bytes(std::span(entries));
  struct stat size{};
  if (::fstat(file->fd.get(), &size) != 0 || static_cast<uint64_t>(size.st_size) < kEntriesAt) {
    return;
  }
  bytes = bytes.first(std::min(bytes.size(), static_cast<uint64_t>(size.st_size) - kEntriesAt));
  if (!move_all(::pread, *file, bytes, kEntriesAt)) {
    return;
  }
  for (uint32_t index = 0; index < entries.size(); ++index) {
    if (entries[index].checksum == checksum_of(entries[index], header.checksum)) {
      found.push_back(block_of(entries[index], shape, {.slab = slab, .index = index}));
    }
  }
}

Status FileDisk::read(SlotId slot, std::span<std::byte> rows) {
  PDJOB_TRY(const File file, open_file(folder_, path_, file_of(slot.slab, kRows), O_RDONLY));
  return move_all(::pread, file, rows, rows.size() * slot.index);
}

Status FileDisk::write(const StoredBlock& block, std::span<const std::byte> rows) {
  const SlotId slot = block.slot;
  constexpr int kFlags = O_RDWR | O_CREAT;
  PDJOB_TRY(const File table, open_file(folder_, path_, file_of(slot.slab, kTable), kFlags));
  PDJOB_TRY(const File file, open_file(folder_, path_, file_of(slot.slab, kRows), kFlags));
  const Header header = header_of(block.shape, slab_bytes_);
  Header there;
  if (!read_record(table, there, 0) || there.checksum != header.checksum) {
    if (::ftruncate(table.fd.get(), 0) != 0) {
      return system_error(table.path);
    }
    PDJOB_TRY_STATUS(write_record(table, header, 0));
  }
  const uint64_t at = kEntriesAt + slot.index * sizeof(Entry);
  PDJOB_TRY_STATUS(write_record(table, Entry{}, at));
  PDJOB_TRY_STATUS(move_all(::pwrite, file, rows, rows.size() * slot.index));
  return write_record(table, entry_of(block, header), at);
}

}  // namespace pdjob::store
