#include "batch/batch_folder.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "batch/store/disk.h"

namespace pdjob::batch {
namespace {

net::Fd open_lock(const std::string& path, int flags) {
  return net::Fd(open((path + "/lock").c_str(), flags | O_CLOEXEC, 0644));
}

// The lock of an open file description: it ends with the process, and can be asked about.
struct flock whole_file() {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace

Result<BatchFolder> BatchFolder::claim(const std::string& path) {
  std::error_code error;
  for (const char* const folder : {"/parts", "/input"}) {
    std::filesystem::create_directories(path + folder, error);
    if (error) {
      return Error{ErrorCode::kInvalidArgument,
                   "cannot make the folder " + path + folder + ": " + error.message()};
    }
  }
  PDJOB_TRY_STATUS(sync_folder(path));
  net::Fd lock = open_lock(path, O_RDWR | O_CREAT);
  if (!lock.valid()) {
    return system_error("cannot write to the folder " + path, ErrorCode::kInvalidArgument);
  }
  struct flock wanted = whole_file();
  if (fcntl(lock.get(), F_OFD_SETLK, &wanted) != 0) {
    return Error{
        ErrorCode::kInvalidArgument,
        path + ": another pdjob batch works in this folder; see `pdjob batch status " + path + "`"};
  }
  return BatchFolder(path, std::move(lock));
}

bool BatchFolder::is_claimed(const std::string& path) {
  const net::Fd lock = open_lock(path, O_RDONLY);
  struct flock found = whole_file();
  return lock.valid() && fcntl(lock.get(), F_OFD_GETLK, &found) == 0 && found.l_type != F_UNLCK;
}

Result<std::string> BatchFolder::make_stage_logs() const {
  const std::string logs = path_ + "/stages";
  std::error_code error;
  std::filesystem::create_directories(logs, error);
  if (error) {
    return Error{ErrorCode::kInvalidArgument,
                 "cannot make the folder " + logs + ": " + error.message()};
  }
  return logs;
}

std::string BatchFolder::unpacked(size_t file) const {
  return path_ + "/input/" + std::to_string(file) + ".rows";
}

Status BatchFolder::write(const std::string& name, const std::string& text) const {
  const std::string target = path_ + "/" + name;
  const std::string fresh = target + ".new";
  std::ofstream file(fresh, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file || std::rename(fresh.c_str(), target.c_str()) != 0) {
    return system_error("cannot write " + target);
  }
  return ok();
}

}  // namespace pdjob::batch
