// The workers a router knows: who they are, how busy, how healthy. One row per incarnation, so that
// what is said of a dead worker never sticks to its successor of the same name.
//
//   healthy --failed--> suspect (back-off) --time passes--> half-open --one trial--> healthy |
//   suspect (longer back-off)
//
// Suspicion only orders the choice: when nobody better is left, suspects are candidates too. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/id.h"
#include "common/limits.h"
#include "common/time.h"
#include "net/message.h"
#include "router/worker_pace.h"

namespace pdjob::router {

// The two things a request needs of workers. A worker of role `both` serves the decode stage and
// needs no prefill worker.
enum class Stage { kPrefill, kDecode };

enum class Health { kHealthy, kSuspect, kHalfOpen };
const char* to_string(Health health);

struct Worker {
  WorkerId id;
  net::WorkerEntry entry;
  uint64_t name_hash = 0;  // Of entry.name.
  std::string key_line;    // The header line that shows the worker's key; empty: it wants none.
  net::WorkerLoad reported;
  uint32_t requests_in_flight = 0;  // Of this router: legs that have not ended.
  uint64_t tokens_in_flight = 0;    // Of the same legs, estimated.

  std::string learnt_address;      // From its replies, which all say the same of it.
  bool several_addresses = false;  // They do not: it is several engines, and nothing can be learnt.

  WorkerPace pace;

  uint32_t failures = 0;  // In a row; 0: healthy.
  Instant retry_at{};     // Of a suspect: before it, somebody else is asked.
  bool trial = false;     // A half-open worker has its one trial in flight.
  bool silent = false;  // Health checks have had no answer for a while: nothing new is sent there.
  uint32_t suspects = 0;  // Requests that may have killed another worker, and are tried here.

  // Its engine is at one turn for long; it may hang.
  bool stands_still() const {
    return std::chrono::milliseconds(reported.standstill_ms) >= limits::kStandstillAvoided;
  }

  bool serves(Stage stage) const;
  bool serves(std::string_view model) const;  // Either may be empty: any.
  // Where a decode worker finds KV of this prefill worker; empty: its replies say.
  const std::string& kv_address() const {
    return entry.kv_address.empty() ? learnt_address : entry.kv_address;
  }
  // That is known: both legs can be sent at once.
  bool concurrent() const { return !kv_address().empty(); }
  Health health(Instant now) const;
  // What policies compare. Reports lag by a heartbeat and own legs do not know of other routers:
  // the larger is nearer the truth.
  uint64_t load() const;
};

class WorkerTable {
 public:
  static constexpr Duration kBackoffFirst = std::chrono::milliseconds(100);
  static constexpr Duration kBackoffMax = std::chrono::seconds(5);

  // Takes over the whole list, as membership messages give it. Returns the ids that are gone.
  // Entries that are no workers, repeat a name or exceed limits::kWorkersMax are ignored.
  std::vector<WorkerId> replace(const std::vector<net::WorkerEntry>& entries);
  void set_load(std::string_view name, std::string_view engine_id, const net::WorkerLoad& load);

  const std::map<WorkerId, Worker>& all() const { return workers_; }
  const Worker* find(WorkerId id) const;
  const Worker* find(std::string_view name) const;
  bool knows_model(std::string_view model) const;

  // Workers that serve `stage` and `model` and are not in `except`: healthy ones and due trials, or
  // else the suspects. By id.
  std::vector<const Worker*> candidates(Stage stage, std::string_view model,
                                        const std::vector<WorkerId>& except, Instant now) const;
  // Is anybody there, in whatever health?
  bool any(Stage stage, std::string_view model) const;

  // A leg begins and ends; unknown ids (the worker has left) are ignored.
  void begin(WorkerId id, uint64_t tokens, Instant now);
  void end(WorkerId id, uint64_t tokens);
  // A suspect is tried there, or no longer.
  void begin_trial(WorkerId id);
  void end_trial(WorkerId id);
  void set_silent(WorkerId id, bool silent);
  // It has done so many tokens of work.
  void note_pace(WorkerId id, uint64_t tokens, Duration took);
  // What was learnt of the worker: it answers, or it failed.
  void note_address(WorkerId id, const std::string& address);
  void forget_address(WorkerId id);
  // True: it had been silent, and has room again.
  bool note_good(WorkerId id);
  void note_failed(WorkerId id, Instant now);

 private:
  Worker* find_mutable(WorkerId id);

  std::map<WorkerId, Worker> workers_;
  uint64_t ids_made_ = 0;
};

}  // namespace pdjob::router
