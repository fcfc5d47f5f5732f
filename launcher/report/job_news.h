// JobNews: what happened to a ready job's processes since the last look, for the console. Value.
#pragma once

#include <map>
#include <string>

#include "launcher/job/job.h"

namespace pdjob::launcher {

class JobNews {
 public:
  // Returns whole lines; empty: nothing happened. Call it after each step but heartbeats.
  std::string look(const Job& job, Instant now);

 private:
  struct Absence {
    bool away = false;   // It died, or ended, and this was told.
    bool waits = false;  // It was told that it waits for a place.
  };
  std::map<std::string, Absence> absences_;  // By name; empty until the job was ready once.
};

}  // namespace pdjob::launcher
