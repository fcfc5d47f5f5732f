// JobScaling: the shell of a job's sizes. It asks the autoscaler, takes orders by hand, tells the
// Job what its groups should be, and people how far they are and why. Loop-bound.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "launcher/job_runner.h"
#include "launcher/plan/launch_plan.h"
#include "launcher/scaling/autoscaler.h"
#include "launcher/scaling/group_sizes.h"
#include "launcher/scaling/scaling_record.h"
#include "net/loop/loop.h"

namespace pdjob::launcher {

// A group for its metrics.
struct GroupCounts {
  std::string name;
  uint32_t wanted = 0;
  uint32_t serving = 0;
  uint64_t grown = 0;  // Decisions and orders that made it larger.
  uint64_t shrunk = 0;
};
std::string group_metrics(const std::vector<GroupCounts>& groups);

// What an earlier launcher knew, and where it is kept for the next one.
struct ScalingMemory {
  ScalingRecord record;
  std::function<void(ScalingRecord)> keep = [](const ScalingRecord&) {};
};

class JobScaling {
 public:
  // `say` gets lines for the launcher's terminal. All must outlive it.
  JobScaling(net::Loop& loop, JobRunner& runner, const JobConfig& config, const LaunchPlan& plan,
             std::function<void(const std::string&)> say, ScalingMemory memory = {});
  ~JobScaling();
  JobScaling(const JobScaling&) = delete;
  JobScaling& operator=(const JobScaling&) = delete;

  // Takes an order such as "decode=2 prefill=auto" and returns its number as flat JSON, in which
  // scale_json() says how far the newest order is. kInvalidArgument: it is no such order, or its
  // sizes are out of bounds. kUnavailable: it does not fit, or the job is not ready.
  Result<std::string> order(std::string_view text);
  // {"order": 2, "settled": 0, "trouble": "", "missing": "decode: 1 of 2 serve: ...", "warning":
  // ""}. `warning`: what the order does to the nodes.
  std::string json(const std::string& warning = "") const;
  std::string text() const;
  // For Prometheus.
  std::string metrics() const;
  // The last decisions and what happened to processes, each with its reason; the newest one last.
  std::string explain() const;
  // {"decisions": [{"seconds_ago": 3, "text": "..."}], "lending": ["..."]}
  std::string explain_json() const;

  // Tells the job what its groups should be from now on.
  void change(std::vector<JobGroup> groups);
  // Names the groups that are not as they should be, and why; empty: all are.
  std::string missing() const;

  // Says whole lines, and keeps them for explain().
  void note(const std::string& lines);

 private:
  struct Changes {
    uint64_t grown = 0;
    uint64_t shrunk = 0;
  };

  void keep_record();
  const std::vector<JobGroup>& groups() const { return runner_.job().groups(); }
  std::string crowding_by(const std::vector<JobGroup>& before) const;
  void tick();
  Observation observe() const;
  int64_t seconds_since(const Note& note) const;

  net::Loop& loop_;
  JobRunner& runner_;
  const GroupLimits limits_;
  const bool scales_;  // Some group changes its size by itself.
  const bool to_zero_;
  Autoscaler autoscaler_;
  std::map<std::string, Changes> changes_;
  std::set<std::string> by_hand_;  // Groups whose size a person has set.
  std::deque<Note> notes_;
  const std::function<void(ScalingRecord)> keep_;
  const std::function<void(const std::string&)> say_;
  int64_t orders_taken_ = 0;
  net::TimerId tick_;
};

}  // namespace pdjob::launcher
