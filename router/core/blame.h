// Losses and Blame find the requests that kill workers.
//
// A request that kills workers must not be retried forever. If a launcher reports why workers were
// lost (RouterConfig::hears_losses), each request notes the workers that it lost, in either leg.
// Only two causes count: a hang, and a crash that broke the request's connection. The second such
// loss ends the request with 422 (`request_kills_workers`), or cuts its stream. Two workers that a
// hedged request lost at once are one loss: it may have had the same neighbour at both. The
// launcher's report comes later than the end of a connection. The router waits for it only before a
// third worker gets the request, or before the last attempt ends with 503, which asks for more.
//
// - After the first loss, the router retries at once.
// - After the second, it waits for the report, at most kLossWordWait.
// - It drops a loss "from outside" (a SIGKILL, a lost node).
//
// All requests that ran on a lost worker have the same loss. So a request with a loss is a
// *suspect* and is tried alone. For at most kSuspectWaitMax, it avoids workers that stand still or
// have another suspect. A suspect passes its trial on a worker when its leg ends, or kSuspectTrial
// after its answer. If the worker is lost while another suspect is on trial there, the loss does
// not count for one that has passed. Nobody is charged while another request was at all the same
// lost workers: from then on, they are apart. Requests without a loss avoid workers that stand
// still or have a suspect, while others are left.
//
// Pure.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/id.h"
#include "common/limits.h"
#include "common/time.h"
#include "net/control/message.h"
#include "router/core/router_events.h"
#include "router/policies/worker_table.h"

namespace pdjob::router {

// The workers that were lost while one request ran on them, without those lost from outside.
class Losses {
 public:
  bool empty() const { return losses_.empty(); }
  size_t size() const { return losses_.size(); }
  bool is_suspect(Instant now) const;
  bool is_guilty() const;
  // True if the second loss is noted, and the cause of one of them is still open.
  bool awaits_word(Instant now) const;
  // When the state of a queued suspect changes with time alone; kNever: it does not.
  Instant wakes(Instant now) const;

  // A queued suspect waits for a worker of its own, for limits::kSuspectWaitMax.
  void begin_wait(Instant now);
  void end_wait() { alone_until_ = {}; }
  bool wants_own_worker(Instant now) const {
    return is_suspect(now) && (alone_until_ == Instant{} || now < alone_until_);
  }

 private:
  friend class Blame;
  struct Loss {
    WorkerId worker;
    Instant noted{};
    net::LossCause cause = net::LossCause::kUnknown;
    bool on_trial = false;    // The request was on trial there.
    bool as_suspect = false;  // It was a suspect when it came there.
    bool killed() const { return cause >= net::LossCause::kCrash; }
    // True while the launcher may still report the cause.
    bool open(Instant now) const {
      return cause == net::LossCause::kUnknown && now < noted + limits::kLossWordWait;
    }
  };
  template <class Counts>
  size_t count(const Counts& counts) const;

  std::vector<Loss> losses_;
  Instant alone_until_{};
};

// The workers whose connections broke, or that left, and the requests that they had.
class Blame {
 public:
  // The workers of the table, some of which may be gone from the next one.
  void expect(const WorkerTable& table);
  // Requires: expect() was called for the table before this one.
  void take(const WorkersChanged& event, const WorkerTable& table);
  // Why this worker was lost; empty: it is not known to be.
  std::optional<net::LossCause> cause_of(WorkerId worker) const;

  struct Stay {
    WorkerId worker;
    bool on_trial = false;
    bool as_suspect = false;
  };
  // The worker at which this request is, or seems to be, is lost. Requires: its trial has not
  // ended.
  void note(RequestId request, Losses& losses, const Stay& stay, const WorkerTable& table,
            Instant now);
  // Takes the causes known by now for the workers that this request lost. Ignores a report that
  // comes too late: a worker may continue after a connection broke, and be lost for another reason.
  void settle(RequestId request, Losses& losses, Instant now);
  // Another request, which may have ended since, was at every worker that this one lost, and may be
  // the killer: a hedged request becomes a suspect only when its first worker is lost, and may be
  // at a second one already, to which this one was sent meanwhile. Then these losses count as one.
  // From now on, both are kept apart. Requires: the request is guilty.
  void excuse_company(RequestId request, Losses& losses) const;

 private:
  struct LostWorker {
    std::string engine_id;
    net::LossCause cause = net::LossCause::kUnknown;
    bool had_suspect = false;  // A suspect was on trial there.
    // Requests that lost it; they may have ended since. The first limits::kLostWorkerRequestsMax.
    std::vector<RequestId> had = {};
  };
  void keep_newest();

  std::map<WorkerId, LostWorker> lost_;  // The newest limits::kLostWorkersMax.
};

}  // namespace pdjob::router
