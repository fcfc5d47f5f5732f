// NcclApi: the few functions of NCCL that pdjob calls, as pointers into a libnccl that is loaded
// when the program runs. The declarations are our own, so a build needs only pdjob's headers.
// tests/unit/kvtransfer/nccl/real_headers_test.cc compares them with NCCL's and CUDA's.
//
// NCCL's rules for callers: all calls of one GPU come from one thread, and no call may wait
// (docs/decisions/0007). Loop-bound to that thread, except open() and version().
#pragma once

#include <climits>
#include <cstddef>
#include <string>

#include "common/result.h"
#include "gpu/gpu_api.h"

namespace pdjob::kvtransfer {

struct NcclComm;  // ncclComm

enum NcclResult : unsigned {  // ncclResult_t
  kNcclSuccess = 0,
  kNcclUnhandledCudaError = 1,
  kNcclSystemError = 2,
  kNcclInternalError = 3,
  kNcclInvalidArgument = 4,
  kNcclInvalidUsage = 5,
  kNcclRemoteError = 6,
  kNcclInProgress = 7,
};

enum NcclDataType : unsigned { kNcclUint8 = 1 };  // ncclDataType_t

struct NcclUniqueId {  // ncclUniqueId
  char internal[128];
};

// ncclConfig_t of the oldest supported version. Newer versions only append fields, and read `size`
// first.
struct NcclCommConfig {
  size_t size = sizeof(NcclCommConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 22809;
  int blocking = INT_MIN;  // INT_MIN: undefined, NCCL chooses.
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
  int traffic_class = INT_MIN;
  const char* comm_name = nullptr;
  int collnet_enable = INT_MIN;
  int cta_policy = INT_MIN;
  int shrink_share = INT_MIN;
  int nvls_ctas = INT_MIN;
  int n_channels_per_net_peer = INT_MIN;
  int nvlink_centric_sched = INT_MIN;
};

struct NcclApi {
  // 2.28.9: the version that PyTorch of the same time ships.
  static constexpr int kVersionMin = 22809;

  // kUnsupported: the library is missing, is too old, or lacks a function.
  static Result<NcclApi> open(const std::string& library);

  // Each has the name and the arguments of NCCL's function.
  NcclResult (*get_version)(int*);
  NcclResult (*get_unique_id)(NcclUniqueId*);
  NcclResult (*comm_init_rank_config)(NcclComm**, int, NcclUniqueId, int, NcclCommConfig*);
  NcclResult (*comm_finalize)(NcclComm*);
  NcclResult (*comm_destroy)(NcclComm*);
  NcclResult (*comm_abort)(NcclComm*);
  NcclResult (*comm_get_async_error)(NcclComm*, NcclResult*);
  const char* (*get_error_string)(NcclResult);
  const char* (*get_last_error)(NcclComm*);
  NcclResult (*send)(const void*, size_t, NcclDataType, int, NcclComm*, GpuStream*);
  NcclResult (*recv)(void*, size_t, NcclDataType, int, NcclComm*, GpuStream*);
  NcclResult (*group_start)();
  NcclResult (*group_end)();
  NcclResult (*mem_alloc)(void**, size_t);
  NcclResult (*mem_free)(void*);
  NcclResult (*comm_register)(NcclComm*, void*, size_t, void**);
  NcclResult (*comm_deregister)(NcclComm*, void*);

  int version = 0;  // 22809 is 2.28.9.

  // "remote error (the peer has gone)": NCCL's words for a result, with its last message.
  std::string explain(NcclResult result, NcclComm* comm) const;
};

// "2.28.9"
std::string nccl_version_text(int version);

}  // namespace pdjob::kvtransfer
