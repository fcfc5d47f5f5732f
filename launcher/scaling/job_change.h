// JobChange: one change of a running job's file, from its order to its end. The workers of each
// group are replaced by the Job, and routers take their changed keys over; this core watches
// whether all get ready. It fails if a worker with its new spec dies twice in a row, or waits for a
// place for long, or if the first ones of both roles cannot prove each other for long. Then the
// launcher goes back to the file before, which is another change, and cannot fail. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/time.h"
#include "launcher/job/job.h"

namespace pdjob::launcher {

class JobChange {
 public:
  enum class Kind { kForward, kBack };
  enum class State { kUnderWay, kDone, kFailed };

  // `router_spec`: the digest of what routers should do.
  explicit JobChange(Kind kind, std::string router_spec = {})
      : kind_(kind), router_spec_(std::move(router_spec)) {}

  // Call it after each step of the job, and when due() says.
  void look(const Job& job, Instant now);
  Instant due() const { return state_ == State::kUnderWay ? due_ : kNever; }

  // The routers that have not confirmed what they should do.
  std::vector<const Process*> outdated_routers(const Job& job) const;

  Kind kind() const { return kind_; }
  State state() const { return state_; }
  const std::string& why() const { return why_; }  // It failed.

 private:
  // Why the process shows that its group's spec is no good; empty: it does not.
  static std::string fault_of(const JobGroup& group, const Process& process, Instant now);
  // When it is a fault that the process is not proved. Another one that it could be probed with has
  // come, too. kNever: it has not.
  static Instant proved_by(const Process& process, const Job& job);

  const Kind kind_;
  const std::string router_spec_;
  State state_ = State::kUnderWay;
  Instant due_ = kNever;
  std::string why_;
};

}  // namespace pdjob::launcher
