// Reads from NVIDIA's driver which GPUs are joined by NVLink. Pure.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace pdjob::launcher {

// `table`: what `nvidia-smi topo -m` prints. Returns the island of each GPU, by its number there;
// islands are numbered from 0 on, and a GPU without links has kUnknownGroup. Empty: this is no such
// table.
std::vector<uint32_t> nvlink_islands(std::string_view table);

}  // namespace pdjob::launcher
