// LogFolder: the folder that holds one log file per process of a running job. The folder may also
// hold files that are not ours, so LogFolder removes only files that it made itself. It lists their
// names in the ledger, a file of the folder. The ledger's lock keeps a second job out. Loop-bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "common/result.h"
#include "net/loop/socket.h"

namespace pdjob::launcher {

// True for a name that a log may have: a-z, 0-9, - and _. It can lead to no other folder.
bool is_process_name(const std::string& name);

class LogFolder {
 public:
  static constexpr const char* kLedger = ".pdjob-logs";

  // Makes the folder, for its owner only, unless it exists; an existing one keeps its mode. By
  // default it removes the logs that an earlier job of this user made here. kInvalidArgument:
  // another running job uses the folder, or the ledger belongs to another user.
  enum class Old { kRemove, kKeep };
  static Result<LogFolder> claim(const std::string& path, const std::string& job,
                                 Old old = Old::kRemove);
  LogFolder(LogFolder&&) noexcept = default;
  LogFolder& operator=(LogFolder&&) noexcept = default;
  ~LogFolder() = default;  // The logs stay.

  // Opens the log of a process for appending; creates it if necessary, and the folder if it was
  // removed. kInvalidArgument: the name
  // belongs to something other than our plain file. Another user may have put a link there.
  Result<net::Fd> open(const std::string& process);

  // Moves each log of more than limits::kLogBytesMax into PROCESS-old.log, in place of what that
  // held. The process goes on with its empty log. Call it every few seconds: a log grows meanwhile.
  // Text that a process writes at the very moment may be lost.
  void bound();

  const std::string& path() const { return path_; }
  std::string log_path(const std::string& process) const { return path_ + "/" + process + ".log"; }
  // Returns at most so many bytes of a log that is open here: from `from` on, or the last ones if
  // the log is shorter. kNotFound: there is none.
  struct Piece {
    uint64_t from = 0;
    std::string text;
  };
  Result<Piece> read(const std::string& process, uint64_t from, size_t bytes_max) const;
  // Returns the last lines of a process's log, for an error message.
  std::string tail(const std::string& process) const;

 private:
  Result<net::Fd> open_file(const std::string& process);
  void keep_as_old(const std::string& process, const net::Fd& log);

  LogFolder(std::string path, std::string job, net::Fd folder, net::Fd ledger)
      : path_(std::move(path)),
        job_(std::move(job)),
        folder_(std::move(folder)),
        ledger_(std::move(ledger)) {}
  // The folder has no name any more.
  bool is_removed() const;
  Status make_anew();

  std::string path_;
  std::string job_;
  net::Fd folder_;
  net::Fd ledger_;  // Locked.
  std::set<std::string> processes_;
};

// Makes the folder and its parents; only its owner can use the folder. Leaves an existing one as it
// is.
Status make_private_folder(const std::string& path);

}  // namespace pdjob::launcher
