// The declarations of nccl_api.h and gpu_api.h against those of the real headers: that this file
// compiles is the test. It is built where `./dev nccl` has fetched the headers.
// nccl.h includes these for kernels, and they want one more package.
#define __CUDA_FP16_H__
#define __CUDA_BF16_H__
#define __CUDA_FP8_H__
#include <cstddef>
#include <type_traits>

#include <gtest/gtest.h>
#include <nccl.h>

#include "kvtransfer/gpu_api.h"
#include "kvtransfer/nccl_api.h"

namespace pdjob::kvtransfer {
namespace {

// What a calling convention sees: pointers are pointers, and enumerations are their integers.
template <class Ours, class Theirs>
constexpr bool same_value() {
  if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) {
    return true;
  } else if constexpr (std::is_enum_v<Ours> && std::is_enum_v<Theirs>) {
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

// CUDA adds templates of the same name for C++.
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

// The pinned headers are those of the oldest version that will do: so is our configuration.
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
