#include "batch/catalog/file_store.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/check.h"
#include "net/loop/socket.h"

namespace pdjob::batch {
namespace {

constexpr const char* kInput = "input.jsonl";

Status make_folder(const std::string& path) {
  std::error_code error;
  // Only its owner can read what clients sent. A folder that was there keeps its rights.
  if (std::filesystem::create_directories(path, error) && !error) {
    std::filesystem::permissions(path, std::filesystem::perms::owner_all, error);
  }
  return error ? Status(Error{ErrorCode::kInvalidArgument,
                              "cannot make the folder " + path + ": " + error.message()})
               : ok();
}

void remove_all(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
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
  return disk_->rename(part_path(id), file_path(id));
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
    return Error{ErrorCode::kUnavailable, path + ": " + std::strerror(errno)};
  }
  bytes.resize(static_cast<size_t>(got));
  return bytes;
}

void FileStore::remove(const std::string& id) { unlink(file_path(id).c_str()); }

Status FileStore::make_batch(const std::string& batch, const std::string& input) {
  PDJOB_TRY_STATUS(make_folder(batch_path(batch)));
  const std::string link_path = batch_path(batch) + "/" + kInput;
  if (link(file_path(input).c_str(), link_path.c_str()) != 0 && errno != EEXIST) {
    return Error{ErrorCode::kUnavailable, link_path + ": " + std::strerror(errno)};
  }
  return ok();
}

void FileStore::remove_batch(const std::string& batch) { remove_all(batch_path(batch)); }

void FileStore::keep_only(const std::set<std::string>& files,
                          const std::set<std::string>& batches) {
  const auto drop = [](const std::string& folder, const std::set<std::string>& kept) {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
      if (!kept.contains(entry.path().filename().string())) {
        remove_all(entry.path().string());
      }
    }
  };
  drop(dir_ + "/files", files);
  drop(dir_ + "/batches", batches);
}

uint64_t FileStore::batch_bytes() const {
  uint64_t bytes = 0;
  std::error_code error;
  for (auto entry = std::filesystem::recursive_directory_iterator(dir_ + "/batches", error);
       !error && entry != std::filesystem::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    if (entry->path().filename() != kInput && entry->is_regular_file(ignored)) {
      const uint64_t size = entry->file_size(ignored);
      bytes += ignored ? 0 : size;
    }
  }
  return bytes;
}

}  // namespace pdjob::batch
