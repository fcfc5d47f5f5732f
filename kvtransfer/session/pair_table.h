// PairTable: the PairStats of an endpoint. A row outlives its links by a short time. So a new link
// continues the counts, and a dead incarnation disappears. Pure.
#pragma once

#include <deque>
#include <map>
#include <tuple>
#include <vector>

#include "common/time.h"
#include "kvtransfer/session/pair_stats.h"
#include "kvtransfer/session/transfer_session.h"

namespace pdjob::kvtransfer {

class PairTable {
 public:
  // How long a row stays without a link.
  static constexpr Duration kForgetAfter = std::chrono::minutes(1);
  // This many digest errors within this window make a pair suspect. A single one may be chance.
  static constexpr size_t kSuspectErrors = 2;
  static constexpr Duration kSuspectWindow = std::chrono::minutes(1);

  struct Key {
    std::string peer;
    TransportKind transport = TransportKind::kTcp;
    Direction direction = Direction::kReceives;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  // A link is being made, is open, was lost. link_made() adds it; every other call ignores unknown
  // links.
  void link_made(LinkId link, const Key& key, uint64_t epoch, Instant now);
  enum class Privacy { kPlain, kEncrypted };
  void link_opened(LinkId link, Privacy privacy = Privacy::kPlain);
  void link_lost(LinkId link, Instant now);

  void done(LinkId link, uint64_t bytes, Duration busy);
  // True: with this failure the pair is suspect.
  bool failed(LinkId link, FailureCause cause, Instant now);
  void stalled(LinkId link, StallCause cause);

  // Returns the rows, without the live counts, which sessions know. `links` gets each row's links
  // that are not lost, in the same order.
  std::vector<PairStats> rows(Instant now, std::vector<std::vector<LinkId>>& links);

 private:
  struct Entry {
    PairStats stats;
    // Links that are not lost; with tcp, one per stream. The value: is it open?
    std::map<LinkId, bool> links;
    Instant lost = kNever;              // When the last of them was lost.
    std::deque<Instant> digest_errors;  // The latest, at most kSuspectErrors.
  };

  Entry* find(LinkId link);
  static bool is_suspect(const Entry& row, Instant now);
  void forget(Instant now);

  std::map<Key, Entry> rows_;
  std::map<LinkId, Key> keys_;  // Links that are not lost.
};

}  // namespace pdjob::kvtransfer
