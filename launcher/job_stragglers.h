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
  // `say` gets whole lines. All must outlive it.
  JobStragglers(net::Loop& loop, JobRunner& runner, const StragglerConfig& config,
                std::function<void(const std::string&)> say);
  ~JobStragglers();
  JobStragglers(const JobStragglers&) = delete;
  JobStragglers& operator=(const JobStragglers&) = delete;

  // As Stragglers says.
  double slowness(std::string_view name) const { return stragglers_.slowness(name); }

 private:
  void tick();

  net::Loop& loop_;
  JobRunner& runner_;
  Stragglers stragglers_;
  const std::function<void(const std::string&)> say_;
  net::TimerId tick_;
};

}  // namespace pdjob::launcher
