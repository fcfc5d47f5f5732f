// Top: what `pdjob top` shows. Two looks at a job's status give its rates. Pure.
#pragma once

#include <map>
#include <string>

#include "common/time.h"
#include "launcher/look/status_page.h"
#include "net/control/message.h"

namespace pdjob::launcher {

class Top {
 public:
  // Returns the screen: a line for the job, a line of sums, a table of processes. Rates and
  // latencies are those since the look before; the first look has none.
  std::string look(const StatusPage& status, Instant now);

 private:
  std::map<std::string, net::WorkerLoad> before_;  // By engine id: a new incarnation counts anew.
  Instant looked_at_{};
};

// One line for each job, for `pdjob ps`.
std::string jobs_text(const std::vector<StatusPage>& jobs);
std::string jobs_json(const std::vector<StatusPage>& jobs);

}  // namespace pdjob::launcher
