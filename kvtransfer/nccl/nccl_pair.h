// NcclPair: one communicator of two ranks and its work under way. No call waits: a result "in
// progress" is polled until it is done. Loop-bound, to the nccl thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "common/result.h"
#include "kvtransfer/nccl/nccl_device.h"
#include "kvtransfer/nccl/slab_ring.h"

namespace pdjob::kvtransfer {

class NcclPair {
 public:
  struct Operation {
    enum class Kind { kSend, kReceive } kind = Kind::kSend;
    uint32_t slab = 0;
    uint32_t bytes = 0;
    std::vector<GpuCopy> copies;  // Run before the send, or after the receive.
  };
  using Reporter = std::function<void(NcclDevice::Report)>;

  NcclPair(const NcclApi& nccl, const GpuApi& gpu, SlabRings& rings, NcclCommKey key,
           const Reporter& report)
      : nccl_(nccl), gpu_(gpu), rings_(rings), key_(key), report_(report) {}
  NcclPair(const NcclPair&) = delete;
  NcclPair& operator=(const NcclPair&) = delete;
  ~NcclPair();  // The communicator is destroyed or aborted already, and the stream is idle.

  void join(int rank, const NcclLinkId& id, uint32_t ctas_max);
  void start(Operation operation);
  void leave();
  // Reports finished work. False: the communicator is gone, and the GPU has finished its work.
  bool poll();
  // True: a result is expected within microseconds or milliseconds.
  bool busy() const;

  NcclComm* communicator() const { return communicator_; }
  // The communicator has been aborted. Copies behind NCCL's work on the stream still run.
  void aborted();

 private:
  enum class Stage { kJoining, kReady, kLeaving, kFailed, kAborted };

  bool settled();
  void begin();
  void issue();
  void complete_issue();
  void poll_running();
  bool finish_leaving();
  bool is_idle() const;
  // Returns false if `result` is an error, which is reported once.
  bool accept(NcclResult result, const char* what);
  bool accept(GpuResult result, const char* what);
  void fail(Error reason);

  const NcclApi& nccl_;
  const GpuApi& gpu_;
  SlabRings& rings_;
  const NcclCommKey key_;
  const Reporter& report_;
  NcclComm* communicator_ = nullptr;
  Stage stage_ = Stage::kJoining;
  int peer_ = 0;
  SlabRing* ring_ = nullptr;
  void* registration_ = nullptr;
  std::deque<Operation> waiting_;
  std::optional<Operation> issued_;  // NCCL has it "in progress"; its event is not recorded yet.
  std::deque<Operation> running_;    // In the order of the stream.
};

}  // namespace pdjob::kvtransfer
