// The slices into which GPUs of this machine are divided (NVIDIA's MIG). Each is a GPU of its own:
// its memory and its multiprocessors are nobody else's.
// https://docs.nvidia.com/datacenter/tesla/mig-user-guide
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pdjob::launcher {

// Whether the driver has any. `root`: of the file system, empty but in tests.
bool has_gpu_slices(const std::string& root);

// `list`: what `nvidia-smi -L` prints. Returns names as in CUDA_VISIBLE_DEVICES: those of the
// slices, and of GPUs without slices. Empty: it tells of no slice.
std::vector<std::string> gpus_with_slices(std::string_view list);

}  // namespace pdjob::launcher
