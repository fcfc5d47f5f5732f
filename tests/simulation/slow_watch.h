// SlowWatch: knows which simulated workers compute slowly, or have a wrong address of another one,
// and looks at who is replaced for it. No other worker is ever replaced so. Only one of a group is,
// while all others serve, and a slow one leaves its node if a better one has room. Between two of a
// group the launcher waits ever longer, although launchers die. The first worker of a group that is
// slow for long, while it and its peers have enough to do, is replaced. So is one of the first pair
// that fails for long.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "launcher/job/job.h"
#include "launcher/plan/scaling_config.h"
#include "tests/simulation/invariants.h"

namespace pdjob::simulation {

class SlowWatch {
 public:
  SlowWatch(Invariants& invariants, const launcher::StragglerConfig& config)
      : invariants_(invariants), config_(config) {}

  void slow(launcher::Incarnation who) { until_[who] = kNever; }
  void normal(launcher::Incarnation who, Instant now);
  bool is_slow(launcher::Incarnation who) const {
    const auto found = until_.find(who);
    return found != until_.end() && found->second == kNever;
  }

  size_t poisoned_count() const { return poisoned_.size(); }
  // Engine ids: this decode worker cannot fetch from this prefill worker.
  void poison(const std::string& decode, const std::string& prefill) {
    poisoned_.try_emplace({decode, prefill});
  }
  // Whether a fetch fails. It is expected that somebody does something about it if nothing else
  // happens.
  bool fails(const std::string& decode, const std::string& prefill, bool calm, Instant now);

  // The job has taken the order, which it may have ignored.
  void replaced(const launcher::Job& job, const launcher::ReplaceAsked& order, Instant now);
  // A new launcher measures anew, and waits as the one before would have. What ends while it adopts
  // starts where it was.
  void adopt() {
    seen_.clear();
    moving_.clear();
  }
  void spawned(const launcher::Job& job, const launcher::Spawn& spawn,
               const std::vector<launcher::Node>& nodes, Instant now);
  // Call it often. Nothing is expected of a launcher that `sleeps`.
  void look(const launcher::Job& job, bool sleeps, Instant now);
  uint64_t replaced_count() const { return replaced_; }
  uint64_t failing_count() const { return failing_; }

 private:
  using Group = std::pair<net::Role, std::string>;
  struct Seen {
    net::StepTotals steps;
    Duration slow_for{};  // With all that it takes to notice.
  };
  struct Wait {
    Instant next{};
    Duration wait{};
  };
  bool must_be_noticed(const std::vector<const launcher::Process*>& group,
                       const std::map<std::string, Seen>& before) const;

  Invariants& invariants_;
  const launcher::StragglerConfig config_;
  std::map<launcher::Incarnation, Instant> until_;  // kNever: it is slow now.
  std::map<Group, Wait> replaced_in_;
  std::map<std::string, std::string> moving_;  // Where they were, by name.
  std::map<std::string, Seen> seen_;           // By engine id.
  Instant looked_{};
  struct Poisoned {
    Instant first = kNever;
    uint32_t fetches = 0;
  };
  std::map<std::pair<std::string, std::string>, Poisoned> poisoned_;
  uint64_t replaced_ = 0;
  uint64_t failing_ = 0;
};

}  // namespace pdjob::simulation
