// GpuApi and GpuDriver: the few functions of the CUDA runtime and driver that pdjob calls, as
// pointers into libraries that are loaded at run time. The declarations are our own, so that a
// build needs no CUDA headers. tests/unit/kvtransfer/nccl/real_headers_test.cc compares them with
// the real ones. Value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/result.h"

namespace pdjob {

struct GpuStream;    // CUstream_st
struct GpuEvent;     // CUevent_st
struct GpuModule;    // CUmod_st
struct GpuFunction;  // CUfunc_st

// cudaError_t and CUresult, which have the same numbers.
enum GpuResult : unsigned {
  kGpuSuccess = 0,
  kGpuNotReady = 600,
};
enum GpuCopyKind : unsigned {  // cudaMemcpyKind
  kGpuHostToDevice = 1,
  kGpuDeviceToHost = 2,
  kGpuCopyDefault = 4,  // The address says where each end is.
};
inline constexpr unsigned kGpuStreamNonBlocking = 1;  // Does not wait for the default stream.
inline constexpr unsigned kGpuEventDisableTiming = 2;
inline constexpr unsigned kGpuHostAllocDefault = 0;

struct GpuLocation {  // cudaMemLocation, CUmemLocation
  unsigned type = 0;
  int id = 0;
};
inline constexpr unsigned kGpuLocationDevice = 1;

struct GpuCopyAttributes {    // cudaMemcpyAttributes
  unsigned source_order = 1;  // In stream order: the source is read when the copy runs.
  GpuLocation source_hint, target_hint;
  unsigned flags = 0;
};

struct GpuApi {
  // 13.0. In CUDA 12, cudaMemcpyBatchAsync takes different arguments.
  static constexpr int kVersionMin = 13000;

  // kUnsupported: the library is missing, too old, or lacks a function that we need.
  static Result<GpuApi> open(const std::string& library);
  // kUnsupported: the driver or the device is missing.
  Status has_device(int device) const;

  // Each has the name and the arguments of the CUDA function.
  GpuResult (*runtime_get_version)(int*);
  GpuResult (*get_driver_entry_point_by_version)(const char*, void**, unsigned, unsigned long long,
                                                 unsigned*);
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
  GpuResult (*memcpy_batch_async)(void* const*, const void* const*, const size_t*, size_t,
                                  GpuCopyAttributes*, size_t*, size_t, GpuStream*);
  GpuResult (*host_alloc)(void**, size_t, unsigned);
  GpuResult (*free_host)(void*);
  const char* (*get_error_string)(GpuResult);
};

// CUDA's "virtual memory management": addresses and handles are separate, so that a handle can go
// to another process as a file descriptor.
using GpuAddress = unsigned long long;  // CUdeviceptr
using GpuHandle = unsigned long long;   // CUmemGenericAllocationHandle

struct GpuAllocation {        // CUmemAllocationProp
  unsigned type = 1;          // Pinned, the only type.
  unsigned handle_types = 1;  // POSIX file descriptors.
  GpuLocation location;
  void* win32_meta_data = nullptr;
  uint8_t flags[8] = {};
};
inline constexpr unsigned kGpuHandleFd = 1;
inline constexpr unsigned kGpuGranularityMinimum = 0;

struct GpuAccess {  // CUmemAccessDesc
  GpuLocation location;
  unsigned flags = 3;  // Read and write.
};

struct GpuDriver {
  // kUnsupported: the driver lacks one of the functions.
  static Result<GpuDriver> open(const GpuApi& api);

  // Each has the name and the arguments of the CUDA function.
  GpuResult (*mem_get_allocation_granularity)(size_t*, const GpuAllocation*, unsigned);
  GpuResult (*mem_create)(GpuHandle*, size_t, const GpuAllocation*, unsigned long long);
  GpuResult (*mem_release)(GpuHandle);
  GpuResult (*mem_export_to_shareable_handle)(void*, GpuHandle, unsigned, unsigned long long);
  GpuResult (*mem_import_from_shareable_handle)(GpuHandle*, void*, unsigned);
  GpuResult (*mem_address_reserve)(GpuAddress*, size_t, size_t, GpuAddress, unsigned long long);
  GpuResult (*mem_address_free)(GpuAddress, size_t);
  GpuResult (*mem_map)(GpuAddress, size_t, size_t, GpuHandle, unsigned long long);
  GpuResult (*mem_unmap)(GpuAddress, size_t);
  GpuResult (*mem_set_access)(GpuAddress, size_t, const GpuAccess*, size_t);
  GpuResult (*module_load_data)(GpuModule**, const void*);
  GpuResult (*module_unload)(GpuModule*);
  GpuResult (*module_get_function)(GpuFunction**, GpuModule*, const char*);
  GpuResult (*launch_kernel)(GpuFunction*, unsigned, unsigned, unsigned, unsigned, unsigned,
                             unsigned, unsigned, GpuStream*, void**, void**);
};

// Turns a CUDA error into ours: kUnavailable, "CUDA cannot WHAT: ...".
Error gpu_error(const GpuApi& gpu, GpuResult result, const char* what);

}  // namespace pdjob
