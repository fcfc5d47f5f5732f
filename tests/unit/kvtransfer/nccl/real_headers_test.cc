// Compares the declarations of nccl_api.h and gpu_api.h with those of the real headers. The test is
// that this file compiles. It is built where `./dev nccl` has fetched the headers. The macros below
// skip headers that nccl.h includes only for kernels, and that need one more package.
// NOLINTBEGIN(bugprone-reserved-identifier): CUDA's names.
#define __CUDA_FP16_H__
#define __CUDA_BF16_H__
#define __CUDA_FP8_H__
// NOLINTEND(bugprone-reserved-identifier)
#include <cstddef>
#include <type_traits>

#include <cuda.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include "gpu/gpu_api.h"
#include "kvtransfer/nccl/nccl_api.h"

namespace pdjob::kvtransfer {
namespace {

// Returns whether two types look the same to a calling convention: any pointer is a pointer, and an
// enumeration is its integer.
template <class Ours, class Theirs>
constexpr bool same_value() {
  if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) {
    return true;
  } else if constexpr ((std::is_enum_v<Ours> || std::is_integral_v<Ours>) &&
                       std::is_enum_v<Theirs>) {
    return sizeof(Ours) == sizeof(Theirs);
  } else if constexpr (std::is_class_v<Ours> && std::is_class_v<Theirs>) {
    return sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs);
  } else {
    return std::is_same_v<Ours, Theirs>;
  }
}

template <class Ours, class Theirs>
struct SameCall : std::false_type {};
template <class OurResult, class... Ours, class TheirResult, class... Theirs>
  requires(sizeof...(Ours) == sizeof...(Theirs))
struct SameCall<OurResult (*)(Ours...), TheirResult (*)(Theirs...)>
    : std::bool_constant<same_value<OurResult, TheirResult>() &&
                         (same_value<Ours, Theirs>() && ...)> {};

