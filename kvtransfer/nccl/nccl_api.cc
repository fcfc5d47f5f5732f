#include "kvtransfer/nccl/nccl_api.h"

#include "common/os/dynamic_library.h"

namespace pdjob::kvtransfer {

std::string nccl_version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

Result<NcclApi> NcclApi::open(const std::string& library) {
  PDJOB_TRY(const DynamicLibrary loaded, DynamicLibrary::open(library));
  NcclApi api{};
  // Check the version first: an old library lacks functions, and its age is the better error.
  if (!loaded.load("ncclGetVersion", api.get_version) ||
      api.get_version(&api.version) != kNcclSuccess) {
    return Error{ErrorCode::kUnsupported, library + " is not NCCL"};
  }
  if (api.version < kVersionMin) {
    return Error{ErrorCode::kUnsupported, library + " is NCCL " + nccl_version_text(api.version) +
                                              ", at least " + nccl_version_text(kVersionMin) +
                                              " is needed"};
  }
  const char* missing = nullptr;
  const auto need = [&](const char* symbol, auto& function) {
    if (!loaded.load(symbol, function) && missing == nullptr) {
      missing = symbol;
    }
  };
  need("ncclGetUniqueId", api.get_unique_id);
  need("ncclCommInitRankConfig", api.comm_init_rank_config);
  need("ncclCommFinalize", api.comm_finalize);
  need("ncclCommDestroy", api.comm_destroy);
  need("ncclCommAbort", api.comm_abort);
  need("ncclCommGetAsyncError", api.comm_get_async_error);
  need("ncclGetErrorString", api.get_error_string);
  need("ncclGetLastError", api.get_last_error);
  need("ncclSend", api.send);
  need("ncclRecv", api.recv);
  need("ncclGroupStart", api.group_start);
  need("ncclGroupEnd", api.group_end);
  need("ncclMemAlloc", api.mem_alloc);
  need("ncclMemFree", api.mem_free);
  need("ncclCommRegister", api.comm_register);
  need("ncclCommDeregister", api.comm_deregister);
  if (missing != nullptr) {
    return Error{ErrorCode::kUnsupported, library + " has no function " + missing};
  }
  return api;
}

std::string NcclApi::explain(NcclResult result, NcclComm* comm) const {
  std::string text = get_error_string(result);
  const char* last = get_last_error(comm);
  if (last != nullptr && *last != '\0') {
    text += std::string(" (") + last + ")";
  }
  return text;
}

}  // namespace pdjob::kvtransfer
