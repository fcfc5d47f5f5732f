// Chooses the GPUs of one worker among those of a node: the least used ones, and of these such that
// are near each other; for a part of a GPU, the most used one. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "launcher/placement/demand.h"
#include "launcher/placement/topology.h"

namespace pdjob::launcher {

struct GpuState {
  uint32_t used = 0;  // Percent, by workers; more than all of it where it is promised twice.
  uint32_t numa = kUnknownGroup;
  uint32_t island = kUnknownGroup;
};

// Takes the NVLink island with the fewest free GPUs that holds all, so that larger ones stay whole.
// Without such an island it takes such a NUMA node, and there as few islands as possible. Unknown
// groups leave the order of the list. Returns places in the list, in ascending order. Requires:
// there are `count` GPUs.
std::vector<size_t> choose_gpus(const std::vector<GpuState>& gpus, size_t count);

// Takes the most used GPU that has so much left, so that others stay whole. Without such a GPU it
// takes the least used one. Returns a place in the list. Requires: there is a GPU.
size_t choose_part(const std::vector<GpuState>& gpus, uint32_t percent);

// The most free GPUs of one island; where no island is known, of one NUMA node. All free ones, if
// neither is known.
size_t most_near_free(const std::vector<GpuState>& gpus);

}  // namespace pdjob::launcher
