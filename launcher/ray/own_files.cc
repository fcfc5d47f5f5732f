#include "launcher/ray/own_files.h"

#include <fcntl.h>
#include <link.h>

namespace pdjob::launcher {
namespace {

// Paths as the loader found them: their last parts are the names that programs ask for. The
// program itself has no name, and the kernel's own library no path.
int add_path(dl_phdr_info* object, size_t /*size*/, void* paths) {
  const std::string path = object->dlpi_name;
  if (path.find('/') != std::string::npos) {
    static_cast<std::vector<std::string>*>(paths)->push_back(path);
  }
  return 0;
}

Status add(std::vector<OwnFile>& files, std::string name, const std::string& path) {
  net::Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) {
    return system_error(path);
  }
  files.push_back({std::move(name), std::move(file)});
  return ok();
}

}  // namespace

Result<std::vector<OwnFile>> open_own_files() {
  std::vector<std::string> paths;
  dl_iterate_phdr(add_path, &paths);
  std::vector<OwnFile> files;
  PDJOB_TRY_STATUS(add(files, "pdjob", "/proc/self/exe"));
  for (const std::string& path : paths) {
    PDJOB_TRY_STATUS(add(files, "lib/" + path.substr(path.rfind('/') + 1), path));
  }
  return files;
}

}  // namespace pdjob::launcher
