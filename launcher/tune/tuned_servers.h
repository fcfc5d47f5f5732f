// The servers that `pdjob tune --measure` asks: by their addresses, or the workers of a job.
#pragma once

#include <string>

#include "common/result.h"
#include "launcher/capacity/engine_probes.h"
#include "launcher/plan/model_config.h"

namespace pdjob::launcher {

struct TunedServers {
  std::string measure;  // An address, or the name of a job that runs here.
  std::string decode;   // An address; empty: none.
  std::string key_file;
  std::string decode_key_file;  // Empty: the key of `key_file`.
};

// Of a job: its first prefill and decode worker, or its first worker that does both. The error says
// what to do.
Result<ProbedServers> servers_of(const TunedServers& servers, const Places& places);

}  // namespace pdjob::launcher
