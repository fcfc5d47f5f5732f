#include "launcher/clusters/nvlink_islands.h"

#include <string>

#include <gtest/gtest.h>

#include "launcher/placement/topology.h"

namespace pdjob::launcher {
namespace {

using Islands = std::vector<uint32_t>;

constexpr uint32_t kNone = kUnknownGroup;

TEST(NvlinkIslands, OfSwitchedGpusAreOne) {
  EXPECT_EQ(
      nvlink_islands("\t\033[4mGPU0\tGPU1\tGPU2\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA "
                     "ID\033[0m\n"
                     "GPU0\t X \tNV18\tNV18\tPXB\tSYS\t0-55,112-167\t0\t\tN/A\n"
                     "GPU1\tNV18\t X \tNV18\tPXB\tSYS\t0-55,112-167\t0\t\tN/A\n"
                     "GPU2\tNV18\tNV18\t X \tSYS\tPXB\t56-111,168-223\t1\t\tN/A\n"
                     "NIC0\tPXB\tPXB\tSYS\t X \tSYS\t\t\t\t\n"
                     "NIC1\tSYS\tSYS\tPXB\tSYS\t X \t\t\t\t\n"
                     "\n"
                     "Legend:\n"
                     "\n"
                     "  X    = Self\n"
                     "  NV#  = Connection traversing a bonded set of # NVLinks\n"
                     "\n"
                     "NIC Legend:\n"
                     "\n"
                     "  NIC0: mlx5_0\n"
                     "  NIC1: mlx5_1\n"),
      (Islands{0, 0, 0}));
}

TEST(NvlinkIslands, OfBridgedPairsAreSeveral) {
  EXPECT_EQ(nvlink_islands("        GPU0  GPU1  GPU2  GPU3  GPU4  CPU Affinity  NUMA Affinity\n"
                           "GPU0     X    SYS   NV12  SYS   SYS   0-31          0\n"
                           "GPU1    SYS    X    SYS   NV12  SYS   0-31          0\n"
                           "GPU2    NV12  SYS    X    SYS   SYS   32-63         1\n"
                           "GPU3    SYS   NV12  SYS    X    SYS   32-63         1\n"
                           "GPU4    SYS   SYS   SYS   SYS    X    32-63         1\n"),
            (Islands{0, 1, 0, 1, kNone}));
}

TEST(NvlinkIslands, OfAChainAreOne) {
  EXPECT_EQ(nvlink_islands("\tGPU0\tGPU1\tGPU2\tGPU3\tmlx5_0\tCPU Affinity\n"
                           "GPU0\t X \tNODE\tNV1\tNODE\tPIX\t0-3\n"
                           "GPU1\tNODE\t X \tNODE\tNV2\tPIX\t0-3\n"
                           "GPU2\tNV1\tNODE\t X \tNV1\tPIX\t0-3\n"
                           "GPU3\tNODE\tNV2\tNV1\t X \tPIX\t0-3\n"),
            (Islands{0, 0, 0, 0}));
}

TEST(NvlinkIslands, OfOneGpuAreNone) {
  EXPECT_EQ(nvlink_islands("\t\033[4mGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\033[0m\n"
                           "GPU0\t X \t0-15\t0\t\tN/A\n"),
            (Islands{kNone}));
}

TEST(NvlinkIslands, OfGpusThatMeetOverPciAreNone) {
  EXPECT_EQ(nvlink_islands("\tGPU0\tGPU1\tCPU Affinity\n"
                           "GPU0\t X \tPHB\tN/A\n"
                           "GPU1\tPHB\t X \tN/A\n"),
            (Islands{kNone, kNone}));
}

TEST(NvlinkIslands, OfAnotherTextAreUnknown) {
  for (const char* const text :
       {"", "\n\n", "NVIDIA-SMI has failed because it couldn't communicate with the driver.\n",
        "No devices were found\n", "\tGPU0\tGPU1\tCPU Affinity\n",
        "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV18\t0-3\n",
        "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV18\t0-3\nGPU2\tNV18\t X \t0-3\n",
        "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \nGPU1\tNV18\t X \t0-3\n", "\tGPU1\tGPU2\tCPU\n",
        "\033", "\033[4m", "\tGPU0\t\033[4"}) {
    EXPECT_EQ(nvlink_islands(text), Islands()) << text;
  }
  std::string head;
  for (int gpu = 0; gpu < 300; ++gpu) {
    head.append("\tGPU").append(std::to_string(gpu));
  }
  EXPECT_EQ(nvlink_islands(head + "\tCPU Affinity\n"), Islands()) << "too many";
}

}  // namespace
}  // namespace pdjob::launcher
