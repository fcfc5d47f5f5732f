// Machines made of files.
#include "launcher/doctor/machine_files.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

namespace fs = std::filesystem;

class MachineFilesTest : public testing::Test {
 protected:
  MachineFilesTest()
      : root_(testing::TempDir() + "/" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~MachineFilesTest() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }

  const std::string root_;
};

TEST_F(MachineFilesTest, AMachineWithoutFilesHasNothing) {
  const MachineFiles machine = read_machine_files(root_);
  EXPECT_EQ(machine.gpus_on_bus, 0U);
  EXPECT_EQ(machine.gpus_usable, 0U);
  EXPECT_TRUE(machine.rdma.empty());
  EXPECT_TRUE(machine.ports_taken.empty());
  EXPECT_FALSE(machine.files.has_value());
}

TEST_F(MachineFilesTest, GpusAreThoseOfNvidiaThatShowOrCompute) {
  for (const auto& [address, vendor, kind] : {std::tuple("0000:01:00.0", "0x10de", "0x030200"),
                                              {"0000:02:00.0", "0x10de", "0x030000"},
                                              {"0000:02:00.1", "0x10de", "0x040300"},
                                              {"0000:03:00.0", "0x1a03", "0x030000"}}) {
    const std::string folder = std::string("/sys/bus/pci/devices/") + address;
    write(folder + "/vendor", std::string(vendor) + "\n");
    write(folder + "/class", std::string(kind) + "\n");
  }
  write("/sys/module/nvidia/version", "580.95.05\n");
  write("/proc/driver/nvidia/gpus/0000:01:00.0/information",
        "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 41\n");
  write("/dev/nvidia0", "");
  const MachineFiles machine = read_machine_files(root_);
  EXPECT_EQ(machine.gpus_on_bus, 2U);
  EXPECT_EQ(machine.gpus_usable, 1U);
  EXPECT_EQ(machine.gpu_driver, "580.95.05");
  EXPECT_EQ(machine.gpu_models, std::vector<std::string>{"NVIDIA H100 80GB HBM3"});
}

TEST_F(MachineFilesTest, AnRdmaDeviceIsActiveByItsFirstPort) {
  write("/sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN\n");
  write("/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
  write("/dev/infiniband/uverbs0", "");
  write("/dev/infiniband/rdma_cm", "");
  const MachineFiles machine = read_machine_files(root_);
  EXPECT_EQ(machine.rdma, (std::vector<RdmaDevice>{{"mlx5_0", true}, {"mlx5_1", false}}));
  EXPECT_EQ(machine.rdma_usable, 1U);
}

TEST_F(MachineFilesTest, LimitsAreTheHighestThatTheProcessMaySet) {
  write("/proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max cpu time              unlimited            unlimited            seconds   \n"
        "Max open files            1024                 524288               files     \n"
        "Max locked memory         8388608              unlimited            bytes     \n");
  const MachineFiles machine = read_machine_files(root_);
  EXPECT_EQ(machine.files, 524288U);
  EXPECT_FALSE(machine.locked_bytes.has_value());
}

TEST_F(MachineFilesTest, PortsAreThoseOnWhichSomethingListens) {
  const std::string head = "  sl  local_address rem_address   st tx_queue rx_queue\n";
  write("/proc/net/tcp", head +
                             "   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000\n"
                             "   1: 0100007F:5208 0100007F:9C40 01 00000000:00000000\n");
  write("/proc/net/tcp6", head +
                              "   0: 00000000000000000000000000000000:5209 "
                              "00000000000000000000000000000000:0000 0A 00000000:00000000\n");
  write("/proc/sys/net/ipv4/ip_local_port_range", "20000\t60999\n");
  const MachineFiles machine = read_machine_files(root_);
  EXPECT_EQ(machine.ports_taken, (std::set<uint16_t>{8000, 21001}));
  EXPECT_EQ(machine.passing_port_first, 20000);
  EXPECT_EQ(machine.passing_port_last, 60999);
}

}  // namespace
}  // namespace pdjob::launcher
