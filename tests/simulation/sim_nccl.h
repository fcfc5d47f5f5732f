// SimNccl: the NCCL and the GPUs of simulated processes, as kvtransfer/nccl sees them. The two
// ranks of a communicator join when both have come. A slab moves when one end sends and the other
// receives. NCCL waits for ever: only an abort ends an
// operation without a partner.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "common/random.h"
#include "kvtransfer/nccl/nccl_device.h"
#include "launcher/simulator/sim_process.h"

namespace pdjob::simulation {

class SimNccl {
 public:
  explicit SimNccl(uint64_t seed) : random_(seed) {}

  std::function<bool()> fails = [] { return false; };  // An operation fails, for both ends.
  std::function<bool()> hangs = [] { return false; };  // An operation or a join never ends.

  // The device of a process; `thread` is its NCCL thread.
  std::unique_ptr<kvtransfer::NcclDevice> open(std::unique_ptr<SimThread> thread,
                                               kvtransfer::NcclDevice::Options options);

 private:
  class Device;
  // The slabs of one end hold little: a simulated KV has a kilobyte.
  static constexpr size_t kSlabBytes = 4096;
  // Each in the GPU's memory, and pinned.
  using Slabs = std::shared_ptr<std::vector<std::array<std::byte, 2 * kSlabBytes>>>;
  struct Operation {
    uint32_t slab = 0;
    uint32_t bytes = 0;
    std::vector<GpuCopy> copies;
  };
  struct Side {
    Device* device = nullptr;  // Null: it has not come, or is gone.
    kvtransfer::NcclCommKey key;
    Slabs slabs;
    std::deque<Operation> sends;
    std::deque<Operation> receives;
  };
  struct Comm {
    std::array<Side, 2> sides;
    bool joined = false;
    bool hung = false;
  };

  void move_all(Comm& comm);
  bool move(Comm& comm, size_t from);

  Random random_;
  uint64_t ids_made_ = 0;
  std::map<kvtransfer::NcclLinkId, std::shared_ptr<Comm>> comms_;
};

}  // namespace pdjob::simulation
