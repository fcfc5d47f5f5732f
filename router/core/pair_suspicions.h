// PairSuspicions: pairs of a prefill and a decode worker that do badly together. KV between them
// was damaged repeatedly, or their hand-overs go on failing for requests that other pairs then
// answer well. Each worker may be fine with other partners. The router avoids the pair for a while,
// if there is another one. Pure.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/id.h"
#include "common/time.h"

namespace pdjob::router {

enum class PairFault {
  kDamaged,  // Its KV was damaged, or an audit found it wrong.
  kFailed,   // It answered with an error.
};
// For people, after "requests avoid decode-0 with prefill-0: ".
std::string why_avoided(PairFault fault);

class PairSuspicions {
 public:
  // Afterwards the pair is tried again; a new report restarts the time.
  static constexpr Duration kAvoidedFor = std::chrono::seconds(30);
  // A fault lasts if it is reported again so long after it was first.
  static constexpr Duration kLastsAfter = std::chrono::seconds(30);
  static constexpr Duration kRememberedFor = std::chrono::minutes(10);  // After the last report.

  struct Suspicion {
    PairFault fault = PairFault::kFailed;
    Instant first{};
    Instant last{};
    Instant until{};  // Avoided: damage at once, a failure once it lasts.
    bool lasts = false;
  };
  struct Pair : Suspicion {
    WorkerId prefill;
    WorkerId decode;
  };

  void note(WorkerId prefill, WorkerId decode, PairFault fault, Instant now);
  // The pair answered a request well: its failures were no series. Damage may go unnoticed.
  void note_good(WorkerId prefill, WorkerId decode);
  bool avoided(WorkerId prefill, WorkerId decode, Instant now) const;
  // Forgets pairs of workers that have left.
  void forget(const std::vector<WorkerId>& gone);
  // Lets the hot path skip further checks.
  bool empty() const { return suspicions_.empty(); }
  // Those that are avoided now.
  std::vector<Pair> pairs(Instant now) const;

 private:
  std::map<std::pair<WorkerId, WorkerId>, Suspicion> suspicions_;
};

}  // namespace pdjob::router
