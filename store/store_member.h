// The process of a job that keeps KV: `pdjob store`, started by the launcher.
#pragma once

#include "common/time.h"
#include "kvtransfer/config/kvtransfer_config.h"
#include "net/control/process_spec.h"
#include "store/store_config.h"

namespace pdjob::store {

struct StoreMemberOptions {
  net::ProcessSpec spec;
  StoreConfig config;
  kvtransfer::KvTransferConfig kv;
  Duration drain_timeout{};
};

// Returns the exit code (common/exit_code.h).
int run_store_member(const StoreMemberOptions& options);

}  // namespace pdjob::store
