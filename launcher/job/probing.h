// Probing: which processes are proved, and which probes to send. A process is proved once a probe
// has passed through it. A probe passes through a router, a prefill worker and a decode worker of
// one model whose KV means the same (WorkerEntry::fingerprint). Routers send no client's request to
// an unproved worker. A router itself may accept clients before it is proved.
//
// Several probes run at a time. Partners are proved processes if there are any, so that a broken
// process cannot block a good one; pairs with which a probe has failed come last, because two
// proved workers may fail with each other. Otherwise the partners are tried in turn. An engine may
// go on failing towards the successor of a dead one that it remembers (vLLM issue 49238). So a
// partner that two processes in a row were given up with is the one to blame the next time. A
// foreign router cannot be told which workers to use. Its pairs are probed directly. The router is
// probed once it knows a proved worker. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/job/events.h"

namespace pdjob::launcher {

class Probing {
 public:
  static constexpr size_t kAtOnceMax = 32;       // Probes in flight.
  static constexpr uint32_t kWithOneMax = 4;     // With one process that is not proved itself.
  static constexpr uint32_t kDoublingsMax = 4;   // Of the time until the next try.
  static constexpr size_t kErrorBytesMax = 512;  // Of a failure, as kept.
  static constexpr size_t kGivenUpWithMax = 2;   // With one partner; then it goes, too.

  // True if the router has confirmed that it knows the process.
  using Knows = std::function<bool(const std::string& router, const std::string& process)>;

  // `retry`: time until the next try after the first failure; it doubles up to four times.
  // `patience`: how long a process may keep failing with proved partners. After that, failed()
  // returns it.
  Probing(Duration retry, Duration patience, bool foreign_router, Knows knows);

  // Takes a process as it is now.
  void update(const Process& process);
  void remove(const Process& process);
  // A router confirmed a membership, so that next() may find more.
  void routers_learnt() { changed_ = true; }

  // Returns the next probe to send; call it until there is none.
  std::optional<Probe> next(Instant now);
  // When next() may have a probe again, if nothing else happens before; kNever: only then.
  Instant due() const { return due_; }

  // Both ignore a probe that is not in flight. Returns the processes that are proved now.
  std::vector<std::string> succeeded(const ProbeSucceeded& event, Instant now);
  // Returns the processes that the caller should kill: see `patience`.
  std::vector<std::string> failed(const ProbeFailed& event, Instant now);

  // For people; empty after a success.
  const std::string& last_error() const { return last_error_; }

 private:
  enum Kind : uint8_t { kRouter, kPrefill, kDecode };
  static constexpr size_t kKinds = 3;

  struct Subject {
    std::string name;
    Incarnation incarnation;
    Kind kind = kRouter;
    std::string model;
    std::string fingerprint;
    bool needs_prefill = false;  // Of kDecode.
    bool proved = false;
    uint32_t in_flight = 0;
    uint32_t with_proved = 0;  // Of those: it is the suspect.
    uint32_t failures = 0;
    Instant not_before{};
    Instant blamed_since = kNever;  // The first failure with proved ones.
    // How often, by the prefill and the decode worker: all but itself are proved.
    std::map<std::pair<Incarnation, Incarnation>, uint32_t> failed_with;
    std::set<Incarnation> given_up_with;        // Others, since a probe last passed through it.
    std::array<Incarnation, kKinds> partner{};  // Those tried last.
  };
  struct InFlight {
    std::array<Incarnation, kKinds> members{};  // 0: none of this kind, or it has left.
    bool somebody_left = false;
    Incarnation suspect;  // The only one that was not proved when it began; 0: several.
    std::string path;     // "prefill-0 -> decode-0"
    bool must_move_kv = false;
  };
  // The processes of one kind and model, by incarnation. Routers have no model.
  using Group = std::map<Incarnation, Subject*>;

  static Kind kind_of(const Process& process);
  Group& group(Kind kind, const std::string& model);
  Subject* find(Incarnation incarnation);
  void drop(Incarnation incarnation);

  // There are processes of the kinds that every probe needs.
  bool could_pass() const;
  std::optional<Probe> probe_of(Subject& subject);
  bool choose(Subject& subject, std::array<Subject*, kKinds>& members, bool proved_only);
  Subject* partner_of(Subject& subject, Kind kind, const std::string& model, bool proved_only,
                      const std::array<Subject*, kKinds>& members);
  bool fit(const Subject& candidate, const std::array<Subject*, kKinds>& members) const;
  // A prefill worker whose KV it could fetch.
  bool has_prefill(const Subject& decode, bool proved_only) const;
  Probe send(Subject& subject, const std::array<Subject*, kKinds>& members);
  // Ends a probe; returns its members that are still here.
  std::vector<Subject*> end(uint64_t probe, const InFlight& ended);
  std::vector<std::string> fail(uint64_t probe, const InFlight& ended, const std::string& reason,
                                Instant now);
  // The partners that must go with it.
  std::vector<std::string> give_up(const Subject& subject);

  const Duration retry_;
  const Duration patience_;
  const bool foreign_router_;
  const Knows knows_;
  std::map<Incarnation, Subject> subjects_;
  std::map<std::string, Incarnation> by_name_;
  std::map<std::pair<Kind, std::string>, Group> groups_;
  std::set<std::pair<uint32_t, Incarnation>> unproved_;  // By Subject::failures: the next ones.
  std::map<uint64_t, InFlight> in_flight_;
  uint64_t probes_made_ = 0;
  bool changed_ = false;  // Since next() found nothing.
  Instant due_ = kNever;
  std::string last_error_;
};

}  // namespace pdjob::launcher
