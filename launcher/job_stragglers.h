// JobStragglers: the shell of Stragglers. It shows it the workers of a job, gives the Job the
// orders that follow, and tells why. Loop-bound.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "launcher/job_runner.h"
#include "launcher/plan/scaling_config.h"
#include "launcher/scaling/stragglers.h"
#include "net/loop/loop.h"

namespace pdjob::launcher {

class JobStragglers {
 public:
  struct Options {
    StragglerConfig config;
    StragglerRecord record;                       // An earlier launcher's.
    std::function<void(const std::string&)> say;  // Gets whole lines.
    // For the next launcher. The order that it belongs to follows at once.
    std::function<void(StragglerRecord)> keep;
  };
  // All must outlive it.
  JobStragglers(net::Loop& loop, JobRunner& runner, Options options);
  ~JobStragglers();
  JobStragglers(const JobStragglers&) = delete;
  JobStragglers& operator=(const JobStragglers&) = delete;

  // As Stragglers says.
  double slowness(std::string_view name) const { return stragglers_.slowness(name); }

 private:
  void tick();

  net::Loop& loop_;
  JobRunner& runner_;
  const Options options_;
  Stragglers stragglers_;
  net::TimerId tick_;
};

}  // namespace pdjob::launcher
