// JobRun: one run of a job as its launcher sees it: which of its launchers this one is, and what
// the next one needs. It renews the launcher's lease, and keeps the ledger on disk: before a
// process is started or told to change its role, and soon after other changes. A write that fails
// is tried again each second, and the job goes on meanwhile. A launcher that was replaced ends at
// its next write.
//
// Without an orphan timeout nothing outlives the launcher, and nothing of this is on disk. A folder
// of the job that somebody removes is made anew, in either case. Loop-bound.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/result.h"
#include "launcher/job/job.h"
#include "launcher/job_folder.h"
#include "launcher/plan/job_config.h"
#include "launcher/run/ledger.h"
#include "launcher/view/terminal.h"
#include "net/loop/event_loop.h"

namespace pdjob::launcher {

class JobRun {
 public:
  // Goes on with what an earlier launcher left, or begins anew: by default also if that launcher
  // was told to stop. kInvalidArgument: something runs that this launcher cannot go on with; says
  // what to do. All must outlive it.
  enum class Stopped { kIsOver, kGoesOn };
  static Result<std::unique_ptr<JobRun>> begin(net::EventLoop& loop, JobFolder& folder,
                                               Terminal& terminal, const JobConfig& config,
                                               Stopped stopped);
  // Why this pdjob cannot go on with that run of the job; empty: it can.
  static std::string objection(const JobLedger& ledger, const JobConfig& config);
  ~JobRun();  // The run has ended, unless it was left. Not called by leave_all().
  JobRun(const JobRun&) = delete;
  JobRun& operator=(const JobRun&) = delete;

  bool lasts() const { return lasts_; }
  // An earlier launcher had planned the job, and may have started processes.
  bool adopts() const { return adopts_; }
  // As in Welcome (agents/agent_message.h).
  std::string owner() const { return lasts_ ? ledger_.root_key().derive("owner") : ""; }

  const JobLedger& ledger() const { return ledger_; }
  // To change it. Call save() or note() then.
  JobLedger& ledger() { return ledger_; }
  void save();
  // Takes a step of the job, before its effects are carried out.
  void note(const Job& job, const Event& event, const std::vector<Effect>& effects);
  // The job has ended, and its workers stay. The next job of the same specs goes on with them: with
  // doors and decisions of its own.
  void leave_warm(const Job& job);

 private:
  JobRun(net::EventLoop& loop, JobFolder& folder, Terminal& terminal, JobLedger ledger, bool lasts)
      : loop_(loop),
        folder_(folder),
        terminal_(terminal),
        ledger_(std::move(ledger)),
        lasts_(lasts),
        adopts_(ledger_.planned) {}
  // Once a second.
  void look_after_folder();
  void make_folder_anew();
  // Warns once until it succeeds again. Leaves all if another launcher has taken over.
  bool succeeded(const std::string& what, const Status& written, bool& told) const;

  net::EventLoop& loop_;
  JobFolder& folder_;
  Terminal& terminal_;
  JobLedger ledger_;
  const bool lasts_;
  const bool adopts_;
  std::string saved_;         // Its bytes on disk.
  bool folder_gone_ = false;  // And cannot be made anew.
  bool lease_failed_ = false;
  bool save_failed_ = false;
  net::TimerId folder_timer_;
  net::TimerId save_timer_;
  bool save_due_ = false;
  bool left_ = false;
};

// Ends this process and nothing else: what it started lives on, for another launcher.
[[noreturn]] void leave_all(Terminal& terminal, int exit_code, const std::string& why);

}  // namespace pdjob::launcher
