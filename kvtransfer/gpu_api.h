// GpuApi: the few functions of the CUDA runtime that pdjob calls, as pointers into a libcudart that
// is loaded when the program runs. The declarations are our own, like those of nccl_api.h. Only the
// thread that issues a GPU's NCCL calls uses it. Loop-bound to that thread, but for open() and
// has_device().
#pragma once

#include <cstddef>
#include <string>

#include "common/result.h"

namespace pdjob::kvtransfer {

struct GpuStream;  // CUstream_st
struct GpuEvent;   // CUevent_st

enum GpuResult : unsigned {  // cudaError_t
  kGpuSuccess = 0,
  kGpuNotReady = 600,
};
enum GpuCopyKind : unsigned {  // cudaMemcpyKind
  kGpuHostToDevice = 1,
  kGpuDeviceToHost = 2,
};
inline constexpr unsigned kGpuStreamNonBlocking = 1;  // Does not wait for the default stream.
inline constexpr unsigned kGpuEventDisableTiming = 2;
inline constexpr unsigned kGpuHostAllocDefault = 0;

struct GpuApi {
  // kUnsupported: no such library, or one without a function that we need.
  static Result<GpuApi> open(const std::string& library);
  // kUnsupported: there is no driver, or no such device.
  Status has_device(int device) const;

  // Each has the name and the arguments of CUDA's function.
  GpuResult (*get_device_count)(int*);
  GpuResult (*set_device)(int);
  GpuResult (*stream_create_with_flags)(GpuStream**, unsigned);
  GpuResult (*stream_query)(GpuStream*);
  GpuResult (*stream_destroy)(GpuStream*);
  GpuResult (*event_create_with_flags)(GpuEvent**, unsigned);
  GpuResult (*event_record)(GpuEvent*, GpuStream*);
  GpuResult (*event_query)(GpuEvent*);
  GpuResult (*event_destroy)(GpuEvent*);
  GpuResult (*memcpy_async)(void*, const void*, size_t, GpuCopyKind, GpuStream*);
  GpuResult (*host_alloc)(void**, size_t, unsigned);
  GpuResult (*free_host)(void*);
  const char* (*get_error_string)(GpuResult);
};

}  // namespace pdjob::kvtransfer
