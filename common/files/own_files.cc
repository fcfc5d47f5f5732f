#include "common/files/own_files.h"

#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/files/fd.h"

namespace pdjob {
namespace {

namespace fs = std::filesystem;

// The files that SQLite makes beside its own.
constexpr std::array<const char*, 4> kSuffixes = {"", "-wal", "-shm", "-journal"};

Error refused(const std::string& why) { return {ErrorCode::kInvalidArgument, why}; }

Status check_file(const std::string& path) {
  struct stat found{};
  if (lstat(path.c_str(), &found) != 0) {
    return errno == ENOENT ? ok() : Status(system_error(path, ErrorCode::kInvalidArgument));
  }
  if (!S_ISREG(found.st_mode) || found.st_uid != geteuid()) {
    return refused(path + " is a link or belongs to another user: choose a folder of yours");
  }
  return ok();
}

// In a sticky folder such as /tmp, others cannot exchange what is there.
Status check_folder_of(const std::string& path) {
  fs::path folder = fs::path(path).parent_path();
  folder = folder.empty() ? fs::path(".") : folder;
  struct stat found{};
  if (stat(folder.c_str(), &found) != 0) {
    return system_error(folder.string(), ErrorCode::kInvalidArgument);
  }
  const bool is_trusted = found.st_uid == geteuid() || found.st_uid == 0;
  if (!is_trusted || (found.st_mode & (S_IWOTH | S_ISVTX)) == S_IWOTH) {
    return refused(
        folder.string() + ", the folder of " + path +
        ", belongs to another user, or others may write to it: choose a folder of yours");
  }
  return ok();
}

}  // namespace

Status make_own_folder(const std::string& path) {
  std::error_code error;
  if (fs::create_directories(path, error) && !error) {
    fs::permissions(path, fs::perms::owner_all, error);
  }
  if (error) {
    return refused("cannot make the folder " + path + ": " + error.message());
  }
  PDJOB_TRY_STATUS(check_folder_of(path));
  struct stat found{};
  if (lstat(path.c_str(), &found) != 0) {
    return system_error(path, ErrorCode::kInvalidArgument);
  }
  if (!S_ISDIR(found.st_mode) || found.st_uid != geteuid() ||
      (found.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return refused("the folder " + path +
                   " is a link, belongs to another user, or others may write to it: name another "
                   "one, or run `chmod go-w " +
                   path + "`");
  }
  return ok();
}

Status make_own_file(const std::string& path) {
  PDJOB_TRY_STATUS(check_folder_of(path));
  if (!Fd(open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
               S_IRUSR | S_IWUSR))
           .valid()) {
    return system_error("cannot open " + path, ErrorCode::kInvalidArgument);
  }
  for (const char* const suffix : kSuffixes) {
    PDJOB_TRY_STATUS(check_file(path + suffix));
  }
  return ok();
}

Status write_own_text(const std::string& path, std::string_view text, Durable durable) {
  const std::string draft = path + ".new";
  unlink(draft.c_str());
  const Fd file(open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!file.valid() ||
      write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      (durable == Durable::kYes && fdatasync(file.get()) != 0) ||
      rename(draft.c_str(), path.c_str()) != 0) {
    return system_error("cannot write " + path);
  }
  return ok();
}

}  // namespace pdjob
