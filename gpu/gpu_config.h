// The section `gpu` of a job file. Value.
#pragma once

#include <cstdint>
#include <string>

#include "common/config/config_reader.h"

namespace pdjob {

struct GpuConfig {
  // Number of the worker's GPU, as CUDA counts those that the process sees, 0 to 63.
  uint32_t device = 0;
  std::string library = "libcudart.so.13";
};

void read(ConfigReader& in, GpuConfig& config);

}  // namespace pdjob
