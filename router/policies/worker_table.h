// The workers a router knows: who they are, how busy, how healthy. There is one row per
// incarnation, so facts about a dead worker never apply to its successor of the same name.
//
//   healthy --failed--> suspect (back-off) --time passes--> half-open --one trial--> healthy |
//   suspect (longer back-off)
//
// A worker fails by its connection, or by what it answers (router/core/verdict.h). The back-off
// grows until the worker has sent a whole good reply, so one that begins replies and breaks them
// off is avoided longer and longer. An overloaded worker is healthy, and avoided for moments.
//
// Suspicion only orders the choice: if no better worker is left, the overloaded ones are
// candidates, and after them the suspects. Every policy chooses among what is left. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/id.h"
#include "common/limits.h"
#include "common/random.h"
#include "common/time.h"
#include "net/control/kv_fingerprint.h"
#include "net/control/message.h"
#include "router/policies/kv_stores.h"
#include "router/policies/worker_pace.h"

namespace pdjob::router {

// The two stages of a request. A worker of role `both` serves the decode stage and needs no prefill
// worker.
enum class Stage { kPrefill, kDecode };

enum class Health { kHealthy, kSuspect, kHalfOpen };
const char* to_string(Health health);

struct Worker {
  WorkerId id;
  net::WorkerEntry entry;
  uint64_t name_hash = 0;  // Of entry.name.
  std::string key_line;    // The header line with the worker's key; empty: it wants none.
  WorkerId store;          // KvStores::near().
  net::WorkerLoad reported;
  // Of this router: unfinished legs. Without those in the background, if it lets them wait.
  uint32_t requests_in_flight = 0;
  uint64_t tokens_in_flight = 0;      // Of the same legs, estimated.
  uint32_t background_in_flight = 0;  // Unfinished legs in the background.
  uint64_t background_tokens = 0;     // Of the same legs.
  uint64_t prompts_in_flight = 0;  // Tokens of prompts that it is to compute alone, of such legs.

  std::string learnt_address;      // The address in its replies.
  bool several_addresses = false;  // Its replies differ: it is several engines, so none is learnt.

  WorkerPace pace;

  uint32_t failures = 0;   // In a row; 0: healthy.
  uint32_t setbacks = 0;   // Failures since its last whole reply.
  uint32_t doubts = 0;     // Bad answers in a row that may be the requests' own fault.
  int bad_status = 0;      // The last failure was this answer; 0: it was none, or it is healthy.
  uint32_t overloads = 0;  // Answers in a row that it is at its limit.
  Instant busy_until{};    // An overloaded worker is avoided until then.
  Instant retry_at{};      // A suspect is avoided until then.
  bool trial = false;      // A half-open worker's one trial is in flight.
  bool silent = false;     // No answer to health checks for a while: it gets no new requests.
  uint32_t promised = 0;   // Requests that come here next, once their prompts are computed.
  uint32_t suspects = 0;   // Requests on trial here, which may have killed another worker.
  // WorkerEntry::adapters, with the changes that this router has caused since.
  std::set<std::string, std::less<>> adapters;
  // A decode worker without any prefill worker that it could fetch KV from.
  bool lonely = false;

  // True if its engine has been at one turn for long; it may hang.
  bool stands_still() const {
    return std::chrono::milliseconds(reported.standstill_ms) >= limits::kStandstillAvoided;
  }

  // True if it gets new requests that name no worker.
  bool accepts() const { return entry.standing == net::Standing::kServing && !silent; }
  bool serves(Stage stage) const;
  bool serves(std::string_view model) const;  // Either may be empty: any.
  bool has_adapter(std::string_view name) const { return adapters.contains(name); }
  bool has_route(std::string_view path) const;  // Empty: any.
  // True if KV of one means the same to the other, and they speak one protocol.
  bool pairs_with(const Worker& other) const {
    return entry.protocol == other.entry.protocol &&
           net::same_kv(entry.fingerprint, other.entry.fingerprint);
  }
  // Where a decode worker finds KV of this prefill worker; empty: its replies say where.
  const std::string& kv_address() const {
    return entry.kv_address.empty() ? learnt_address : entry.kv_address;
  }
  // False: an engine of another make.
  bool is_pdjob() const {
    return entry.protocol == net::Protocol::kPdjob ||
           (entry.protocol == net::Protocol::kAuto && !entry.kv_address.empty());
  }
  // True if its engine computes no prompt, so it serves nothing without a prefill worker.
  bool needs_prefill() const {
    return entry.role == net::Role::kDecode && entry.protocol == net::Protocol::kSglang;
  }
  // True if requests in the background take only what others leave there. Elsewhere they count like
  // the others, and few are sent.
  bool gives_way() const { return is_pdjob() || entry.background_priority > 0; }
  // True if that address is known, so both legs can be sent at once.
  bool concurrent() const { return !kv_address().empty(); }
  Health health(Instant now) const;
  // Its unfinished requests, as far as is known here.
  uint32_t requests() const;
  // Tokens of prompts that a decode worker has yet to compute, as far as is known here.
  uint64_t prompts() const { return std::max(prompts_in_flight, reported.tokens_queued); }
  // The load that policies compare. Reports lag by a heartbeat, and this router's legs do not show
  // other routers' requests, so the larger of the two is closer to the truth.
  uint64_t load() const;
};

class WorkerTable {
 public:
  static constexpr Duration kBackoffFirst = std::chrono::milliseconds(100);
  static constexpr Duration kBackoffMax = std::chrono::seconds(5);
  static constexpr Duration kBusyMax = std::chrono::seconds(1);
  // So many bad answers in a row are the worker's fault, whatever the requests were.
  static constexpr uint32_t kDoubtsMax = 3;
  // A fleet is large if a stage has more workers than kAllMax. Then kSome are looked at: the least
  // loaded of so many has hardly more load than the least loaded of all (Mitzenmacher, 2001).
  static constexpr size_t kAllMax = 128;
  static constexpr size_t kSome = 64;

