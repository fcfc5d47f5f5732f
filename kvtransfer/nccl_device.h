// NcclDevice: one GPU's communicators, and the one thread ("nccl") that makes every call of NCCL
// and CUDA. It does what it is told and reports what has come of it; it never waits in a call if
// NCCL can help it: communicators are nonblocking, and completion is polled. What takes too long is
// judged by NcclLink, on another thread, because an abort may block this one.
//
// Slabs: a ring of them, in the GPU's memory and in the host's, belongs to each communicator while
// it lives. Rings are kept for the next one: freeing GPU memory waits for all kernels of the GPU.
// What a slab is filled from, or emptied to, are copies that its owner names: they are on the
// stream of the ring, like NCCL's own work, before a send and after a receive. Thread-safe.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "common/gpu.h"
#include "common/result.h"
#include "kvtransfer/kvtransfer_config.h"
#include "kvtransfer/link_message.h"

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
    std::vector<NcclSlabMemory> slabs;  // Until Left.
  };
  struct Moved {  // The slab is sent, or received, and its copies are done.
    NcclCommKey key;
    uint32_t slab = 0;
  };
  struct Failed {
    NcclCommKey key;
    Error reason;
  };
  struct Left {  // And the GPU does nothing more for it: its slabs, and what its copies named, are
                 // free.
    NcclCommKey key;
  };
  using Report = std::variant<IdMade, Joined, Moved, Failed, Left>;

  struct Options {
    NcclConfig config;
    std::function<void(Report)> report;  // Called on the nccl thread; must not block.
    // The thread does not end, because NCCL does not return or the GPU does not finish its copies.
    // Called by the destructor, on its thread; must not return.
    std::function<void()> on_stuck;
  };

  // As nccl_is_there().
  static Result<std::unique_ptr<NcclDevice>> open(Options options);
  // Aborts what is left, and waits for that no longer than abort_timeout.
  virtual ~NcclDevice() = default;

  virtual void make_id(NcclCommKey key) = 0;
  virtual void join(NcclCommKey key, int rank, const NcclLinkId& id) = 0;
  // One after the other, in the order of the calls.
  virtual void send(NcclCommKey key, uint32_t slab, uint32_t bytes,
                    std::vector<GpuCopy> copies) = 0;
  virtual void receive(NcclCommKey key, uint32_t slab, uint32_t bytes,
                       std::vector<GpuCopy> copies) = 0;
  // Both end with Left.
  virtual void leave(NcclCommKey key) = 0;
  virtual void abort(NcclCommKey key) = 0;
};

// kUnsupported, in words for who wrote the job: what transport nccl lacks on this machine.
Status nccl_is_there(const NcclConfig& config);

}  // namespace pdjob::kvtransfer
