// StatusPage: the launcher's /status as the commands read it (status.h writes it). Value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "common/time.h"
#include "net/control/message.h"

namespace pdjob::launcher {

struct ProcessLine {
  std::string name;
  std::string role;
  std::string state;
  std::string engine_id;
  std::string url;
  std::string node;  // Empty: unknown.
  bool suspected = false;
  bool spare = false;
  bool starved = false;
  double starved_share = 0;  // Of its time in which it waited for a core, 0..1.
  uint64_t restarts = 0;
  Duration in_state{};
  net::WorkerLoad load;

  bool is_worker() const { return role == "prefill" || role == "decode" || role == "both"; }
  bool serving() const { return state == "ready" || state == "registered"; }
};

struct StatusPage {
  std::string job;
  std::string state;
  std::string url;
  int64_t launcher_pid = 0;
  std::vector<ProcessLine> processes;
};

// kCorrupt: the text is something else.
Result<StatusPage> read_status(const std::string& status_json);

}  // namespace pdjob::launcher
