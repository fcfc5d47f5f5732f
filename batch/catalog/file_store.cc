#include "batch/catalog/file_store.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "batch/catalog/api_id.h"
#include "common/files/own_files.h"
#include "net/loop/socket.h"

namespace pdjob::batch {
namespace {

constexpr const char* kInput = "input.jsonl";
constexpr std::string_view kPart = ".part";

// The folders that have to be made for `path`, the last one first.
std::vector<std::filesystem::path> missing_folders(const std::filesystem::path& path) {
  std::vector<std::filesystem::path> missing;
  std::error_code ignored;
  for (auto folder = path; !folder.empty() && !std::filesystem::exists(folder, ignored);
       folder = folder.parent_path()) {
    missing.push_back(folder);
  }
  return missing;
}

Status make_folder(const std::string& name) {
  std::filesystem::path path = std::filesystem::path(name).lexically_normal();
  path = path.has_filename() ? path : path.parent_path();
  const auto missing = missing_folders(path);
  PDJOB_TRY_STATUS(make_own_folder(path.string()));
  for (const auto& folder : missing) {
    PDJOB_TRY_STATUS(sync_folder(folder.parent_path().string()));
  }
  return ok();
}

void remove_all(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

bool is_file_or_part(std::string_view name) {
  return is_file_id(name.ends_with(kPart) ? name.substr(0, name.size() - kPart.size()) : name);
}

// Calls `take` for each entry of the folder that has a name of the API's making. Entries may be
// removed meanwhile.
void each_own(const std::string& folder, bool (*is_own)(std::string_view), const auto& take) {
  std::error_code error;
  std::vector<std::filesystem::directory_entry> own;
  for (auto entry = std::filesystem::directory_iterator(folder, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (is_own(entry->path().filename().string())) {
      own.push_back(*entry);
    }
  }
  std::ranges::for_each(own, take);
}

uint64_t bytes_in(const std::filesystem::path& batch) {
  uint64_t bytes = 0;
  std::error_code error;
  for (auto entry = std::filesystem::recursive_directory_iterator(batch, error);
       !error && entry != std::filesystem::recursive_directory_iterator(); entry.increment(error)) {
    struct stat found{};
    if (lstat(entry->path().c_str(), &found) != 0 || !S_ISREG(found.st_mode) ||
        (entry->path().filename() == kInput && found.st_nlink > 1)) {
      continue;
    }
    bytes += static_cast<uint64_t>(found.st_size);
  }
  return bytes;
}

}  // namespace

Result<FileStore> FileStore::open(const std::string& dir) {
  for (const char* const folder : {"", "/files", "/batches"}) {
    PDJOB_TRY_STATUS(make_folder(dir + folder));
  }
  return FileStore(dir);
}

Status FileStore::begin(const std::string& id) {
  PDJOB_TRY(uploads_[id], disk_->open(part_path(id), 0));
  return ok();
}

Status FileStore::append(const std::string& id, std::string_view bytes) {
  const auto upload = uploads_.find(id);
  if (upload == uploads_.end() || upload->second == nullptr) {
    return Error{ErrorCode::kUnavailable, "the upload could not be stored"};
  }
  const Status appended = upload->second->append(bytes);
  if (!appended) {
    upload->second.reset();  // So that finish() fails, too.
  }
  return appended;
}

Status FileStore::finish(const std::string& id) {
  const auto upload = uploads_.extract(id);
  if (upload.empty() || upload.mapped() == nullptr) {
    return Error{ErrorCode::kUnavailable, "the upload could not be stored"};
  }
  PDJOB_TRY_STATUS(upload.mapped()->sync());
  const Status renamed = disk_->rename(part_path(id), file_path(id));
  if (!renamed) {
    remove(id);  // Its new name may be there, and would have no record.
  }
  return renamed;
}

void FileStore::discard(const std::string& id) {
  uploads_.erase(id);
  unlink(part_path(id).c_str());
}

Result<std::string> FileStore::read(const std::string& id, uint64_t offset, size_t count) const {
  const std::string path = file_path(id);
  const net::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) {
    return Error{errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kUnavailable,
                 path + ": " + std::strerror(errno)};
  }
  std::string bytes(count, '\0');
  const ssize_t got = pread(fd.get(), bytes.data(), count, static_cast<off_t>(offset));
  if (got < 0) {
    return system_error(path);
  }
  bytes.resize(static_cast<size_t>(got));
  return bytes;
}

void FileStore::remove(const std::string& id) { unlink(file_path(id).c_str()); }

Status FileStore::make_batch(const std::string& batch, const std::string& input) {
  PDJOB_TRY_STATUS(make_folder(batch_path(batch)));
  const std::string link_path = batch_path(batch) + "/" + kInput;
  if (link(file_path(input).c_str(), link_path.c_str()) != 0 && errno != EEXIST) {
    return system_error(link_path);
  }
  return sync_folder(batch_path(batch));
}

void FileStore::remove_batch(const std::string& batch) { remove_all(batch_path(batch)); }

bool FileStore::holds_any() const {
  bool any = false;
  each_own(files_folder(), is_file_or_part, [&](const auto& /*entry*/) { any = true; });
  each_own(batches_folder(), is_batch_id, [&](const auto& /*entry*/) { any = true; });
  return any;
}

void FileStore::keep_only(const std::set<std::string>& files,
                          const std::set<std::string>& batches) {
  const auto drop_unless = [](const std::set<std::string>& kept) {
    return [&kept](const std::filesystem::directory_entry& entry) {
      if (!kept.contains(entry.path().filename().string())) {
        remove_all(entry.path().string());
      }
    };
  };
  each_own(files_folder(), is_file_or_part, drop_unless(files));
  each_own(batches_folder(), is_batch_id, drop_unless(batches));
}

std::map<std::string, uint64_t> FileStore::batch_bytes() const {
  std::map<std::string, uint64_t> bytes;
  each_own(batches_folder(), is_batch_id, [&](const std::filesystem::directory_entry& batch) {
    bytes[batch.path().filename().string()] = bytes_in(batch.path());
  });
  return bytes;
}

uint64_t FileStore::free_bytes() const {
  std::error_code error;
  const auto space = std::filesystem::space(dir_, error);
  return error ? std::numeric_limits<uint64_t>::max() : space.available;
}

}  // namespace pdjob::batch
