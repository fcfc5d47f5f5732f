// On which CPUs a process runs, and from which NUMA node its memory comes first.
#pragma once

#include <cstdint>
#include <vector>

namespace pdjob {

// The CPUs on which the calling thread may run, in ascending order. Empty: the kernel does not
// tell. Thread-safe.
std::vector<uint32_t> own_cpus();

// What a child takes over before it becomes another program. Its own children inherit it. Value.
class Affinity {
 public:
  Affinity() = default;  // Changes nothing.
  // Numbers in ascending order. An empty list changes nothing. Of several memory nodes, the first
  // one counts.
  Affinity(const std::vector<uint32_t>& cpus, const std::vector<uint32_t>& memory_nodes);

  // Between fork and exec. What the kernel refuses stays as it is, because that is slow, not wrong.
  void apply() const;

 private:
  using Mask = std::vector<unsigned long>;
  static Mask mask_of(const std::vector<uint32_t>& numbers);

  Mask cpus_;
  Mask memory_;
};

}  // namespace pdjob
