// The topology of this machine: its files, and the driver's own program.
#pragma once

#include <string>
#include <vector>

#include "common/time.h"
#include "launcher/placement/topology.h"

namespace pdjob::launcher {

// `gpus`: as in CUDA_VISIBLE_DEVICES. The first call of a process waits for nvidia-smi, for at most
// 10 s a question. Call it before the process serves anything.
NodeTopology topology_here(const std::vector<std::string>& gpus);

// What a program prints. Empty: it is not there, fails, prints more than 256 KiB, or lasts longer.
std::string printed_by(const std::string& program, const std::vector<std::string>& arguments,
                       Duration at_most);

}  // namespace pdjob::launcher
