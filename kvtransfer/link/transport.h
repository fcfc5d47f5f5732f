// Transport: how rows of a source region reach a granted target, on one link. Sessions decide when;
// a transport only moves rows. To add one, implement these classes and name it in
// open_transport.cc.
// tests/support/fault_transport.h puts faults in front of any of them, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sys/uio.h>

#include "common/files/fd.h"
#include "common/limits.h"
#include "common/result.h"
#include "common/time.h"
#include "kvtransfer/link/endpoint_address.h"
#include "kvtransfer/link/link_message.h"
#include "kvtransfer/rows/row_cursor.h"

namespace pdjob {
class Gpu;
}

namespace pdjob::kvtransfer {

class NcclLinks;

enum class Progress {
  kDone,
  kMore,         // Call again in a later turn: the loop has more to do.
  kOthersFirst,  // Like kMore, but after each other work of the link had its turn.
  kBlocked,      // Call again when the link's socket is writable, or after LinkStream::wake().
};

// The socket of a link, as transports use it. Loop-bound.
class LinkStream {
 public:
  virtual void send(LinkMessage message) = 0;
  // `bytes` of payload follow the messages sent so far. Messages sent from now on follow the
  // payload. Requires: the last payload is complete.
  virtual void begin_payload(uint64_t bytes) = 0;
  // Returns the bytes taken. 0: blocked, or the link has failed.
  virtual size_t write_payload(std::span<const iovec> pieces) = 0;
  // For transports that move rows outside the socket.
  // - wake(): blocked work may continue.
  // - rows_came(): rows of a transfer wait for RowReceiver::advance().
  // - fail(): the link is unusable.
  virtual void wake() = 0;
  virtual void rows_came(TransferId id) = 0;
  virtual void fail(Error reason) = 0;

 protected:
  ~LinkStream() = default;
};

// Takes the payload that follows ROWS. Loop-bound.
class PayloadSink {
 public:
  // Sets where the next bytes go, at most `bytes_max`. Returns the number of pieces, at least 1.
  virtual size_t next_pieces(std::span<iovec> pieces, size_t bytes_max) = 0;
  virtual void filled(size_t bytes) = 0;

 protected:
  ~PayloadSink() = default;
};

// The sender's half of one transfer. Destroying it stops all writes to the target. The source may
// be read until Transport::when_released(). Loop-bound.
class RowSender {
 public:
  virtual ~RowSender() = default;
  // False: as kBlocked. The range's timeout has not started yet, on either end.
  virtual bool can_start() const { return true; }
  // Requires: the range before is done. The source outlives the push.
  virtual void start(const Region& source, RowRange range) = 0;
  // Moves at most `bytes_max` of the range. kDone: the receiver has been told of the range.
  virtual Result<Progress> advance(size_t bytes_max) = 0;
  // Digest of all finished ranges.
  virtual uint64_t digest() const = 0;
};

// The receiver's half of one transfer. Destroying it stops all writes from this end, except those
// that Transport::when_released() waits for. Loop-bound.
class RowReceiver {
 public:
  virtual ~RowReceiver() = default;
  // Takes the next announced range. Returns where its payload goes. nullptr: its bytes do not come
  // over the link's socket; LinkStream::rows_came() reports them.
  virtual PayloadSink* announced(RowRange range) = 0;
  // Processes at most `bytes_max` of the announced ranges.
  virtual Progress advance(size_t bytes_max) = 0;
  // Rows [0, rows_arrived()) are in place and in the digest.
  virtual uint32_t rows_arrived() const = 0;
  virtual uint64_t digest() const = 0;
};

struct TransportCapabilities {
  const char* name = "";
  // The sender writes the target's shared memory itself, whose descriptor goes along with the
  // grant. The rows of a failed transfer are unsafe until the sender has stopped.
  bool writes_target = false;
  // The sender's device does that writing, so it goes on while the sender's process dies.
  bool device_writes = false;
  // The rows are the payload of ROWS messages.
  bool rows_on_link = false;
  // Bytes of rows under one ROWS, at most; always at least one row.
  uint64_t range_bytes = limits::kTransferRangeBytes;
  // True: rows may be in a GPU's memory, and the digest is the sum of row_sum_kernel.cu. False: the
  // digest is RowDigest.
  bool sums_rows = false;
  // Our own GPU may still write a target in its memory after the receiver's half has ended.
  bool writes_late = false;
};

// One per link, on both ends. Loop-bound.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual TransportCapabilities capabilities() const = 0;
  // `shared` is the descriptor that came with the grant, if any. kInvalidArgument or kUnsupported:
  // the grant cannot be served.
  virtual Result<std::unique_ptr<RowSender>> open_sender(const Grant& grant, Fd shared) = 0;
  virtual std::unique_ptr<RowReceiver> open_receiver(const Grant& grant, const Region& target) = 0;
  // Takes a message between the two transports of a link. False: not a message of this transport.
  virtual bool on_message(const LinkMessage& /*message*/) { return false; }
  // Calls `then`, at once or later, when this end no longer touches the rows of the transfer. That
  // may be after the transport's own end. Requires: its sender or receiver is destroyed.
  virtual void when_released(TransferId /*id*/, const std::function<void()>& then) { then(); }
};

// Returns the target's windows in the granted memory, which is mapped at `base` and shared_bytes
// long. kInvalidArgument: a window lies outside it.
Result<std::vector<Window>> granted_windows(const Grant& grant, std::byte* base);

// The memory into which a fetch wants its rows.
enum class TargetMemory { kPrivate, kShared, kGpu };

// The facts that an endpoint knows of a transport before it has a link. Value.
struct TransportTraits {
  TransportKind kind = TransportKind::kTcp;
  // The field of an address that names its listener, a unix socket: peers must be on the same
  // machine. Null: the listener has the address's host and port.
  std::string EndpointAddress::* unix_name = nullptr;
  std::optional<TargetMemory> target;  // The only memory that it fills; empty: any.
  uint32_t streams = 1;                // Links that two endpoints may have at a time.
  // Time until a range may start: the ends of a link may have to join something first.
  Duration start_max{};
};

enum class TransportSide { kReceiver, kSender };

// Devices that the transports of an endpoint share. Null: this endpoint has none.
struct TransportDevices {
  NcclLinks* nccl = nullptr;
  Gpu* gpu = nullptr;
};

// Makes the transport of a link. The stream and the devices outlive the transport.
using TransportOpener = std::function<std::unique_ptr<Transport>(
    TransportKind kind, LinkStream& stream, TransportSide side, const TransportDevices& devices)>;

}  // namespace pdjob::kvtransfer