#define PDJOB_SAME_CALL(ours, theirs) \
  static_assert(SameCall<decltype(ours), decltype(&(theirs))>::value, #theirs)

PDJOB_SAME_CALL(NcclApi::get_version, ncclGetVersion);
PDJOB_SAME_CALL(NcclApi::get_unique_id, ncclGetUniqueId);
PDJOB_SAME_CALL(NcclApi::comm_init_rank_config, ncclCommInitRankConfig);
PDJOB_SAME_CALL(NcclApi::comm_finalize, ncclCommFinalize);
PDJOB_SAME_CALL(NcclApi::comm_destroy, ncclCommDestroy);
PDJOB_SAME_CALL(NcclApi::comm_abort, ncclCommAbort);
PDJOB_SAME_CALL(NcclApi::comm_get_async_error, ncclCommGetAsyncError);
PDJOB_SAME_CALL(NcclApi::get_error_string, ncclGetErrorString);
PDJOB_SAME_CALL(NcclApi::get_last_error, ncclGetLastError);
PDJOB_SAME_CALL(NcclApi::send, ncclSend);
PDJOB_SAME_CALL(NcclApi::recv, ncclRecv);
PDJOB_SAME_CALL(NcclApi::group_start, ncclGroupStart);
PDJOB_SAME_CALL(NcclApi::group_end, ncclGroupEnd);
PDJOB_SAME_CALL(NcclApi::mem_alloc, ncclMemAlloc);
PDJOB_SAME_CALL(NcclApi::mem_free, ncclMemFree);
PDJOB_SAME_CALL(NcclApi::comm_register, ncclCommRegister);
PDJOB_SAME_CALL(NcclApi::comm_deregister, ncclCommDeregister);

PDJOB_SAME_CALL(GpuApi::get_device_count, cudaGetDeviceCount);
PDJOB_SAME_CALL(GpuApi::set_device, cudaSetDevice);
PDJOB_SAME_CALL(GpuApi::stream_create_with_flags, cudaStreamCreateWithFlags);
PDJOB_SAME_CALL(GpuApi::stream_query, cudaStreamQuery);
PDJOB_SAME_CALL(GpuApi::stream_destroy, cudaStreamDestroy);
PDJOB_SAME_CALL(GpuApi::event_create_with_flags, cudaEventCreateWithFlags);
PDJOB_SAME_CALL(GpuApi::event_record, cudaEventRecord);
PDJOB_SAME_CALL(GpuApi::event_query, cudaEventQuery);
PDJOB_SAME_CALL(GpuApi::event_destroy, cudaEventDestroy);
PDJOB_SAME_CALL(GpuApi::memcpy_async, cudaMemcpyAsync);
PDJOB_SAME_CALL(GpuApi::free_host, cudaFreeHost);
PDJOB_SAME_CALL(GpuApi::get_error_string, cudaGetErrorString);

PDJOB_SAME_CALL(GpuApi::runtime_get_version, cudaRuntimeGetVersion);

PDJOB_SAME_CALL(GpuDriver::mem_get_allocation_granularity, cuMemGetAllocationGranularity);
PDJOB_SAME_CALL(GpuDriver::mem_create, cuMemCreate);
PDJOB_SAME_CALL(GpuDriver::mem_release, cuMemRelease);
PDJOB_SAME_CALL(GpuDriver::mem_export_to_shareable_handle, cuMemExportToShareableHandle);
PDJOB_SAME_CALL(GpuDriver::mem_import_from_shareable_handle, cuMemImportFromShareableHandle);
PDJOB_SAME_CALL(GpuDriver::mem_address_reserve, cuMemAddressReserve);
PDJOB_SAME_CALL(GpuDriver::mem_address_free, cuMemAddressFree);
PDJOB_SAME_CALL(GpuDriver::mem_map, cuMemMap);
PDJOB_SAME_CALL(GpuDriver::mem_unmap, cuMemUnmap);
PDJOB_SAME_CALL(GpuDriver::mem_set_access, cuMemSetAccess);
PDJOB_SAME_CALL(GpuDriver::module_load_data, cuModuleLoadData);
PDJOB_SAME_CALL(GpuDriver::module_unload, cuModuleUnload);
PDJOB_SAME_CALL(GpuDriver::module_get_function, cuModuleGetFunction);
PDJOB_SAME_CALL(GpuDriver::launch_kernel, cuLaunchKernel);

// In C++ CUDA adds templates of the same names.
using CudaEntryPoint = cudaError_t (*)(const char*, void**, unsigned, unsigned long long,
                                       cudaDriverEntryPointQueryResult*);
constexpr CudaEntryPoint kCudaEntryPoint = cudaGetDriverEntryPointByVersion;
static_assert(SameCall<decltype(GpuApi::get_driver_entry_point_by_version),
                       decltype(+kCudaEntryPoint)>::value);
using CudaCopyBatch = cudaError_t (*)(void* const*, const void* const*, const size_t*, size_t,
                                      cudaMemcpyAttributes*, size_t*, size_t, cudaStream_t);
constexpr CudaCopyBatch kCudaCopyBatch = cudaMemcpyBatchAsync;
static_assert(SameCall<decltype(GpuApi::memcpy_batch_async), decltype(+kCudaCopyBatch)>::value);
using CudaHostAlloc = cudaError_t (*)(void**, size_t, unsigned);
constexpr CudaHostAlloc kCudaHostAlloc = cudaHostAlloc;
static_assert(SameCall<decltype(GpuApi::host_alloc), decltype(+kCudaHostAlloc)>::value);

constexpr int value(auto enumerator) { return static_cast<int>(enumerator); }

static_assert(value(kNcclSuccess) == value(ncclSuccess));
static_assert(value(kNcclUnhandledCudaError) == value(ncclUnhandledCudaError));
static_assert(value(kNcclSystemError) == value(ncclSystemError));
static_assert(value(kNcclInternalError) == value(ncclInternalError));
static_assert(value(kNcclInvalidArgument) == value(ncclInvalidArgument));
static_assert(value(kNcclInvalidUsage) == value(ncclInvalidUsage));
static_assert(value(kNcclRemoteError) == value(ncclRemoteError));
static_assert(value(kNcclInProgress) == value(ncclInProgress));
static_assert(value(kNcclUint8) == value(ncclUint8));
static_assert(sizeof(NcclUniqueId) == NCCL_UNIQUE_ID_BYTES);

static_assert(value(kGpuSuccess) == value(cudaSuccess));
static_assert(value(kGpuNotReady) == value(cudaErrorNotReady));
static_assert(value(kGpuHostToDevice) == value(cudaMemcpyHostToDevice));
static_assert(value(kGpuDeviceToHost) == value(cudaMemcpyDeviceToHost));
static_assert(kGpuStreamNonBlocking == cudaStreamNonBlocking);
static_assert(kGpuEventDisableTiming == cudaEventDisableTiming);
static_assert(kGpuHostAllocDefault == cudaHostAllocDefault);

static_assert(value(kGpuCopyDefault) == value(cudaMemcpyDefault));
static_assert(value(kGpuSuccess) == value(CUDA_SUCCESS));
static_assert(value(kGpuNotReady) == value(CUDA_ERROR_NOT_READY));
static_assert(kGpuLocationDevice == cudaMemLocationTypeDevice);
static_assert(kGpuLocationDevice == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(kGpuHandleFd == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
static_assert(kGpuGranularityMinimum == CU_MEM_ALLOC_GRANULARITY_MINIMUM);
static_assert(GpuApi::kVersionMin <= CUDART_VERSION);

// Their code reads our structure.
#define PDJOB_SAME_PLACE(ours, our_field, theirs, their_field)                \
  static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field) && \
                sizeof(ours::our_field) == sizeof(theirs::their_field))
static_assert(sizeof(GpuLocation) == sizeof(cudaMemLocation));
static_assert(sizeof(GpuLocation) == sizeof(CUmemLocation));
PDJOB_SAME_PLACE(GpuLocation, type, cudaMemLocation, type);
PDJOB_SAME_PLACE(GpuLocation, id, cudaMemLocation, id);
PDJOB_SAME_PLACE(GpuLocation, type, CUmemLocation, type);
PDJOB_SAME_PLACE(GpuLocation, id, CUmemLocation, id);
static_assert(sizeof(GpuCopyAttributes) == sizeof(cudaMemcpyAttributes));
PDJOB_SAME_PLACE(GpuCopyAttributes, source_order, cudaMemcpyAttributes, srcAccessOrder);
PDJOB_SAME_PLACE(GpuCopyAttributes, source_hint, cudaMemcpyAttributes, srcLocHint);
PDJOB_SAME_PLACE(GpuCopyAttributes, target_hint, cudaMemcpyAttributes, dstLocHint);
PDJOB_SAME_PLACE(GpuCopyAttributes, flags, cudaMemcpyAttributes, flags);
static_assert(sizeof(GpuAllocation) == sizeof(CUmemAllocationProp));
PDJOB_SAME_PLACE(GpuAllocation, type, CUmemAllocationProp, type);
PDJOB_SAME_PLACE(GpuAllocation, handle_types, CUmemAllocationProp, requestedHandleTypes);
PDJOB_SAME_PLACE(GpuAllocation, location, CUmemAllocationProp, location);
PDJOB_SAME_PLACE(GpuAllocation, win32_meta_data, CUmemAllocationProp, win32HandleMetaData);
PDJOB_SAME_PLACE(GpuAllocation, flags, CUmemAllocationProp, allocFlags);
static_assert(sizeof(GpuAccess) == sizeof(CUmemAccessDesc));
PDJOB_SAME_PLACE(GpuAccess, location, CUmemAccessDesc, location);
PDJOB_SAME_PLACE(GpuAccess, flags, CUmemAccessDesc, flags);

TEST(RealHeaders, StructuresStartWithCudasValues) {
  EXPECT_EQ(GpuCopyAttributes().source_order, unsigned{cudaMemcpySrcAccessOrderStream});
  EXPECT_EQ(GpuAllocation().type, unsigned{CU_MEM_ALLOCATION_TYPE_PINNED});
  EXPECT_EQ(GpuAllocation().handle_types, unsigned{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR});
  EXPECT_EQ(GpuAccess().flags, unsigned{CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
}

// The pinned headers are of the oldest version that we accept, and so is our configuration.
static_assert(NcclApi::kVersionMin == NCCL_VERSION_CODE);
static_assert(sizeof(NcclCommConfig) == sizeof(ncclConfig_t));

#define PDJOB_SAME_FIELD(ours, theirs)                                                      \
  static_assert(offsetof(NcclCommConfig, ours) == offsetof(ncclConfig_t, theirs), #theirs); \
  static_assert(std::is_same_v<decltype(NcclCommConfig::ours), decltype(ncclConfig_t::theirs)>)

PDJOB_SAME_FIELD(size, size);
PDJOB_SAME_FIELD(magic, magic);
PDJOB_SAME_FIELD(version, version);
PDJOB_SAME_FIELD(blocking, blocking);
PDJOB_SAME_FIELD(cga_cluster_size, cgaClusterSize);
PDJOB_SAME_FIELD(min_ctas, minCTAs);
PDJOB_SAME_FIELD(max_ctas, maxCTAs);
PDJOB_SAME_FIELD(net_name, netName);
PDJOB_SAME_FIELD(split_share, splitShare);
PDJOB_SAME_FIELD(traffic_class, trafficClass);
PDJOB_SAME_FIELD(comm_name, commName);
PDJOB_SAME_FIELD(collnet_enable, collnetEnable);
PDJOB_SAME_FIELD(cta_policy, CTAPolicy);
PDJOB_SAME_FIELD(shrink_share, shrinkShare);
PDJOB_SAME_FIELD(nvls_ctas, nvlsCTAs);
PDJOB_SAME_FIELD(n_channels_per_net_peer, nChannelsPerNetPeer);
PDJOB_SAME_FIELD(nvlink_centric_sched, nvlinkCentricSched);

TEST(RealHeaders, ConfigurationStartsAsNcclInitializesIt) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const NcclCommConfig ours;
  EXPECT_EQ(ours.size, theirs.size);
  EXPECT_EQ(ours.magic, theirs.magic);
  EXPECT_EQ(ours.version, theirs.version);
  EXPECT_EQ(ours.blocking, theirs.blocking);
  EXPECT_EQ(ours.comm_name, theirs.commName);
  EXPECT_EQ(ours.nvlink_centric_sched, theirs.nvlinkCentricSched);
}

}  // namespace
}  // namespace pdjob::kvtransfer
