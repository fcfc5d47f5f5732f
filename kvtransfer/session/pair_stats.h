// PairStats: what one pair of workers has moved by one transport in one direction, and what went
// wrong between them. Each end counts its own. Value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "common/time.h"
#include "kvtransfer/config/kvtransfer_config.h"

namespace pdjob::kvtransfer {

// Why a transfer failed.
enum class FailureCause {
  kCancelled,      // This end's worker cancelled, or withdrew the offer.
  kPeer,           // The other end cancelled or aborted.
  kLink,           // The link was lost.
  kTimeout,        // A deadline passed or a lease expired.
  kStalled,        // Rows stopped moving.
  kDigest,         // Rows do not match their digest.
  kBrokenPromise,  // The peer's messages do not fit together.
  kLocal,          // This end's fault: a push failed, or rows were miscounted.
};
inline constexpr size_t kFailureCauses = 8;
const char* to_string(FailureCause cause);

// The part of a transfer that stalled.
enum class StallCause {
  kPush,     // A range was not sent.
  kArrival,  // Announced rows did not arrive.
  kPayload,  // A payload stopped in the middle.
  kSilence,  // The peer sent nothing.
  kCancel,   // A CANCEL was not answered.
};
inline constexpr size_t kStallCauses = 5;
const char* to_string(StallCause cause);

enum class Direction { kReceives, kSends };
const char* to_string(Direction direction);

// The sums over all peers of an endpoint.
struct EndpointStats {
  uint64_t links = 0, offers_alive = 0, fetches_alive = 0, waits_alive = 0;
  uint64_t bytes_sent = 0, bytes_received = 0, transfers_sent = 0, transfers_received = 0,
           transfers_failed = 0, digest_errors = 0;
  uint64_t fingerprints_refused = 0;  // LinkHandshake::differs().
};

struct PairStats {
  enum class State { kOpening, kOpen, kLost };

  std::string peer;  // The peer's engine id, which names one incarnation.
  TransportKind transport = TransportKind::kTcp;
  Direction direction = Direction::kReceives;  // Seen from this end.
  State state = State::kOpening;
  bool encrypted = false;     // The latest link that opened.
  uint64_t epoch = 0;         // Epoch of the latest link.
  uint64_t links_opened = 0;  // Beyond the first: retries.
  // Completed transfers:
  uint64_t transfers = 0;
  uint64_t bytes = 0;
  Duration busy{};  // Sum of the times from grant to COMMIT; parallel transfers add up.
  std::array<uint64_t, kFailureCauses> failures{};
  std::array<uint64_t, kStallCauses> stalls{};
  // Now:
  uint64_t transfers_alive = 0;  // Granted.
  uint64_t waits_alive = 0;      // Kept for a receiver that has no rows yet.
  bool suspect = false;          // Several recent digest errors.

  uint64_t digest_errors() const { return failures[static_cast<size_t>(FailureCause::kDigest)]; }
};
const char* to_string(PairStats::State state);

}  // namespace pdjob::kvtransfer
