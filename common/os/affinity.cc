#include "common/os/affinity.h"

#include <algorithm>
#include <cerrno>
#include <climits>

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace pdjob {

namespace {

constexpr uint32_t kCpusMax = 1U << 16U;
constexpr size_t kMaskBits = CHAR_BIT * sizeof(unsigned long);

}  // namespace

std::vector<uint32_t> own_cpus() {
  for (uint32_t cpus = 1024; cpus <= kCpusMax; cpus *= 2) {
    cpu_set_t* const set = CPU_ALLOC(cpus);
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    const bool told = sched_getaffinity(0, bytes, set) == 0;
    const bool too_small = !told && errno == EINVAL;
    std::vector<uint32_t> list;
    for (uint32_t cpu = 0; told && cpu < cpus; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set)) {
        list.push_back(cpu);
      }
    }
    CPU_FREE(set);
    if (!too_small) {
      return list;
    }
  }
  return {};
}

Affinity::Mask Affinity::mask_of(const std::vector<uint32_t>& numbers) {
  Mask mask(numbers.empty() ? 0 : numbers.back() / kMaskBits + 1);
  for (const uint32_t number : numbers) {
    mask[number / kMaskBits] |= 1UL << (number % kMaskBits);
  }
  return mask;
}

Affinity::Affinity(const std::vector<uint32_t>& cpus, const std::vector<uint32_t>& memory_nodes)
    : cpus_(mask_of(cpus)), memory_(mask_of(memory_nodes)) {}

void Affinity::apply() const {
  if (!cpus_.empty()) {
    sched_setaffinity(0, cpus_.size() * sizeof(unsigned long),
                      reinterpret_cast<const cpu_set_t*>(cpus_.data()));
  }
  if (!memory_.empty()) {
    // The kernel reads one bit less than it is told.
    syscall(SYS_set_mempolicy, MPOL_PREFERRED, memory_.data(), memory_.size() * kMaskBits + 1);
  }
}

}  // namespace pdjob
