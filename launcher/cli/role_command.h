// `pdjob worker`, `pdjob router`, `pdjob batch-server` and `pdjob store`: one process of a job. The
// launcher starts it with a spec, a person with flags.
#pragma once

#include <string>
#include <vector>

#include "launcher/plan/job_config.h"

namespace pdjob::launcher {

struct WorkerFlags {
  std::string role = "both";
  std::string model;
  std::string listen = "127.0.0.1:0";
  std::string name;      // Empty: made from role and port.
  std::string key_file;  // Empty: the port needs no key.
  // Confirms an open port that others can reach.
  bool no_key = false;
  std::vector<std::string> settings;  // "engine.threads=2"
};

struct RouterFlags {
  std::string config;  // A router's own file (router_file.h); replaces all other flags.
  std::string listen = "127.0.0.1:8000";
  std::vector<std::string> prefill;
  std::vector<std::string> decode;
  std::vector<std::string> workers;
  std::vector<std::string> settings;
  std::string worker_key_file;  // The key of all workers; empty: they need none.
};

// All return the exit code (common/exit_code.h).
int run_worker_by_spec(int spec_fd, const Places& places);
int run_router_by_spec(int spec_fd);
int run_batch_by_spec(int spec_fd);
int run_store_by_spec(int spec_fd);
// The launcher of a job of a pool (launcher/pool).
int run_pool_launcher_by_spec(int spec_fd, const Places& places);
int run_worker_by_flags(const WorkerFlags& flags, const Places& places);
int run_router_by_flags(const RouterFlags& flags, const Places& places);

}  // namespace pdjob::launcher
