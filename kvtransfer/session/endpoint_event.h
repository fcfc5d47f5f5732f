// The words of a worker and its endpoint about transfers. Values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "common/id.h"
#include "common/result.h"
#include "common/time.h"
#include "kvtransfer/link/link_message.h"

namespace pdjob::kvtransfer {

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
  bool rows_damaged = false;  // Found here, not by the peer: they lack OfferTerms::digest.
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
  uint64_t digest = 0;    // xxh3-64 of the rows, in the order of RowCursor.
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
// A peer speaks of blocks (KvTransfers::tell).
struct BlocksTold {
  std::string peer;  // Engine id of the peer; the link has proved it.
  BlockNews news;
};
using EndpointEvent = std::variant<OfferAwaited, OfferDone, OfferFailed, FetchDone, FetchFailed,
                                   FetchReleased, BlocksTold>;

}  // namespace pdjob::kvtransfer
