// NcclDevice: one GPU's communicators, and the one thread ("nccl") that makes every call of NCCL
// and CUDA. It executes commands and reports results. It avoids waiting in calls: communicators are
// nonblocking, and completion is polled. Timeouts are NcclLink's, on another thread, because an
// abort may block this one.
//
// A live communicator owns a ring of slabs, in the GPU's memory and in the host's. Rings are kept
// for the next communicator, because freeing GPU memory waits for all kernels of the GPU. The owner
// of a slab names the copies that fill or empty it. They run on the ring's stream, like NCCL's own
// work, before a send and after a receive. Thread-safe.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "common/result.h"
#include "gpu/gpu.h"
#include "kvtransfer/config/kvtransfer_config.h"
#include "kvtransfer/link/link_message.h"

namespace pdjob::kvtransfer {

// One epoch of one link: never reused.
struct NcclCommKey {
  uint64_t link = 0;
  uint32_t epoch = 0;
  friend auto operator<=>(const NcclCommKey&, const NcclCommKey&) = default;
};

// A slab, and its pinned twin.
struct NcclSlabMemory {
  std::byte* device = nullptr;
  std::byte* host = nullptr;
};

class NcclDevice {
 public:
  // Reports
  struct IdMade {
    NcclCommKey key;
    NcclLinkId id{};
  };
  struct Joined {
    NcclCommKey key;
    std::vector<NcclSlabMemory> slabs;  // Valid until Left.
  };
  struct Moved {  // The slab is sent, or received, and its copies are done.
    NcclCommKey key;
    uint32_t slab = 0;
  };
  struct Failed {
    NcclCommKey key;
    Error reason;
  };
  // The communicator is gone and the GPU has finished its work. Its slabs, and the memory that its
  // copies named, are free.
  struct Left {
    NcclCommKey key;
  };
  using Report = std::variant<IdMade, Joined, Moved, Failed, Left>;

  struct Options {
    NcclConfig config;
    std::function<void(Report)> report;  // Called on the nccl thread; must not block.
    // The thread hangs in NCCL, or the GPU never finishes its copies. The destructor calls this on
    // its own thread; it must not return.
    std::function<void()> on_stuck;
  };

  // Fails like nccl_is_there().
  static Result<std::unique_ptr<NcclDevice>> open(Options options);
  // Aborts the remaining communicators, and waits at most abort_timeout.
  virtual ~NcclDevice() = default;

  virtual void make_id(NcclCommKey key) = 0;
  virtual void join(NcclCommKey key, int rank, const NcclLinkId& id) = 0;
  // Operations run one after the other, in the order of the calls.
  virtual void send(NcclCommKey key, uint32_t slab, uint32_t bytes,
                    std::vector<GpuCopy> copies) = 0;
  virtual void receive(NcclCommKey key, uint32_t slab, uint32_t bytes,
                       std::vector<GpuCopy> copies) = 0;
  // Both end with report Left.
  virtual void leave(NcclCommKey key) = 0;
  virtual void abort(NcclCommKey key) = 0;
};

// kUnsupported: what transport nccl lacks on this machine, written for the author of the job.
Status nccl_is_there(const NcclConfig& config);

}  // namespace pdjob::kvtransfer
