// KvTransfers: the transfers of one worker, as its engine sees them. KvEndpoint is the real one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/id.h"
#include "common/result.h"
#include "common/time.h"
#include "kvtransfer/link/endpoint_address.h"
#include "kvtransfer/link/link_message.h"
#include "kvtransfer/rows/region.h"
#include "kvtransfer/session/endpoint_event.h"
#include "kvtransfer/session/offer_terms.h"

namespace pdjob::kvtransfer {

class KvTransfers {
 public:
  // Where peers fetch.
  virtual const EndpointAddress& address() const = 0;

  // Sender. Rows of `source` will become ready, from row 0 up. The offer fails at `deadline` unless
  // a receiver waits for it or fetches it. A live receiver extends the deadline by one lease at a
  // time. A second offer of a live `id` is ignored, and has no event.
  virtual void offer(TransferId id, Region source, Instant deadline, OfferTerms terms = {}) = 0;
  // There will be no offer of `id`: a receiver that waits for it gets `reason` at once, and so does
  // one that comes soon. Requires: there is none.
  virtual void refuse(TransferId id, Error reason) = 0;
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

  // Tells a peer of blocks, in front of later fetches from it. It is lost with the link. Requires:
  // the holder, if any, has this endpoint's address.
  virtual void tell(EndpointAddress peer, BlockNews news) = 0;

 protected:
  ~KvTransfers() = default;
};

}  // namespace pdjob::kvtransfer
