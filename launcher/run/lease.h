// Lease: which launcher of a job holds the job's folder, and when it last said so. Each launcher of
// a run has a number, one more than the last. The lease is one small file, written in place, so
// that a launcher can renew it on a full disk, too.
//
// Fence: the right to write what belongs to the job. A launcher passes it before each such write;
// one that a later launcher has replaced does not. While a Fence lives, no other launcher passes
// it, so what it guards is written by one at a time. Blocks for up to a second.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/files/own_files.h"
#include "common/result.h"
#include "net/loop/socket.h"

namespace pdjob::launcher {

// Value.
struct Lease {
  uint64_t launcher = 0;  // Its number.
  int64_t pid = 0;
  int64_t renewed_ms = 0;  // By the machine's clock of Instants.
  friend bool operator==(const Lease&, const Lease&) = default;
};

std::string lease_path(const std::string& folder);
// Nothing: there is none, or it cannot be read.
std::optional<Lease> read_lease(const std::string& folder);

class Fence {
 public:
  // `folder` is the job's. kCancelled: another launcher has taken over; says which one.
  // kUnavailable: the lease cannot be opened or is being written.
  static Result<Fence> pass(const std::string& folder, uint64_t launcher, int64_t pid);

  Status renew(const Lease& lease, Durable durable) const;

 private:
  explicit Fence(net::Fd file) : file_(std::move(file)) {}

  net::Fd file_;  // Locked.
};

}  // namespace pdjob::launcher
