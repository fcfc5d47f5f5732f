// `pdjob keeper`: the shell of a Keeper. Agents join it as they join a launcher, and it starts on
// them what the core decides. The ledger is on disk before anything of a step is carried out: a
// keeper that cannot write it ends, and leaves all jobs as they are for the next one.
#pragma once

#include <cstdint>
#include <string>

#include "common/time.h"
#include "launcher/plan/job_config.h"

namespace pdjob::launcher {

struct KeeperOptions {
  std::string pool = "main";
  std::string listen;  // HOST:PORT where agents join.
  std::string key_file;
  std::string host;  // As in Welcome (agents/agent_message.h).
  uint16_t first_port = 0;
  uint16_t last_port = 0;
  Duration orphan_timeout{};
  bool standby = false;  // Waits until the keeper that runs has died.
};

// Runs until it is stopped. Returns the exit code (common/exit_code.h). The jobs go on without it.
int run_keeper(const KeeperOptions& options, const Places& places);

// Where commands find the keepers of this user: a folder of theirs, by the name of the pool, as
// jobs have one (job_folder.h).
std::string keepers_dir(const Places& places);

}  // namespace pdjob::launcher
