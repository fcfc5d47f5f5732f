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
#include "kvtransfer/kv_transfers.h"
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

class KvEndpoint : public KvTransfers {
 public:
  static Result<std::unique_ptr<KvEndpoint>> start(EndpointOptions options);
  virtual ~KvEndpoint() =
      default;  // Fails live transfers without events, closes links, joins the thread.

  virtual EndpointStats stats() const = 0;
  // How long the kv thread has been at its current turn; zero while it waits for work. Turns are
  // short: a thread that spends minutes in one hangs.
  virtual Duration standstill() const = 0;
  // Reports each pair that has a link, or had one within the last minute. `done` runs on the kv
  // thread, unless the endpoint ends first.
  virtual void report_pairs(std::function<void(std::vector<PairStats>)> done) = 0;
};

}  // namespace pdjob::kvtransfer
