#include "gpu/gpu_api.h"

#include "common/os/dynamic_library.h"

namespace pdjob {
namespace {

// We ask for the driver's functions as of CUDA 12.0.
constexpr unsigned kDriverVersion = 12000;

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version / 10 % 100);
}

}  // namespace

Result<GpuApi> GpuApi::open(const std::string& library) {
  PDJOB_TRY(const DynamicLibrary loaded, DynamicLibrary::open(library));
  GpuApi api{};
  int version = 0;
  // The version comes first: an old library lacks functions, and its age is the better reason to
  // report.
  if (!loaded.load("cudaRuntimeGetVersion", api.runtime_get_version) ||
      api.runtime_get_version(&version) != kGpuSuccess) {
    return Error{ErrorCode::kUnsupported, library + " is not the CUDA runtime"};
  }
  if (version < kVersionMin) {
    return Error{ErrorCode::kUnsupported, library + " is CUDA " + version_text(version) +
                                              ", at least " + version_text(kVersionMin) +
                                              " is needed"};
  }
  const char* missing = nullptr;
  const auto need = [&](const char* symbol, auto& function) {
    if (!loaded.load(symbol, function) && missing == nullptr) {
      missing = symbol;
    }
  };
  need("cudaGetDriverEntryPointByVersion", api.get_driver_entry_point_by_version);
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
  need("cudaMemcpyBatchAsync", api.memcpy_batch_async);
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

Result<GpuDriver> GpuDriver::open(const GpuApi& api) {
  GpuDriver driver{};
  const char* missing = nullptr;
  const auto need = [&]<class Function>(const char* symbol, Function*& function) {
    void* found = nullptr;
    unsigned query = 0;
    const GpuResult asked =
        api.get_driver_entry_point_by_version(symbol, &found, kDriverVersion, 0, &query);
    if ((asked != kGpuSuccess || query != 0 || found == nullptr) && missing == nullptr) {
      missing = symbol;
    }
    function = reinterpret_cast<Function*>(found);
  };
  need("cuMemGetAllocationGranularity", driver.mem_get_allocation_granularity);
  need("cuMemCreate", driver.mem_create);
  need("cuMemRelease", driver.mem_release);
  need("cuMemExportToShareableHandle", driver.mem_export_to_shareable_handle);
  need("cuMemImportFromShareableHandle", driver.mem_import_from_shareable_handle);
  need("cuMemAddressReserve", driver.mem_address_reserve);
  need("cuMemAddressFree", driver.mem_address_free);
  need("cuMemMap", driver.mem_map);
  need("cuMemUnmap", driver.mem_unmap);
  need("cuMemSetAccess", driver.mem_set_access);
  need("cuModuleLoadData", driver.module_load_data);
  need("cuModuleUnload", driver.module_unload);
  need("cuModuleGetFunction", driver.module_get_function);
  need("cuLaunchKernel", driver.launch_kernel);
  if (missing != nullptr) {
    return Error{ErrorCode::kUnsupported,
                 std::string("the GPU's driver has no function ") + missing};
  }
  return driver;
}

Error gpu_error(const GpuApi& gpu, GpuResult result, const char* what) {
  return {ErrorCode::kUnavailable,
          std::string("CUDA cannot ") + what + ": " + gpu.get_error_string(result)};
}

}  // namespace pdjob