  // Replaces the whole list, as membership messages give it. Returns the ids that are gone. Ignores
  // entries that are not workers, repeat a name or exceed limits::kWorkersMax.
  std::vector<WorkerId> replace(const std::vector<net::WorkerEntry>& entries,
                                const KvStores& stores = {});
  void set_load(std::string_view name, std::string_view engine_id, const net::WorkerLoad& load);

  const std::map<WorkerId, Worker>& all() const { return workers_; }
  const Worker* find(WorkerId id) const;
  const Worker* find(std::string_view name) const;
  bool knows_model(std::string_view model) const;

  // The workers that a request could go to.
  struct Search {
    Stage stage = Stage::kDecode;
    std::string_view model;
    std::string_view route = {};
    const std::vector<WorkerId>& except;
    const Worker* partner = nullptr;  // Only those that pair with it.
    // Only those with the same WorkerEntry::fingerprint; null: any.
    const std::string* fingerprint = nullptr;
    bool paired = false;  // Not the lonely ones.
    // Draws which part of a large fleet is looked at. Null: all of it is.
    Random* some = nullptr;
  };
  // Those that accept requests, by id. Returns the healthy ones and due trials or, if there are
  // none, the overloaded ones, or else the suspects. The time that some of a large fleet take does
  // not grow with it, if most of its workers fit.
  std::vector<const Worker*> candidates(const Search& search, Instant now) const;
  bool is_large(Stage stage) const { return !shuffled_.at(static_cast<size_t>(stage)).empty(); }
  // True if any worker accepts such requests, in whatever health.
  bool any(Stage stage, std::string_view model) const;
  // True if a worker of this model, or any if it is empty, has the route, or one of an earlier list
  // had it.
  bool knows_route(std::string_view path, std::string_view model) const;

  // Records that a worker has an adapter, or has it no more, until it lists its adapters otherwise
  // than so far. Ignores unknown ids.
  void note_adapter(WorkerId id, const std::string& name, bool has);
  // Records that a leg begins or ends. Ignores unknown ids: the worker has left.
  void begin(WorkerId id, uint64_t tokens, Instant now, bool background = false);
  void end(WorkerId id, uint64_t tokens, bool background = false);
  // Records that it is to compute a prompt of so many tokens alone, or that it has done so or need
  // not. Ignores unknown ids.
  void begin_prompt(WorkerId id, uint64_t tokens);
  void end_prompt(WorkerId id, uint64_t tokens);
  // Records that a request will come there next, or that it came or does not.
  void promise(WorkerId id);
  void keep_promise(WorkerId id);
  // Records that a suspect's trial begins or ends there.
  void begin_trial(WorkerId id);
  void end_trial(WorkerId id);
  void set_silent(WorkerId id, bool silent);
  // Records that the worker has done so many tokens of work.
  void note_pace(WorkerId id, uint64_t tokens, Duration took);
  // Records facts learnt about the worker.
  void note_address(WorkerId id, const std::string& address);
  void forget_address(WorkerId id);
  // Records a good answer. Returns true if the worker was silent, and so has room again.
  bool note_good(WorkerId id);
  // Records that a good answer has come to its end.
  void note_whole(WorkerId id);
  // Records that a health check was answered. This says nothing of a worker that answers requests
  // badly. Returns true if the worker is usable again.
  bool note_reachable(WorkerId id);
  // Like note_good(): it lives.
  bool note_overloaded(WorkerId id, Instant now);
  // `status`: of the bad answer; 0: there was none. These two return true if the worker is avoided
  // for longer from now on.
  bool note_failed(WorkerId id, Instant now, int status = 0);
  // Records a bad answer that may be the request's own fault.
  bool note_doubt(WorkerId id, Instant now, int status);

 private:
  Worker* find_mutable(WorkerId id);
  Worker* find_mutable(std::string_view name);
  // Makes by_name_ and by_stage_ anew, and finds the lonely ones.
  void index();
  void note_routes(const net::WorkerEntry& entry);

  std::map<WorkerId, Worker> workers_;
  std::map<std::string, Worker*, std::less<>> by_name_;
  std::array<std::vector<const Worker*>, 2> by_stage_;  // In the order of their ids.
  std::array<std::vector<const Worker*>, 2> shuffled_;  // The same, if they are many.
  // Paths, with the models whose workers have or had them.
  std::map<std::string, std::set<std::string, std::less<>>, std::less<>> routes_;
  size_t routes_known_ = 0;
  uint64_t ids_made_ = 0;
};

}  // namespace pdjob::router
