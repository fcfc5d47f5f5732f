#include "kvtransfer/nccl/slab_ring.h"

#include <string>
#include <utility>

#include "common/limits.h"

namespace pdjob::kvtransfer {
SlabRings::~SlabRings() {
  for (const auto& entry : entries_) {
    free(entry->ring);
  }
}

Result<SlabRing*> SlabRings::acquire() {
  for (const auto& entry : entries_) {
    if (!entry->in_use && gpu_.stream_query(entry->ring.stream) == kGpuSuccess) {
      entry->in_use = true;
      return &entry->ring;
    }
  }
  auto made = std::make_unique<Entry>();
  if (const Status status = make(made->ring); !status) {
    free(made->ring);
    return status.error();
  }
  made->in_use = true;
  entries_.push_back(std::move(made));
  return &entries_.back()->ring;
}

void SlabRings::release(SlabRing& ring) {
  for (const auto& entry : entries_) {
    if (&entry->ring == &ring) {
      entry->in_use = false;
    }
  }
}

Status SlabRings::make(SlabRing& ring) {
  ring.slab_bytes = limits::kNcclSlabBytes;
  const size_t bytes = limits::kNcclSlabs * limits::kNcclSlabBytes;
  if (const auto made = gpu_.stream_create_with_flags(&ring.stream, kGpuStreamNonBlocking);
      made != kGpuSuccess) {
    return gpu_error(gpu_, made, "make a stream");
  }
  for (size_t slab = 0; slab < limits::kNcclSlabs; ++slab) {
    ring.events.push_back(nullptr);
    if (const auto made = gpu_.event_create_with_flags(&ring.events.back(), kGpuEventDisableTiming);
        made != kGpuSuccess) {
      return gpu_error(gpu_, made, "make an event");
    }
  }
  void* memory = nullptr;
  if (const auto made = gpu_.host_alloc(&memory, bytes, kGpuHostAllocDefault);
      made != kGpuSuccess) {
    return gpu_error(gpu_, made, "pin memory");
  }
  ring.host = static_cast<std::byte*>(memory);
  // Not cudaMalloc: only NCCL's memory can be registered, and then be sent without another copy.
  if (const NcclResult made = nccl_.mem_alloc(&memory, bytes); made != kNcclSuccess) {
    return Error{ErrorCode::kUnavailable,
                 "NCCL cannot allocate GPU memory: " + nccl_.explain(made, nullptr)};
  }
  ring.device = static_cast<std::byte*>(memory);
  return ok();
}

void SlabRings::free(SlabRing& ring) {
  for (GpuEvent* event : ring.events) {
    if (event != nullptr) {
      gpu_.event_destroy(event);
    }
  }
  if (ring.device != nullptr) {
    nccl_.mem_free(ring.device);
  }
  if (ring.host != nullptr) {
    gpu_.free_host(ring.host);
  }
  if (ring.stream != nullptr) {
    gpu_.stream_destroy(ring.stream);
  }
}

}  // namespace pdjob::kvtransfer
