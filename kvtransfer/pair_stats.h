// PairStats: what one pair of workers has moved by one transport in one direction, and what went
// wrong between them. Counted by the endpoint that reports it; the other end has its own. Value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "common/time.h"
#include "kvtransfer/kvtransfer_config.h"

namespace pdjob::kvtransfer {

const char* to_string(TransportKind transport);

// Why a transfer failed.
enum class FailureCause {
  kCancelled,      // By this end's worker, or it withdrew the offer.
  kPeer,           // The other end cancelled or aborted.
  kLink,           // The link was lost.
  kTimeout,        // A deadline or a lease ended.
  kStalled,        // Rows stopped on their way.
  kDigest,         // Rows do not match their digest.
  kBrokenPromise,  // Messages that follow each other wrongly.
  kLocal,          // Here: a push failed, rows were counted wrong.
};
inline constexpr size_t kFailureCauses = 8;
const char* to_string(FailureCause cause);

// What stopped moving.
enum class StallCause {
  kPush,     // A range did not leave.
  kArrival,  // Announced rows did not arrive.
  kPayload,  // A payload stopped in the middle.
  kSilence,  // The peer said nothing at all.
  kCancel,   // A CANCEL was not answered.
};
inline constexpr size_t kStallCauses = 5;
const char* to_string(StallCause cause);

enum class Direction { kReceives, kSends };
const char* to_string(Direction direction);

struct PairStats {
  enum class State { kOpening, kOpen, kLost };

  std::string peer;  // Its engine id: an incarnation, not a name.
  TransportKind transport = TransportKind::kTcp;
  Direction direction = Direction::kReceives;  // Of this end.
  State state = State::kOpening;
  uint64_t epoch = 0;         // Of the latest link.
  uint64_t links_opened = 0;  // Beyond the first: retries.
  // Of transfers that were completed.
  uint64_t transfers = 0;
  uint64_t bytes = 0;
  Duration busy{};  // From grant to COMMIT, summed up; transfers at the same time count twice.
  std::array<uint64_t, kFailureCauses> failures{};
  std::array<uint64_t, kStallCauses> stalls{};
  // Now:
  uint64_t transfers_alive = 0;  // Granted.
  uint64_t waits_alive = 0;      // Kept for a receiver that has no rows yet.
  bool suspect = false;          // Several digest errors of late.

  uint64_t digest_errors() const { return failures[static_cast<size_t>(FailureCause::kDigest)]; }
};
const char* to_string(PairStats::State state);

}  // namespace pdjob::kvtransfer
