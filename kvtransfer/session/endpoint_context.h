// The state that the two halves of an endpoint, Sender and Receiver, share.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"
#include "kvtransfer/config/kvtransfer_config.h"
#include "kvtransfer/link/link_handshake.h"
#include "kvtransfer/link/transport.h"
#include "kvtransfer/rows/region.h"
#include "kvtransfer/session/endpoint_event.h"
#include "kvtransfer/session/link_network.h"
#include "kvtransfer/session/pair_table.h"
#include "kvtransfer/session/transfer_session.h"
#include "net/loop/timers.h"

namespace pdjob::kvtransfer {

// Written on the kv thread, read anywhere. Thread-safe.
struct EndpointCounters {
  std::atomic<uint64_t> links = 0, offers_alive = 0, fetches_alive = 0, waits_alive = 0;
  std::atomic<uint64_t> bytes_sent = 0, bytes_received = 0, transfers_sent = 0,
                        transfers_received = 0, transfers_failed = 0, digest_errors = 0,
                        fingerprints_refused = 0;
};

// All that an endpoint is made of. Value.
struct EndpointParts {
  net::Timers& timers;
  LinkNetwork& network;
  KvTransferConfig config;
  std::vector<TransportTraits> transports;  // transports_of(): preferred first.
  LinkIdentity identity;
  std::string host_id;
  std::function<void(EndpointEvent)> emit;
  TransportOpener open_transport;
  std::optional<uint32_t> device;  // As in EndpointOptions.
  TransportDevices devices = {};   // They outlive the endpoint.
};

// Loop-bound, except the counters.
struct EndpointContext : EndpointParts {
  explicit EndpointContext(EndpointParts parts) : EndpointParts(std::move(parts)) {}

  EndpointCounters counters;
  PairTable pairs;
  uint64_t links_made = 0;

  LinkId next_link_id() { return LinkId{++links_made}; }
  // A peer that sends nothing for longer is given up.
  Duration silence_max() const { return 2 * config.connect_timeout; }
  // The longest time that `bytes` of rows, or one range, may take before they count as stalled.
  // That is 400 KiB/s at the default timeout.
  Duration stall_max(uint64_t bytes) const;
  // The longest time until a range may start, over all transports.
  Duration start_max() const;
};

// Checks a Region for a transfer of `rows` rows against the rules of kv_endpoint.h.
// kInvalidArgument: it breaks one, or is on a GPU other than `device`.
Status check_region(const Region& region, uint32_t rows, std::optional<uint32_t> device);

}  // namespace pdjob::kvtransfer
