// SlabRings: the rings of slabs of one GPU. A ring is a stream and `slabs` pieces of memory on the
// GPU. Each slab has a pinned twin in the host's memory and an event. A ring is made when first
// needed, and kept. Freeing GPU memory waits for every kernel of the GPU, also those of a
// communicator whose peer is dead. Loop-bound, to the nccl thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/result.h"
#include "gpu/gpu_api.h"
#include "kvtransfer/nccl/nccl_api.h"

namespace pdjob::kvtransfer {

struct SlabRing {
  GpuStream* stream = nullptr;
  std::byte* host = nullptr;
  std::byte* device = nullptr;
  std::vector<GpuEvent*> events;
  size_t slab_bytes = 0;

  std::byte* host_slab(uint32_t slab) const { return host + slab * slab_bytes; }
  std::byte* device_slab(uint32_t slab) const { return device + slab * slab_bytes; }
  size_t bytes() const { return events.size() * slab_bytes; }
};

class SlabRings {
 public:
  SlabRings(const NcclApi& nccl, const GpuApi& gpu) : nccl_(nccl), gpu_(gpu) {}
  SlabRings(const SlabRings&) = delete;
  SlabRings& operator=(const SlabRings&) = delete;
  ~SlabRings();

  Result<SlabRing*> acquire();
  // Requires: its stream is idle. A ring whose last work failed is never reused.
  void release(SlabRing& ring);

 private:
  struct Entry {
    SlabRing ring;
    bool in_use = false;
  };

  Status make(SlabRing& ring);
  void free(SlabRing& ring);

  const NcclApi& nccl_;
  const GpuApi& gpu_;
  std::vector<std::unique_ptr<Entry>> entries_;
};

}  // namespace pdjob::kvtransfer
