#include "common/os/descriptors.h"

#include <algorithm>

#include <sys/resource.h>

namespace pdjob {
namespace {

constexpr uint64_t kOwnFiles = 256;

// A limit belongs to the whole process, and so does this. 0: the limit was never raised.
rlim_t limit_before = 0;

}  // namespace

void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) {
    return;
  }
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit_before = before;
  }
}

void restore_descriptor_limit() {
  rlimit limit{};
  if (limit_before != 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit_before;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
}

uint64_t descriptor_limit() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : kOwnFiles;
}

size_t connections_within(uint64_t descriptors, size_t connections_max) {
  const uint64_t own = std::min(kOwnFiles, descriptors / 4);
  const uint64_t clients = std::max<uint64_t>((descriptors - own) / 2, 1);
  return static_cast<size_t>(std::min<uint64_t>(clients, connections_max));
}

}  // namespace pdjob
