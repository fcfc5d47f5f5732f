#include "gpu/gpu_config.h"

namespace pdjob {

void read(ConfigReader& in, GpuConfig& config) {
  in.field("device", config.device,
           {.doc = "The GPU of a worker started by hand, as CUDA counts them: its engine computes "
                   "there, and its KV moves from there. In a job the launcher gives each worker "
                   "its own."},
           {.max = 63});
  in.field("cuda_library", config.library,
           {.doc = "The CUDA runtime, at least 13.0: a path, or a name that the dynamic linker "
                   "finds."});
}

}  // namespace pdjob
