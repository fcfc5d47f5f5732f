// BatchFolder: the folder of a batch, which one process has at a time. Its lock ends with the
// process. It holds the ledger, part files, unpacked input, logs of stages, status.json,
// and at the end the results. Loop-bound.
#pragma once

#include <string>

#include "common/result.h"
#include "net/loop/socket.h"

namespace pdjob::batch {

class BatchFolder {
 public:
  // Makes it if it is not there. kInvalidArgument: another process has it, or it cannot be written.
  static Result<BatchFolder> claim(const std::string& path);

  const std::string& path() const { return path_; }
  std::string ledger() const { return path_ + "/ledger.sqlite"; }
  std::string unpacked(size_t file) const;
  // Makes the folder for logs of stages if it is not there, and returns its path.
  Result<std::string> make_stage_logs() const;

  // Replaces a file that others read: they see the old text or the new one.
  Status write(const std::string& name, const std::string& text) const;
  // Another process has the folder now.
  static bool is_claimed(const std::string& path);

 private:
  BatchFolder(std::string path, net::Fd lock) : path_(std::move(path)), lock_(std::move(lock)) {}

  std::string path_;
  net::Fd lock_;
};

}  // namespace pdjob::batch
