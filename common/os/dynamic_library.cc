#include "common/os/dynamic_library.h"

#include <dlfcn.h>

namespace pdjob {

Result<DynamicLibrary> DynamicLibrary::open(const std::string& path) {
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* error = ::dlerror();
    const std::string why = error != nullptr ? error : "unknown error";
    // The message mostly begins with the path, but may name another library that this one needs.
    return Error{ErrorCode::kUnsupported,
                 "cannot load " + (why.starts_with(path) ? why : path + ": " + why)};
  }
  return DynamicLibrary(handle, path);
}

void* DynamicLibrary::find(const char* symbol) const { return ::dlsym(handle_, symbol); }

}  // namespace pdjob
