// KvEndpoint: a worker's end of the KV data plane. It moves rows of registered windows from one
// process to another; it knows no models and no requests.
//
// A decode worker *fetches*: it connects to the prefill worker's endpoint (one link per pair of
// workers, kept and reused), presents a transfer id and grants the rows of one region. The prefill
// worker *offers* the same id, and its rows are pushed as they become ready, then committed with
// their count, a digest, and a small tail (the last token's logits). Either may come first.
//
// The lower half of a transfer id is its name. The upper half proves that its holder knows more
// than the name (worker/transfer_binding). A fetch that names an offer with another upper half is
// refused.
//
// The endpoint has one thread ("kv") on which links, sessions and copies live. All methods are
// Thread-safe and return at once; outcomes come to the sink, on the kv thread, exactly once per
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

// How a link gets its transport. The stream outlives the transport, and so do the devices.
using TransportOpener = std::function<std::unique_ptr<Transport>(
    TransportKind kind, LinkStream& stream, TransportSide side, const TransportDevices& devices)>;

// One strided array of rows. The memory belongs to the caller and outlives every transfer that
// names it.
struct Window {
  std::byte* base = nullptr;   // Of row 0; in a GPU's memory, an address of the GPU's.
  uint64_t shared_offset = 0;  // Of row 0 in Region::shared_fd.
  uint32_t row_bytes = 0;
};

// Rows that move together: row r of a transfer is row r of every window. Equal window counts and
// row sizes on both ends.
struct Region {
  std::vector<Window> windows;
  uint32_t rows_max = 0;
  int shared_fd = -1;  // Sealed memfd that holds all windows (shm may write it directly), or, of a
                       // GPU's memory, its handle (cuda_ipc may). -1: private memory. Not owned.
  uint64_t shared_bytes = 0;
  uint64_t shared_id = 0;          // Of a GPU's memory: its own in this process, for good.
  std::optional<uint32_t> device;  // The GPU whose memory it is, that of the endpoint; else the
                                   // host's.
};

// Named fields that must be equal on both ends of a link ("model_digest", "kv_type", ...): a
// mismatch refuses the link, naming the field.
using Fingerprint = std::vector<std::pair<std::string, std::string>>;

// Where an endpoint listens. It travels inside kv_transfer_params.
struct EndpointAddress {
  std::string engine_id;  // Of this incarnation: a restarted worker has another one, and links
                          // never survive a restart.
  std::string host;
  uint16_t port = 0;      // tcp
  std::string unix_path;  // "@name" (abstract socket) for shm; empty: not offered. Only usable on
                          // the same machine (host_id).
  std::string host_id;    // Boot id of the machine: equal means same machine.
  std::string gpu_path;   // As unix_path, for cuda_ipc.
};

// What the endpoint tells its worker.
struct OfferAwaited {  // A receiver has reserved its rows and waits for an offer that was not made
                       // yet; awaited = false follows once it is made, or the receiver has gone.
  TransferId id;
  bool awaited = true;
};
struct OfferDone {  // The receiver has committed: the rows may be freed.
  TransferId id;
  uint64_t bytes = 0;
};
struct OfferFailed {  // Cancelled, refused, peer gone, or the deadline (lease) passed: the rows may
                      // be freed.
  TransferId id;
  Error error;
};
struct FetchDone {  // All rows are in place and match the digest. Nobody writes the region any
                    // more.
  TransferId id;
  uint32_t rows = 0;
  uint64_t bytes = 0;
  Duration duration{};  // From the grant to COMMIT.
  Duration visible{};   // From the sender's last row being ready, or the grant if that is later, to
                        // COMMIT seen here (same machine: else 0).
  std::string transport;  // "shm", "tcp", "nccl", "cuda_ipc"
  std::vector<std::byte> tail;
};
struct FetchFailed {
  TransferId id;
  Error error;
  bool region_safe = true;    // False: the peer, which is stopped and not dead, or our own GPU may
                              // still write the rows. A FetchReleased follows when neither can.
  bool pair_suspect = false;  // Rows from this peer have been damaged again and again.
};
struct FetchReleased {
  TransferId id;
};
using EndpointEvent =
    std::variant<OfferAwaited, OfferDone, OfferFailed, FetchDone, FetchFailed, FetchReleased>;

struct EndpointOptions {
  KvTransferConfig config;
  std::string engine_id;
  std::optional<LinkKeys> keys;  // Of this engine, by its job. None: stand-alone, loopback only,
                                 // and whoever is there may be anybody.
  Fingerprint fingerprint;
  std::function<void(EndpointEvent)> sink;  // Called on the kv thread; must not block.
  std::optional<uint32_t> device;  // The GPU that holds the worker's KV: regions may be there. It
                                   // is the one that config.nccl.device names.
  TransportOpener open_transport;  // Empty: the transport of that name. Tests put faults in front
                                   // of it (fault_transport.h).
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
      default;  // Fails what is alive (no events follow), closes links, joins the thread.

  virtual const EndpointAddress& address() const = 0;

  // Sender. Rows 0..rows-1 of `source` will be ready in the end. Ends at `deadline` (the lease) if
  // nobody fetches.
  virtual void offer(TransferId id, Region source, Instant deadline) = 0;
  // Rows [0, ready) are final; pushed at once if granted.
  virtual void rows_ready(TransferId id, uint32_t ready) = 0;
  // All `rows` rows are final, and this is the tail (<= limits::kTransferTailBytesMax).
  virtual void commit(TransferId id, uint32_t rows, std::vector<std::byte> tail) = 0;
  virtual void withdraw(TransferId id, Error reason) = 0;

  // Receiver. The transfer will be fetched, but has no rows to go to yet: its sender is asked to
  // keep it until `until`, and meanwhile not to end it with its lease. Ends with fetch() or
  // cancel(). Nothing is reported: whether it worked, the fetch will tell.
  virtual void await(TransferId id, EndpointAddress peer, Instant until) = 0;
  // Requires: rows <= target.rows_max, and nobody else writes them.
  virtual void fetch(TransferId id, EndpointAddress peer, Region target, uint32_t rows,
                     Instant deadline) = 0;
  // Of a fetch; or of a wait: then no event follows.
  virtual void cancel(TransferId id) = 0;

  virtual EndpointStats stats() const = 0;
  // Of each pair that has a link, or had one a minute ago. `done` is called on the kv thread,
  // unless the endpoint ends first.
  virtual void report_pairs(std::function<void(std::vector<PairStats>)> done) = 0;
};

}  // namespace pdjob::kvtransfer
