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
// than the name (worker/core/transfer_binding). A fetch that names an offer with another upper half
// is refused.
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
#include "kvtransfer/config/kvtransfer_config.h"
#include "kvtransfer/link/link_keys.h"
#include "kvtransfer/link/link_message.h"
#include "kvtransfer/link/transport.h"
#include "kvtransfer/rows/region.h"
#include "kvtransfer/session/endpoint_event.h"
#include "kvtransfer/session/pair_stats.h"

namespace pdjob::kvtransfer {

struct EndpointOptions {
  KvTransferConfig config;
  std::string engine_id;
  // Keys that the job issued to this engine. Empty: stand-alone, loopback only, and peers are not
  // authenticated.
  std::optional<LinkKeys> keys;
  Fingerprint fingerprint;
  std::function<void(EndpointEvent)> sink;  // Called on the kv thread; must not block.
  // The GPU that holds the worker's KV, where regions may be. It equals config.nccl.cuda.device.
  std::optional<uint32_t> device;
  // Empty: open_transport(). Tests put faults in front of it (tests/support/fault_transport.h).
  TransportOpener open_transport;
};

class KvEndpoint {
 public:
  static Result<std::unique_ptr<KvEndpoint>> start(EndpointOptions options);
  virtual ~KvEndpoint() =
      default;  // Fails live transfers without events, closes links, joins the thread.

  virtual const EndpointAddress& address() const = 0;

  // Sender. Rows of `source` will become ready, from row 0 up. The offer fails at `deadline` unless
  // a receiver waits for it or fetches it. A live receiver extends the deadline by one lease at a
  // time. A second offer of a live `id` is ignored, and has no event.
  virtual void offer(TransferId id, Region source, Instant deadline) = 0;
  // Rows [0, ready) are final. They are pushed at once if granted.
  virtual void rows_ready(TransferId id, uint32_t ready) = 0;
  // All `rows` rows are final, and this is the tail (<= limits::kTransferTailBytesMax).
  virtual void commit(TransferId id, uint32_t rows, std::vector<std::byte> tail) = 0;
  // Ends the offer with OfferFailed. A waiting or later fetch gets `reason`.
  virtual void withdraw(TransferId id, Error reason) = 0;

  // Receiver. Announces a transfer that will be fetched once there are rows for it. Its sender is
  // asked to keep the offer until `until`, beyond the lease. Ends with fetch() or cancel(). No
  // event reports whether it worked; the fetch shows it.
  virtual void await(TransferId id, EndpointAddress peer, Instant until) = 0;
  // Requires: rows <= target.rows_max, and no one else writes them. A second fetch of a live `id`
  // is ignored, and has no event.
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
