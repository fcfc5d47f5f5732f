#include "launcher/clusters/gpu_slices.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

namespace pdjob::launcher {
namespace {

using Words = std::vector<std::string>;

TEST(GpuSlices, HaveNamesOfTheirOwnAndTheirGpuHasNone) {
  EXPECT_EQ(gpus_with_slices("GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5c89852c)\n"
                             "  MIG 3g.20gb     Device  0: (UUID: MIG-11c29e81)\n"
                             "  MIG 2g.10gb     Device  1: (UUID: MIG-GPU-5c89852c/2/0)\n"
                             "GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-8a1)\n"),
            (Words{"MIG-11c29e81", "MIG-GPU-5c89852c/2/0", "GPU-8a1"}));
}

TEST(GpuSlices, AListWithoutThemSaysNothing) {
  EXPECT_EQ(
      gpus_with_slices("GPU 0: NVIDIA H100 (UUID: GPU-1)\nGPU 1: NVIDIA H100 (UUID: GPU-2)\n"),
      Words{});
  EXPECT_EQ(gpus_with_slices("No devices were found"), Words{});
  EXPECT_EQ(gpus_with_slices("  MIG 1g (UUID: "), Words{});
  EXPECT_EQ(gpus_with_slices(""), Words{});
}

TEST(GpuSlices, AreThereOnceTheDriverHasAnInstance) {
  const std::string root = testing::TempDir() + "/gpu_slices_" + std::to_string(::getpid());
  const std::filesystem::path capabilities = root + "/proc/driver/nvidia/capabilities";
  EXPECT_FALSE(has_gpu_slices(root));
  std::filesystem::create_directories(capabilities / "mig");
  std::filesystem::create_directories(capabilities / "gpu0/mig");
  EXPECT_FALSE(has_gpu_slices(root)) << "the mode is on, and nothing was made";
  std::filesystem::create_directories(capabilities / "gpu1/mig/gi3/ci0");
  EXPECT_TRUE(has_gpu_slices(root));
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace pdjob::launcher
