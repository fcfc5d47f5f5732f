#include "kvtransfer/dynamic_library.h"

#include <dlfcn.h>

namespace pdjob::kvtransfer {

Result<DynamicLibrary> DynamicLibrary::open(const std::string& path) {
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = ::dlerror();
    return Error{ErrorCode::kUnsupported,
                 "cannot load " + path + ": " + (why != nullptr ? why : "unknown error")};
  }
  return DynamicLibrary(handle, path);
}

void* DynamicLibrary::find(const char* symbol) const { return ::dlsym(handle_, symbol); }

}  // namespace pdjob::kvtransfer
