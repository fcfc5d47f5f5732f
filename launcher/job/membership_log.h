// MembershipLog: what routers know about the members of the job, and since which version. A router
// gets the changes since the version that it confirmed last. It gets one message at a time: what
// changes before it confirms goes in the next one, so a slow router gets few large messages. If it
// confirms none for a while, it gets everything. Pure.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "launcher/job/events.h"

namespace pdjob::launcher {

class MembershipLog {
 public:
  // `retry`: routers that confirm nothing get everything again after this time.
  // Versions follow on `version`, which is more than any that routers know.
  explicit MembershipLog(Duration retry, uint64_t version = 1) : retry_(retry), version_(version) {}

  // Takes what is to be known of a process now. A registered process is a member that only probes
  // may use; a ready one serves; a draining one leaves.
  void update(const Process& process);
  // The process is gone for good. Routers that have not confirmed it are still told.
  void forget(const Process& process);
  // Makes the changes since the last call a version. Sends it to each router with no message on its
  // way, or whose message was not confirmed for a while.
  void publish(Turn& turn);

  // A router confirmed a version, or sent a heartbeat.
  void applied(const Process& router, const net::MembershipApplied& message, Turn& turn);
  void beat(const Process& router, Turn& turn);
  // Passes a worker's load on.
  void report_load(const Process& worker, Turn& turn) const;

  // True if this router, or every router, has confirmed all that is to be known of the process.
  bool knows(const std::string& router, const std::string& process) const;
  bool all_know(const std::string& process) const;
  // True if every router has confirmed everything.
  bool confirmed() const;

 private:
  // Routers must be told when this changes.
  struct Known {
    Incarnation incarnation;
    bool member = false;
    net::Standing standing = net::Standing::kProving;
    bool shares_cores = false;
    net::LossCause loss = net::LossCause::kUnknown;
    std::vector<std::string> adapters;
    friend bool operator==(const Known&, const Known&) = default;
  };
  struct Listed {
    std::string name;
    net::Role role = net::Role::kBoth;
    bool stays = false;  // A worker that is to run.
    Known known;
    net::WorkerEntry entry;                   // If it is a member.
    std::string engine_id;                    // Of that entry.
    std::optional<net::Departure> departure;  // Of the last incarnation that was a member.
    uint64_t changed_in = 0;
  };
  struct Listener {
    std::string engine_id;
    uint64_t applied = 0;
    uint64_t sent = 0;  // Not `applied`: a message is on its way.
    Instant sent_at{};
  };

  static Known known_of(const Process& process);
  void note_stays(Listed& row, bool stays);
  net::Membership since(uint64_t version) const;
  void send(const std::string& router, Listener& listener, uint64_t since, Turn& turn);
  void drop_forgotten();

  const Duration retry_;
  uint64_t version_;
  bool changed_ = false;
  size_t staying_ = 0;      // Rows with `stays`. 0 of a job that scaled to zero.
  std::list<Listed> rows_;  // Those that changed last are at the end.
  std::unordered_map<std::string, std::list<Listed>::iterator> by_name_;
  std::set<std::pair<uint64_t, std::string>> forgotten_;  // Names, by Listed::changed_in.
  std::map<std::string, Listener> listeners_;             // Routers that serve, by name.
};

}  // namespace pdjob::launcher
