// PairTable: the PairStats of an endpoint. A row lives as long as its links and a little longer, so
// that a link that is made again goes on counting, and a dead incarnation disappears. Pure.
#pragma once

#include <deque>
#include <map>
#include <tuple>
#include <vector>

#include "common/time.h"
#include "kvtransfer/pair_stats.h"
#include "kvtransfer/transfer_session.h"

namespace pdjob::kvtransfer {

class PairTable {
 public:
  // So long a row stays without a link.
  static constexpr Duration kForgetAfter = std::chrono::minutes(1);
  // So many digest errors within such a time make a pair suspect. One may be a bit of chance.
  static constexpr size_t kSuspectErrors = 2;
  static constexpr Duration kSuspectWindow = std::chrono::minutes(1);

  struct Key {
    std::string peer;
    TransportKind transport = TransportKind::kTcp;
    Direction direction = Direction::kReceives;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  // A link is being made, is open, was lost. Unknown links are ignored from here on.
  void link_made(LinkId link, const Key& key, uint64_t epoch, Instant now);
  void link_opened(LinkId link);
  void link_lost(LinkId link, Instant now);

  void done(LinkId link, uint64_t bytes, Duration busy);
  // True: the pair has become, or still is, suspect by it.
  bool failed(LinkId link, FailureCause cause, Instant now);
  void stalled(LinkId link, StallCause cause);

  // Without what is alive now, which sessions know; `links`, those that are not lost, are in the
  // same order.
  std::vector<PairStats> rows(Instant now, std::vector<std::vector<LinkId>>& links);

 private:
  struct Row {
    PairStats stats;
    std::map<LinkId, bool> links;       // That are not lost, several of tcp's streams; is it open?
    Instant lost = kNever;              // The last of them.
    std::deque<Instant> digest_errors;  // The latest kSuspectErrors.
  };

  Row* find(LinkId link);
  static bool is_suspect(const Row& row, Instant now);
  void forget(Instant now);

  std::map<Key, Row> rows_;
  std::map<LinkId, Key> keys_;  // Of links that are not lost.
};

}  // namespace pdjob::kvtransfer
