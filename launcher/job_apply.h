// JobApply: the shell of changes to a running job's file. It says what a changed file would change
// and what it cannot, and changes the job: it gives its groups and routers other specs. If the new
// workers do not get ready, it goes back to the file before. It remembers both files for the next
// launcher. Loop-bound.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"
#include "launcher/job_run.h"
#include "launcher/job_runner.h"
#include "launcher/job_scaling.h"
#include "launcher/plan/job_config.h"
#include "launcher/plan/launch_plan.h"
#include "launcher/scaling/group_sizes.h"
#include "launcher/scaling/job_change.h"
#include "net/loop/loop.h"

namespace pdjob::launcher {

class JobApply {
 public:
  struct Options {
    Places places;
    std::function<Result<LaunchPlan>(const JobConfig&)> plan;  // On the nodes that are there.
  };

  // `config`: the job's file as it is. All must outlive it.
  JobApply(net::Loop& loop, JobRunner& runner, JobScaling& scaling, JobRun& run,
           const JobConfig& config, Options options);
  ~JobApply();
  JobApply(const JobApply&) = delete;
  JobApply& operator=(const JobApply&) = delete;

  // `file`: the file's path, a line break, and its text. Returns what would change, as text.
  // kInvalidArgument: it is no job file, or changes what a running job keeps; the message says
  // what.
  Result<std::string> diff(std::string_view file) const;
  // Changes the job, and returns json(). kUnavailable: not now; the message says why.
  Result<std::string> order(std::string_view file);
  // The newest order: {"order": 2, "state": "none", "under way", "done", "going back" or "went
  // back", "why": "", "changes": "...", "missing": "decode: 1 of 2 serve: ..."}
  std::string json() const;

  // Call it after each step of the job, except of heartbeats.
  void job_changed();

 private:
  struct Wish {
    JobConfig config;
    LaunchPlan plan;
    std::string changes;
  };
  Result<JobConfig> read(std::string_view file) const;
  Status check_names(const JobConfig& config) const;
  Result<Wish> wish_of(const JobConfig& config) const;
  void begin(Wish wish, JobChange::Kind kind);
  void look();
  void tell_routers();
  std::string missing() const;
  void go_back();
  void remember(const JobConfig& earlier, bool applies);

  net::Loop& loop_;
  JobRunner& runner_;
  JobScaling& scaling_;
  JobRun& run_;
  const Options options_;
  JobConfig config_;                 // As it is, or becomes.
  std::optional<JobConfig> before_;  // While a change is under way: what it goes back to.
  std::optional<JobChange> change_;
  Sizes restored_;  // Of groups, when a launcher has begun with the file before.
  int64_t orders_taken_ = 0;
  std::string changes_;
  std::string why_;  // It went back.
  net::TimerId timer_;
  Instant next_tell_{};  // Of what routers have not confirmed.
};

}  // namespace pdjob::launcher
