// The state that the two halves of an endpoint, Sender and Receiver, share.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/result.h"
#include "gpu/gpu.h"
#include "kvtransfer/config/kvtransfer_config.h"
#include "kvtransfer/link/link_handshake.h"
#include "kvtransfer/link/tls_stream.h"
#include "kvtransfer/link/transport.h"
#include "kvtransfer/nccl/nccl_links.h"
#include "kvtransfer/rows/region.h"
#include "kvtransfer/session/endpoint_event.h"
#include "kvtransfer/session/pair_table.h"
#include "kvtransfer/session/transfer_session.h"
#include "net/loop/event_loop.h"

namespace pdjob::kvtransfer {

// Written on the kv thread, read anywhere. Thread-safe.
struct EndpointCounters {
  std::atomic<uint64_t> links = 0, offers_alive = 0, fetches_alive = 0, waits_alive = 0;
  std::atomic<uint64_t> bytes_sent = 0, bytes_received = 0, transfers_sent = 0,
                        transfers_received = 0, transfers_failed = 0, digest_errors = 0;
};

// Loop-bound, except the counters.
struct EndpointContext {
  net::EventLoop& loop;
  const KvTransferConfig config;
  const LinkIdentity identity;
  const std::string host_id;
  const bool loopback_only;
  const std::function<void(EndpointEvent)> emit;
  const TransportOpener open_transport;
  const std::optional<uint32_t> device;  // As in EndpointOptions.
  std::unique_ptr<Gpu> gpu;              // The GPU that `device` names.
  std::unique_ptr<NcclLinks> nccl;       // Set with transport nccl.
  std::unique_ptr<TlsContext> tls;       // Set with tcp.encrypt.
  EndpointCounters counters;
  PairTable pairs;
  uint64_t links_made = 0;

  TransportDevices devices() const { return {.nccl = nccl.get(), .gpu = gpu.get()}; }
  // Null for transports that stay on the machine: they are not encrypted.
  const TlsContext* tls_of(TransportKind transport) const {
    return stays_on_machine(transport) ? nullptr : tls.get();
  }
  LinkId next_link_id() { return LinkId{++links_made}; }
  // A peer that sends nothing for longer is given up.
  Duration silence_max() const { return 2 * config.connect_timeout; }
  // The longest time that `bytes` of rows, or one range, may take before they count as stalled.
  // That is 400 KiB/s at the default timeout.
  Duration stall_max(uint64_t bytes) const;
};

// Checks a Region for a transfer of `rows` rows against the rules of kv_endpoint.h.
// kInvalidArgument: it breaks one, or is on a GPU other than `device`.
Status check_region(const Region& region, uint32_t rows, std::optional<uint32_t> device);

}  // namespace pdjob::kvtransfer
