// JobReplacements: the shell of Stragglers and FailingPairs. It shows them the workers of a job,
// gives the Job the orders that follow, and tells why. Loop-bound.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "launcher/job_runner.h"
#include "launcher/plan/scaling_config.h"
#include "launcher/scaling/failing_pairs.h"
#include "launcher/scaling/stragglers.h"
#include "net/loop/loop.h"

namespace pdjob::launcher {

class JobReplacements {
 public:
  struct Options {
    StragglerConfig config;
    bool replaces_failing = true;                 // Workers of pairs that go on failing.
    StragglerRecord record;                       // An earlier launcher's.
    std::function<void(const std::string&)> say;  // Gets whole lines.
    // For the next launcher. The order that it belongs to follows at once.
    std::function<void(StragglerRecord)> keep;
  };
  // All must outlive it.
  JobReplacements(net::Loop& loop, JobRunner& runner, Options options);
  ~JobReplacements();
  JobReplacements(const JobReplacements&) = delete;
  JobReplacements& operator=(const JobReplacements&) = delete;

  // As Stragglers says.
  double slowness(std::string_view name) const { return stragglers_.slowness(name); }

 private:
  void tick();
  void replace_slow(Instant now);
  void replace_failing(Instant now);

  net::Loop& loop_;
  JobRunner& runner_;
  const Options options_;
  Stragglers stragglers_;
  FailingPairs failing_;
  net::TimerId tick_;
};

}  // namespace pdjob::launcher
