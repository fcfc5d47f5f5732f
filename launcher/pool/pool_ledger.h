// PoolLedger: what a keeper leaves on disk for the next one: its jobs, what they hold of which
// nodes, and the quotas of the queues. Each keeper of a pool has a number, one more than the last.
// Instants are not kept: what was due is due at once. Value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/crypto/job_keys.h"
#include "common/result.h"
#include "launcher/pool/pool_job.h"

namespace pdjob::launcher {

struct PoolLedger {
  std::string build;    // Of pdjob: agents of another one are refused.
  uint64_t keeper = 0;  // The number of the last keeper.
  std::string root;     // The text of the pool's root key. Secret.
  uint64_t ids = 0;     // Given to jobs so far.
  uint64_t incarnations = 0;
  std::vector<PoolJob> jobs;  // In the order of their ids.
  std::vector<QueueQuota> quotas;

  RootKey root_key() const { return RootKey::of(root); }
  // Opens the agents' door of a job.
  std::string key_of(const PoolJob& job) const {
    return root_key().derive("agents of a job", std::to_string(job.start.value));
  }
  friend bool operator==(const PoolLedger&, const PoolLedger&) = default;
};

std::string encode(const PoolLedger& ledger);
// kCorrupt: these are no ledger's bytes, or some are damaged. kUnsupported: of another version.
Result<PoolLedger> decode_pool_ledger(const std::string& bytes);

}  // namespace pdjob::launcher
