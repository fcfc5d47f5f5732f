// KvEndpoint: a worker's end of the KV data plane. It moves rows of registered windows from one
// process to another. Models and requests are unknown to it.
//
// A decode worker *fetches*. It connects to the prefill worker's endpoint; each pair of workers
// keeps and reuses one link. It then presents a transfer id and grants the rows of one region. The
// prefill worker *offers* the same id. Its rows are pushed as they become ready. It then commits
// them with their count, a digest and a small tail (the last token's logits). Either side may come
// first.
//
// The lower half of a transfer id is its name. The upper half proves that its holder knows more
// than the name (worker/transfer_binding). A fetch that names an offer with another upper half is
// refused.
//
// The endpoint has one thread ("kv") on which links, sessions and copies live. All methods are
// Thread-safe and return at once. The sink receives each outcome on the kv thread, exactly once per
// offer and per fetch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/id.h"
#include "common/result.h"
#include "common/time.h"
#include "kvtransfer/kvtransfer_config.h"
#include "kvtransfer/link_keys.h"
#include "kvtransfer/pair_stats.h"

namespace pdjob::kvtransfer {

class LinkStream;
class Transport;
struct TransportDevices;
enum class TransportSide;

// Makes the transport of a link. The stream and the devices outlive the transport.
using TransportOpener = std::function<std::unique_ptr<Transport>(
    TransportKind kind, LinkStream& stream, TransportSide side, const TransportDevices& devices)>;

// One strided array of rows. The memory belongs to the caller and outlives every transfer that
// names it.
struct Window {
  std::byte* base = nullptr;   // Address of row 0: the GPU's address if it is in GPU memory.
  uint64_t shared_offset = 0;  // Offset of row 0 in Region::shared_fd.
  uint32_t row_bytes = 0;
};

// Rows that move together: row r of a transfer is row r of every window. Window counts and row
// sizes must be equal on both ends.
struct Region {
  std::vector<Window> windows;
  uint32_t rows_max = 0;
  // Not owned. Host memory: the sealed memfd that holds all windows, so that shm may write it
  // directly. GPU memory: its handle, for cuda_ipc. -1: private memory.
  int shared_fd = -1;
  uint64_t shared_bytes = 0;
  uint64_t shared_id = 0;  // Identifies GPU memory in this process; never reused.
  // GPU that holds the memory: the endpoint's own. Empty: the host holds it.
  std::optional<uint32_t> device;
};

// Named fields that must be equal on both ends of a link ("model_digest", "kv_type", ...). A
// mismatch refuses the link and names the field.
using Fingerprint = std::vector<std::pair<std::string, std::string>>;

// Where an endpoint listens. It travels inside kv_transfer_params.
struct EndpointAddress {
  // Id of this incarnation. A restarted worker has another one, and links never survive a restart.
  std::string engine_id;
  std::string host;
  uint16_t port = 0;  // tcp
  // "@name" (abstract socket) for shm; empty: not offered. Usable only on the same machine
  // (host_id).
  std::string unix_path;
  std::string host_id;   // Boot id and network namespace: equal means same machine.
  std::string gpu_path;  // Like unix_path, for cuda_ipc.
};

// Events that the endpoint sends to its worker.
//
// OfferAwaited: a receiver has reserved its rows and waits for an offer that is still missing. An
// event with `awaited` false follows once the offer is made or the receiver is gone.
struct OfferAwaited {
  TransferId id;
  bool awaited = true;
};
struct OfferDone {  // The receiver has committed: the rows may be freed.
  TransferId id;
  uint64_t bytes = 0;
};
struct OfferFailed {  // Cancelled, refused, peer gone, or the lease expired: the rows may be freed.
  TransferId id;
  Error error;
};
// All rows are in place and match the digest. No one writes the region any more.
struct FetchDone {
  TransferId id;
  uint32_t rows = 0;
  uint64_t bytes = 0;
  Duration duration{};  // From the grant to COMMIT.
  // From when the sender's last row was ready, or from the grant if that is later, to COMMIT seen
  // here. 0 if the peer is on another machine.
  Duration visible{};
  std::string transport;  // "shm", "tcp", "nccl", "cuda_ipc"
  std::vector<std::byte> tail;
};
struct FetchFailed {
  TransferId id;
  Error error;
  // False: the rows may still be written by our own GPU, or by a peer that hangs but is not dead.
  // FetchReleased follows when both have stopped.
  bool region_safe = true;
  bool pair_suspect = false;  // Rows from this peer were damaged repeatedly.
};
struct FetchReleased {
  TransferId id;
};
using EndpointEvent =
    std::variant<OfferAwaited, OfferDone, OfferFailed, FetchDone, FetchFailed, FetchReleased>;

struct EndpointOptions {
  KvTransferConfig config;
  std::string engine_id;
  // Keys that the job issued to this engine. Empty: stand-alone, loopback only, and peers are not
  // authenticated.
  std::optional<LinkKeys> keys;
  Fingerprint fingerprint;
  std::function<void(EndpointEvent)> sink;  // Called on the kv thread; must not block.
  // The GPU that holds the worker's KV, where regions may be. It equals config.nccl.device.
  std::optional<uint32_t> device;
  // Empty: open_transport(). Tests put faults in front of it (fault_transport.h).
  TransportOpener open_transport;
};

struct EndpointStats {
  uint64_t links = 0, offers_alive = 0, fetches_alive = 0, waits_alive = 0;
  uint64_t bytes_sent = 0, bytes_received = 0, transfers_sent = 0, transfers_received = 0,
           transfers_failed = 0, digest_errors = 0;
};

class KvEndpoint {
 public:
  static Result<std::unique_ptr<KvEndpoint>> start(EndpointOptions options);
  virtual ~KvEndpoint() =
      default;  // Fails live transfers without events, closes links, joins the thread.

  virtual const EndpointAddress& address() const = 0;

  // Sender. Rows 0..rows-1 of `source` will become ready. The offer fails at `deadline` (the lease)
  // unless it is fetched.
  virtual void offer(TransferId id, Region source, Instant deadline) = 0;
  // Rows [0, ready) are final. They are pushed at once if granted.
  virtual void rows_ready(TransferId id, uint32_t ready) = 0;
  // All `rows` rows are final, and this is the tail (<= limits::kTransferTailBytesMax).
  virtual void commit(TransferId id, uint32_t rows, std::vector<std::byte> tail) = 0;
  virtual void withdraw(TransferId id, Error reason) = 0;

  // Receiver. Announces a transfer that will be fetched once there are rows for it. Its sender is
  // asked to keep the offer until `until`, beyond the lease. Ends with fetch() or cancel(). No
  // event reports whether it worked; the fetch shows it.
  virtual void await(TransferId id, EndpointAddress peer, Instant until) = 0;
  // Requires: rows <= target.rows_max, and no one else writes them.
  virtual void fetch(TransferId id, EndpointAddress peer, Region target, uint32_t rows,
                     Instant deadline) = 0;
  // Cancels a fetch, or a wait. No event follows for a wait.
  virtual void cancel(TransferId id) = 0;

  virtual EndpointStats stats() const = 0;
  // Reports each pair that has a link, or had one within the last minute. `done` runs on the kv
  // thread, unless the endpoint ends first.
  virtual void report_pairs(std::function<void(std::vector<PairStats>)> done) = 0;
};

}  // namespace pdjob::kvtransfer
