#include "batch/store/disk.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/loop/socket.h"

namespace pdjob::batch {
namespace {

Error failed(const std::string& what, const std::string& name) {
  return {errno == ENOSPC || errno == EDQUOT ? ErrorCode::kOverloaded : ErrorCode::kUnavailable,
          "cannot " + what + " " + name + ": " + std::strerror(errno)};
}

Status sync_folder_of(const std::string& name) {
  return sync_folder(std::filesystem::path(name).parent_path().string());
}

class RealFile final : public AppendFile {
 public:
  RealFile(std::string name, net::Fd fd) : name_(std::move(name)), fd_(std::move(fd)) {}

  Status append(std::string_view bytes) override {
    while (!bytes.empty()) {
      const ssize_t written = write(fd_.get(), bytes.data(), bytes.size());
      if (written < 0 && errno != EINTR) {
        return failed("write", name_);
      }
      bytes.remove_prefix(static_cast<size_t>(std::max<ssize_t>(written, 0)));
    }
    return ok();
  }
  Status sync() override {
    return fdatasync(fd_.get()) == 0 ? ok() : Status(failed("sync", name_));
  }

 private:
  const std::string name_;
  const net::Fd fd_;
};

class RealDisk final : public Disk {
 public:
  explicit RealDisk(Readers readers) : readers_(readers) {}

  Result<std::unique_ptr<AppendFile>> open(const std::string& name, uint64_t size) override {
    const bool is_own = readers_ == Readers::kOwner;
    net::Fd fd(::open(name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (is_own ? O_NOFOLLOW : 0),
                      is_own ? 0600 : 0644));
    struct stat found{};
    if (!fd.valid() || fstat(fd.get(), &found) != 0) {
      return failed("open", name);
    }
    if (static_cast<uint64_t>(found.st_size) < size) {
      return Error{ErrorCode::kCorrupt, name + " has " + std::to_string(found.st_size) +
                                            " bytes, but the ledger knows " + std::to_string(size) +
                                            ": somebody changed it"};
    }
    if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0 || lseek(fd.get(), 0, SEEK_END) < 0) {
      return failed("cut", name);
    }
    PDJOB_TRY_STATUS(sync_folder_of(name));
    return std::unique_ptr<AppendFile>(std::make_unique<RealFile>(name, std::move(fd)));
  }

  Status copy(const std::string& from, uint64_t offset, uint64_t size, AppendFile& out) override {
    PDJOB_TRY_STATUS(open_for_reading(from));
    buffer_.resize(std::min<uint64_t>(size, size_t{1} << 20));
    while (size > 0) {
      const ssize_t got =
          pread(reading_.get(), buffer_.data(), std::min<uint64_t>(size, buffer_.size()),
                static_cast<off_t>(offset));
      if (got <= 0) {
        return got < 0 ? failed("read", from)
                       : Error{ErrorCode::kCorrupt, from + " is shorter than the ledger knows"};
      }
      PDJOB_TRY_STATUS(out.append(std::string_view(buffer_).substr(0, static_cast<size_t>(got))));
      offset += static_cast<uint64_t>(got);
      size -= static_cast<uint64_t>(got);
    }
    return ok();
  }

  Status rename(const std::string& from, const std::string& to) override {
    const bool renamed = std::rename(from.c_str(), to.c_str()) == 0 ||
                         (errno == ENOENT && access(to.c_str(), F_OK) == 0);
    return renamed ? sync_folder_of(to) : failed("rename", from);
  }

 private:
  // Most copies come from the file of the copy before.
  Status open_for_reading(const std::string& name) {
    if (reading_name_ != name) {
      reading_ = net::Fd(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
      reading_name_ = reading_.valid() ? name : "";
    }
    return reading_.valid() ? ok() : Status(failed("open", name));
  }

  const Readers readers_;
  std::string reading_name_;
  net::Fd reading_;
  std::string buffer_;
};

}  // namespace

Status sync_folder(const std::string& folder) {
  const net::Fd fd(open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return fd.valid() && fsync(fd.get()) == 0 ? ok() : Status(failed("sync", folder));
}

std::unique_ptr<Disk> real_disk(Readers readers) { return std::make_unique<RealDisk>(readers); }

}  // namespace pdjob::batch
