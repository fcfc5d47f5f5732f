// `pdjob worker` and `pdjob router`: one process of a job, started by the launcher (with a spec) or
// by hand (with flags).
#pragma once

#include <string>
#include <vector>

#include "launcher/job_config.h"

namespace pdjob::launcher {

struct WorkerFlags {
  std::string role = "both";
  std::string model;
  std::string listen = "127.0.0.1:0";
  std::string name;                   // Empty: made of role and port.
  std::string key_file;               // Empty: its port is open.
  bool no_key = false;                // Which is meant, also where others can reach it.
  std::vector<std::string> settings;  // "engine.threads=2"
};

struct RouterFlags {
  std::string config;  // A router's own file (router_file.h), in place of all others.
  std::string listen = "127.0.0.1:8000";
  std::vector<std::string> prefill;
  std::vector<std::string> decode;
  std::vector<std::string> workers;
  std::vector<std::string> settings;
  std::string worker_key_file;  // What all workers want; empty: nothing.
};

// The exit code (common/exit_code.h).
int run_worker_by_spec(int spec_fd, const Places& places);
int run_router_by_spec(int spec_fd, const Places& places);
int run_worker_by_flags(const WorkerFlags& flags, const Places& places);
int run_router_by_flags(const RouterFlags& flags, const Places& places);

}  // namespace pdjob::launcher
