// Transport: how rows of a source region reach a granted target, on one link. Sessions decide when;
// a transport only moves. To add one: implement these classes and name it in open_transport().
// fault_transport.h puts faults in front of any of them, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <sys/uio.h>

#include "common/limits.h"
#include "common/result.h"
#include "kvtransfer/link_message.h"
#include "kvtransfer/row_cursor.h"
#include "kvtransfer/unique_fd.h"

namespace pdjob {
class Gpu;
}

namespace pdjob::kvtransfer {

class NcclLinks;

enum class Progress {
  kDone,
  kMore,         // Call again in a later turn: the loop has more to do.
  kOthersFirst,  // As kMore, after each other work of the link had its turn.
  kBlocked,      // Call again when the link's socket is writable, or after LinkStream::wake().
};

// The socket of a link, as transports use it. Loop-bound.
class LinkStream {
 public:
  virtual void send(LinkMessage message) = 0;
  // `bytes` of payload follow what was sent so far; what is sent from here on follows the payload.
  // Requires: the last payload is complete.
  virtual void begin_payload(uint64_t bytes) = 0;
  // Bytes taken; 0: blocked, or the link has failed.
  virtual size_t write_payload(std::span<const iovec> pieces) = 0;
  // For transports that do not move rows by the socket: what was blocked may go on; rows of a
  // transfer have come and wait for RowReceiver::advance(); the link cannot be used any more.
  virtual void wake() = 0;
  virtual void rows_came(TransferId id) = 0;
  virtual void fail(Error reason) = 0;

 protected:
  ~LinkStream() = default;
};

// Takes the payload that follows ROWS. Loop-bound.
class PayloadSink {
 public:
  // Where the next bytes go, at most `bytes_max`. The number of pieces, at least 1.
  virtual size_t next_pieces(std::span<iovec> pieces, size_t bytes_max) = 0;
  virtual void filled(size_t bytes) = 0;

 protected:
  ~PayloadSink() = default;
};

// The sender's half of one transfer. Destroying it stops all writing of the target; the source may
// be read until Transport::when_released(). Loop-bound.
class RowSender {
 public:
  virtual ~RowSender() = default;
  // False: as kBlocked. A range's time does not count yet, on either end.
  virtual bool can_start() const { return true; }
  // Requires: the range before is done. The source outlives the push.
  virtual void start(const Region& source, RowRange range) = 0;
  // Works on the range, at most `bytes_max` at once. After kDone the receiver has been told of it.
  virtual Result<Progress> advance(size_t bytes_max) = 0;
  // Of all ranges done.
  virtual uint64_t digest() const = 0;
};

// The receiver's half of one transfer. Destroying it stops all writing from this end, but for what
// Transport::when_released() waits for. Loop-bound.
class RowReceiver {
 public:
  virtual ~RowReceiver() = default;
  // The next range. nullptr: its bytes do not come by the link's socket, and
  // LinkStream::rows_came() says when there are some.
  virtual PayloadSink* announced(RowRange range) = 0;
  // Works on what was announced, at most `bytes_max` at once.
  virtual Progress advance(size_t bytes_max) = 0;
  // Rows [0, rows_arrived()) are in place and in the digest.
  virtual uint32_t rows_arrived() const = 0;
  virtual uint64_t digest() const = 0;
};

struct TransportCapabilities {
  const char* name = "";
  // The sender writes the target's shared memory itself: its descriptor goes along with the grant,
  // and the rows of a failed transfer are not safe before the sender has stopped.
  bool writes_target = false;
  // The rows are the payload of ROWS messages.
  bool rows_on_link = false;
  uint64_t range_bytes = limits::kTransferRangeBytes;  // Most rows under one ROWS, or one row.
  // Rows may be in a GPU's memory, and the digest is the sum of row_sum_kernel.cu: else it is
  // RowDigest.
  bool sums_rows = false;
  // Our own GPU may still write a target in its memory after the receiver's half has ended.
  bool writes_late = false;
};

// One per link, on both ends. Loop-bound.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual TransportCapabilities capabilities() const = 0;
  // `shared` is the descriptor that came with the grant, if any. kInvalidArgument, kUnsupported:
  // the grant cannot be served.
  virtual Result<std::unique_ptr<RowSender>> open_sender(const Grant& grant, UniqueFd shared) = 0;
  virtual std::unique_ptr<RowReceiver> open_receiver(const Grant& grant, const Region& target) = 0;
  // A message between the two transports of a link. False: not one of this transport's.
  virtual bool on_message(const LinkMessage& /*message*/) { return false; }
  // Calls `then`, at once or later, when nothing that this end has begun touches the rows of a
  // transfer any more: later even than the transport's own end. Requires: its sender or receiver is
  // destroyed.
  virtual void when_released(TransferId /*id*/, const std::function<void()>& then) { then(); }
};

// The target's windows in the granted memory, which is mapped at `base` and shared_bytes long.
// kInvalidArgument: one lies outside of it.
Result<std::vector<Window>> granted_windows(const Grant& grant, std::byte* base);

enum class TransportSide { kReceiver, kSender };

// What the transports of an endpoint share. Null: not of this endpoint.
struct TransportDevices {
  NcclLinks* nccl = nullptr;
  Gpu* gpu = nullptr;
};

// The stream outlives the transport, and so do the devices. Requires: kind != kAuto; for kNccl:
// nccl; for kCudaIpc: gpu.
std::unique_ptr<Transport> open_transport(TransportKind kind, LinkStream& stream,
                                          TransportSide side, const TransportDevices& devices);

}  // namespace pdjob::kvtransfer
