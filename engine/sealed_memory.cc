#include "engine/sealed_memory.h"

#include <cerrno>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace pdjob::engine {
namespace {

// Since Linux 6.3; older headers do not name it and older kernels refuse it.
constexpr unsigned kNoExecSeal = 0x0008U;

Error failed(const char* call) {
  return {ErrorCode::kUnsupported,
          std::string("shared KV memory: ") + call + ": " + strerror(errno)};
}

}  // namespace

Result<SealedMemory> SealedMemory::create(const char* name, uint64_t bytes) {
  SealedMemory memory;
  memory.bytes_ = bytes;
  memory.fd_ = Fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | kNoExecSeal));
  if (!memory.fd_.valid() && errno == EINVAL) {
    memory.fd_ = Fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  }
  if (!memory.fd_.valid()) {
    return failed("memfd_create");
  }
  if (ftruncate(memory.fd(), static_cast<off_t>(bytes)) != 0) {
    return failed("ftruncate");
  }
  if (fcntl(memory.fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return failed("F_ADD_SEALS");
  }
  return memory;
}

Status SealedMemory::map_over(std::byte* address, uint64_t offset, uint64_t bytes) const {
  // Populated from the start: a page fault in the first request costs more than the copy, and a
  // lack of memory must show now.
  void* mapped = mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE,
                      fd(), static_cast<off_t>(offset));
  return mapped == MAP_FAILED ? Status(failed("mmap")) : ok();
}

}  // namespace pdjob::engine
