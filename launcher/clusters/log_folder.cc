#include "launcher/clusters/log_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <system_error>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/limits.h"

namespace pdjob::launcher {

namespace {

constexpr std::streamoff kTailBytes = 4096;
constexpr int kTailLines = 15;
constexpr size_t kLedgerBytesMax = 1 << 20;
constexpr mode_t kOwnerOnly = 0600;
constexpr const char* kOld = "-old";
constexpr size_t kPieceBytes = 256 * limits::kKiB;

// A link, a device or another user's file would lead our writes elsewhere.
bool is_plain_file_of_ours(int fd) {
  struct stat found{};
  return fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && found.st_uid == geteuid() &&
         found.st_nlink == 1;
}

Result<std::string> read_ledger(int fd) {
  std::string text(kLedgerBytesMax, '\0');
  const ssize_t size = pread(fd, text.data(), text.size(), 0);
  if (size < 0) {
    return system_error("cannot read the ledger of the logs");
  }
  text.resize(static_cast<size_t>(size));
  return text;
}

Status append(int fd, const std::string& text) {
  if (write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return system_error("cannot write the ledger of the logs");
  }
  return ok();
}

}  // namespace

bool is_process_name(const std::string& name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

Status make_private_folder(const std::string& path) {
  const std::filesystem::path folder(path);
  std::error_code error;
  std::filesystem::create_directories(folder.parent_path(), error);
  if (mkdir(path.c_str(), 0700) != 0 && (errno != EEXIST || !std::filesystem::is_directory(path))) {
    return system_error("cannot make the folder " + path);
  }
  return ok();
}

Result<LogFolder> LogFolder::claim(const std::string& path, const std::string& job, Old old) {
  PDJOB_TRY_STATUS(make_private_folder(path));
  net::Fd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) {
    return system_error("cannot open " + path);
  }
  const std::string ledger_path = path + "/" + kLedger;
  net::Fd ledger(openat(folder.get(), kLedger,
                        O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
                        kOwnerOnly));
  if (!ledger.valid() || !is_plain_file_of_ours(ledger.get())) {
    return Error{ErrorCode::kInvalidArgument,
                 "cannot use " + ledger_path + " (" +
                     (ledger.valid() ? "it is not a file of this user" : std::strerror(errno)) +
                     "): choose another launcher.log_dir"};
  }
  PDJOB_TRY(std::string text, read_ledger(ledger.get()));
  std::istringstream lines(text);
  std::string holder;
  std::getline(lines, holder);
  if (flock(ledger.get(), LOCK_EX | LOCK_NB) != 0) {
    return Error{ErrorCode::kInvalidArgument, path + " holds the logs of " + holder +
                                                  ", which is running: give this job a "
                                                  "launcher.log_dir of its own"};
  }
  std::set<std::string> kept;
  for (std::string name; std::getline(lines, name);) {
    if (old == Old::kKeep && is_process_name(name)) {
      kept.insert(name);
    } else if (is_process_name(name)) {
      unlinkat(folder.get(), (name + ".log").c_str(), 0);
    }
  }
  if (ftruncate(ledger.get(), 0) != 0) {
    return system_error("cannot empty " + ledger_path);
  }
  PDJOB_TRY_STATUS(
      append(ledger.get(), "job " + job + " (launcher pid " + std::to_string(getpid()) + ")\n"));
  LogFolder claimed(path, job, std::move(folder), std::move(ledger));
  for (const std::string& name : kept) {
    PDJOB_TRY_STATUS(append(claimed.ledger_.get(), name + "\n"));
    if (!name.ends_with(kOld)) {
      claimed.processes_.insert(name);  // An old log has no old log of its own.
    }
  }
  return claimed;
}

bool LogFolder::is_removed() const {
  struct stat found{};
  return fstat(folder_.get(), &found) == 0 && found.st_nlink == 0;
}

// What still writes to a log that was removed goes on there.
Status LogFolder::make_anew() {
  PDJOB_TRY(LogFolder made, claim(path_, job_, Old::kKeep));
  *this = std::move(made);
  return ok();
}

Result<net::Fd> LogFolder::open(const std::string& process) {
  if (is_removed()) {
    PDJOB_TRY_STATUS(make_anew());
  }
  PDJOB_TRY(net::Fd log, open_file(process));
  processes_.insert(process);
  return log;
}

void LogFolder::bound() {
  for (const std::string& process : processes_) {
    const std::string name = process + ".log";
    struct stat found{};
    if (fstatat(folder_.get(), name.c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0 ||
        found.st_size <= static_cast<off_t>(limits::kLogBytesMax)) {
      continue;
    }
    const net::Fd log(
        openat(folder_.get(), name.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (log.valid() && is_plain_file_of_ours(log.get())) {
      keep_as_old(process, log);
    }
  }
}

// The process keeps its descriptor, which appends: after the cut it writes at the beginning. The
// log is cut even if its old text cannot be kept, because a full disk stops the whole job.
void LogFolder::keep_as_old(const std::string& process, const net::Fd& log) {
  const auto old = open_file(process + kOld);
  if (old && ftruncate(old->get(), 0) == 0) {
    const off_t size = lseek(log.get(), 0, SEEK_END);
    lseek(log.get(), std::max<off_t>(0, size - static_cast<off_t>(limits::kLogBytesMax)), SEEK_SET);
    std::string piece(kPieceBytes, '\0');
    ssize_t got = 0;
    for (size_t copied = 0; copied < 2 * limits::kLogBytesMax &&
                            (got = ::read(log.get(), piece.data(), piece.size())) > 0;
         copied += static_cast<size_t>(got)) {
      if (write(old->get(), piece.data(), static_cast<size_t>(got)) != got) {
        break;
      }
    }
  }
  if (ftruncate(log.get(), 0) != 0) {
    return;  // The next call tries again.
  }
}

Result<net::Fd> LogFolder::open_file(const std::string& process) {
  const std::string name = process + ".log";
  constexpr int kFlags = O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  net::Fd made(openat(folder_.get(), name.c_str(), kFlags | O_CREAT | O_EXCL, kOwnerOnly));
  if (made.valid()) {
    // Listed after it was made: a file of this name that existed before is never ours to remove.
    PDJOB_TRY_STATUS(append(ledger_.get(), process + "\n"));
    return made;
  }
  if (errno != EEXIST) {
    return system_error("cannot make " + log_path(process));
  }
  net::Fd found(openat(folder_.get(), name.c_str(), kFlags));
  if (!found.valid() || !is_plain_file_of_ours(found.get())) {
    return Error{
        ErrorCode::kInvalidArgument,
        log_path(process) + " is not a plain file of this user: choose another launcher.log_dir"};
  }
  return found;
}

Result<LogFolder::Piece> LogFolder::read(const std::string& process, uint64_t from,
                                         size_t bytes_max) const {
  const net::Fd log(processes_.contains(process)
                        ? openat(folder_.get(), (process + ".log").c_str(),
                                 O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
                        : -1);
  struct stat found{};
  if (!log.valid() || fstat(log.get(), &found) != 0 || !S_ISREG(found.st_mode)) {
    return Error{ErrorCode::kNotFound, "there is no log of " + process};
  }
  const auto size = static_cast<uint64_t>(found.st_size);
  Piece piece{.from = from <= size ? from : size - std::min<uint64_t>(size, bytes_max),
              .text = std::string(bytes_max, '\0')};
  const ssize_t got =
      pread(log.get(), piece.text.data(), bytes_max, static_cast<off_t>(piece.from));
  if (got < 0) {
    return system_error("cannot read the log of " + process);
  }
  piece.text.resize(static_cast<size_t>(got));
  return piece;
}

std::string LogFolder::tail(const std::string& process) const {
  std::ifstream file(log_path(process), std::ios::binary | std::ios::ate);
  if (!file) {
    return "";
  }
  const std::streamoff size = file.tellg();
  file.seekg(std::max<std::streamoff>(0, size - kTailBytes));
  std::string text(kTailBytes, '\0');
  file.read(text.data(), kTailBytes);
  text.resize(static_cast<size_t>(file.gcount()));
  size_t begin = text.size();
  for (int lines = 0; lines <= kTailLines && begin != std::string::npos && begin > 0; ++lines) {
    begin = text.rfind('\n', begin - 1);
  }
  return text.substr(begin == std::string::npos ? 0 : std::min(begin + 1, text.size()));
}

}  // namespace pdjob::launcher
