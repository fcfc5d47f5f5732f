#include "common/files/small_file.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/files/fd.h"

namespace pdjob {
namespace {

namespace fs = std::filesystem;

Error refuse_file(const std::string& why) { return {ErrorCode::kInvalidArgument, why}; }

bool is_credential(const std::string& path) {
  const char* const folder = std::getenv("CREDENTIALS_DIRECTORY");
  std::error_code failed;
  return folder != nullptr && *folder != '\0' &&
         fs::equivalent(fs::path(path).parent_path(), folder, failed) && !failed;
}

bool is_secret(const struct stat& file, const std::string& path) {
  const mode_t others = file.st_mode & (S_IRWXG | S_IRWXO);
  return others == 0 || (others == S_IRGRP && (file.st_uid == 0 || is_credential(path)));
}

}  // namespace

Result<std::string> read_small_file(const std::string& path, size_t bytes_max, Secrecy secrecy) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat found{};
  if (!file.valid() || fstat(file.get(), &found) != 0) {
    return refuse_file(std::strerror(errno));
  }
  if (S_ISDIR(found.st_mode)) {
    return refuse_file(std::strerror(EISDIR));
  }
  if (!S_ISREG(found.st_mode)) {
    return Error{ErrorCode::kUnsupported, "it is not a regular file"};
  }
  if (secrecy == Secrecy::kSecret && !is_secret(found, path)) {
    return refuse_file("other users may read it: run `chmod 600 " + path + "`");
  }
  std::string text(bytes_max, '\0');
  size_t size = 0;
  ssize_t got = 0;
  while (size < bytes_max && (got = read(file.get(), text.data() + size, bytes_max - size)) > 0) {
    size += static_cast<size_t>(got);
  }
  if (got < 0) {
    return refuse_file(std::strerror(errno));
  }
  text.resize(size);
  return text;
}

}  // namespace pdjob
