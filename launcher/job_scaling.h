// JobScaling: the shell of a job's sizes. It asks the autoscaler, takes orders by hand, gives the
// Job its events until each group has its size, and tells how far it is and why. Loop-bound.
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

  const GroupSizes& sizes() const { return sizes_; }
  // Workers do what another plan of this job says, and groups have other sizes. Requires: the same
  // groups.
  void change(const LaunchPlan& plan, const JobSpecs& specs);
  void set_sizes(const std::map<std::string, uint32_t>& sizes);
  // Names the groups that are not as they should be, and why; empty: all are.
  std::string missing() const;

  // Call it after each step of the job, except of heartbeats.
  void job_changed();
  // Says whole lines, and keeps them for explain().
  void note(const std::string& lines);

 private:
  struct Changes {
    uint64_t grown = 0;
    uint64_t shrunk = 0;
  };

  void keep_record();
  std::string crowding_by(const std::vector<SizedGroup>& before) const;
  void carry_on();
  void tick();
  void count_change(const std::string& group, uint32_t from, uint32_t to);
  Observation observe() const;
  int64_t seconds_since(const Note& note) const;

  net::Loop& loop_;
  JobRunner& runner_;
  GroupSizes sizes_;
  const bool scales_;  // Some group changes its size by itself.
  const bool to_zero_;
  Autoscaler autoscaler_;
  std::map<std::string, Changes> changes_;
  std::set<std::string> by_hand_;  // Groups whose size a person has set.
  std::deque<Note> notes_;
  const std::function<void(ScalingRecord)> keep_;
  const std::function<void(const std::string&)> say_;
  int64_t orders_taken_ = 0;
  net::TimerId next_;  // Of carry_on().
  net::TimerId tick_;
};

}  // namespace pdjob::launcher
