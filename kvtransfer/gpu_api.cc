#include "kvtransfer/gpu_api.h"

#include "kvtransfer/dynamic_library.h"

namespace pdjob::kvtransfer {

Result<GpuApi> GpuApi::open(const std::string& library) {
  PDJOB_TRY(const DynamicLibrary loaded, DynamicLibrary::open(library));
  GpuApi api{};
  const char* missing = nullptr;
  const auto need = [&](const char* symbol, auto& function) {
    if (!loaded.load(symbol, function) && missing == nullptr) {
      missing = symbol;
    }
  };
  need("cudaGetDeviceCount", api.get_device_count);
  need("cudaSetDevice", api.set_device);
  need("cudaStreamCreateWithFlags", api.stream_create_with_flags);
  need("cudaStreamQuery", api.stream_query);
  need("cudaStreamDestroy", api.stream_destroy);
  need("cudaEventCreateWithFlags", api.event_create_with_flags);
  need("cudaEventRecord", api.event_record);
  need("cudaEventQuery", api.event_query);
  need("cudaEventDestroy", api.event_destroy);
  need("cudaMemcpyAsync", api.memcpy_async);
  need("cudaHostAlloc", api.host_alloc);
  need("cudaFreeHost", api.free_host);
  need("cudaGetErrorString", api.get_error_string);
  if (missing != nullptr) {
    return Error{ErrorCode::kUnsupported, library + " has no function " + missing};
  }
  return api;
}

Status GpuApi::has_device(int device) const {
  int devices = 0;
  const GpuResult counted = get_device_count(&devices);
  if (counted != kGpuSuccess) {
    return Error{ErrorCode::kUnsupported,
                 std::string("there is no usable GPU: ") + get_error_string(counted)};
  }
  if (device >= devices) {
    return Error{ErrorCode::kUnsupported, "there is no GPU " + std::to_string(device) +
                                              ", this machine has " + std::to_string(devices)};
  }
  return ok();
}

}  // namespace pdjob::kvtransfer
