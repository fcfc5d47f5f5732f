// Machines made of files.
#include "launcher/clusters/machine_topology.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "launcher/placement/near_devices.h"

namespace pdjob::launcher {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

class MachineTopology : public testing::Test {
 protected:
  MachineTopology()
      : root_(testing::TempDir() + "/" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
    fs::create_directories(root_ + "/dev/infiniband");
    facts_ = {.root = root_, .cpus = *parse_number_list("0-95")};
  }
  ~MachineTopology() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  // As in sysfs, links are relative.
  void link(const std::string& path, const std::string& to) const {
    const fs::path folder = fs::path(root_ + path).parent_path();
    fs::create_directories(folder);
    fs::create_directory_symlink(fs::relative(root_ + to, folder), root_ + path);
  }
  // `way`: the root complex and the bridges.
  std::string pci(const std::string& way, const std::string& address, int numa) const {
    const std::string folder = "/sys/devices/" + way + "/" + address;
    write(folder + "/numa_node", std::to_string(numa) + "\n");
    link("/sys/bus/pci/devices/" + address, folder);
    return folder;
  }
  void gpu(int minor, const std::string& way, const std::string& address, int numa,
           const std::string& model = "NVIDIA H100 80GB HBM3") {
    pci(way, address, numa);
    write("/dev/nvidia" + std::to_string(minor), "");
    write("/proc/driver/nvidia/gpus/" + address + "/information",
          "Model: \t\t " + model + "\nIRQ:   \t\t 41\nGPU UUID: \t GPU-" + std::to_string(minor) +
              "eb42286-33bc\nBus Location: \t " + address + "\nDevice Minor: \t " +
              std::to_string(minor) + "\nGPU Excluded:\t No\n");
    facts_.gpus.push_back(std::to_string(minor));
  }
  void nic(const std::string& name, const std::string& way, const std::string& address, int numa,
           const std::string& state = "4: ACTIVE", const std::string& driver = "mlx5_core") const {
    const std::string folder = pci(way, address, numa);
    const std::string verbs = "uverbs_" + name;
    write(folder + "/infiniband/" + name + "/ports/1/state", state + "\n");
    write(folder + "/infiniband_verbs/" + verbs + "/dev", "231:192\n");
    write("/sys/bus/pci/drivers/" + driver + "/uevent", "");
    link(folder + "/driver", "/sys/bus/pci/drivers/" + driver);
    link(folder + "/infiniband/" + name + "/device", folder);
    link("/sys/class/infiniband/" + name, folder + "/infiniband/" + name);
    write("/dev/infiniband/" + verbs, "");
  }
  void numa(int number, const std::string& cpus) const {
    write("/sys/devices/system/node/node" + std::to_string(number) + "/cpulist", cpus + "\n");
  }

  // Two sockets, each with an NVLink island of four GPUs and four NICs. A switch holds two GPUs and
  // their NICs: each pair has a bridge of its own.
  void make_box() {
    numa(0, "0-23,48-71");
    numa(1, "24-47,72-95");
    for (int i = 0; i < 8; ++i) {
      const std::string number = std::to_string(i);
      const std::string half = std::to_string(i / 2);
      std::string way = "pci0000:_0/0000:_0:01.0/0000:_1:00.0/0000:_2:0" + number + ".0";
      std::replace(way.begin(), way.end(), '_', half.front());
      gpu(i, way, "0000:" + half + std::to_string(3 + i % 2) + ":00.0", i / 4);
      nic("mlx5_" + number, way, "0000:" + half + std::to_string(3 + i % 2) + ":00.1", i / 4);
    }
    facts_.driver_table = box_table();
  }

  static std::string box_table() {
    std::string text = "\t\033[4m";
    for (int i = 0; i < 8; ++i) {
      text += "GPU" + std::to_string(i) + "\t";
    }
    text += "NIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\033[0m\n";
    for (int i = 0; i < 8; ++i) {
      text += "GPU" + std::to_string(i);
      for (int j = 0; j < 8; ++j) {
        text += i == j ? "\t X " : i / 4 == j / 4 ? "\tNV18" : "\tSYS";
      }
      text += "\tSYS\t0-23,48-71\t" + std::to_string(i / 4) + "\t\tN/A\n";
    }
    return text + "NIC0\tSYS\n\nLegend:\n";
  }

  NodeTopology read() const { return read_topology(facts_); }
  Words nics_of_gpu(size_t gpu) const {
    const NodeTopology topology = read();
    return topology.gpus.empty() ? Words() : topology.gpus[gpu].nics;
  }

  const std::string root_;
  MachineFacts facts_;
};

TEST_F(MachineTopology, OfABoxIsAllKnown) {
  make_box();
  const NodeTopology topology = read();
  ASSERT_EQ(topology.gpus.size(), 8U);
  for (uint32_t i = 0; i < 8; ++i) {
    EXPECT_EQ(topology.gpus[i],
              (GpuFacts{.numa = i / 4, .island = i / 4, .nics = {"mlx5_" + std::to_string(i)}}))
        << i;
  }
  EXPECT_EQ(topology.numa, (std::vector<NumaFacts>{{0, "0-23,48-71"}, {1, "24-47,72-95"}}));
}

// A virtual machine with one H100, as such machines describe themselves.
TEST(LargestGpuMemory, IsThatOfTheLargestAndUnknownIfNothingSaysIt) {
  EXPECT_EQ(largest_gpu_memory("81559\n"), uint64_t{81559} << 20);
  EXPECT_EQ(largest_gpu_memory("24576\n81559\n[N/A]\n24576"), uint64_t{81559} << 20);
  for (const char* const text :
       {"", "\n\n", "[N/A]\n", "-5\n", "18446744073709551615\n", "8 GiB"}) {
    EXPECT_EQ(largest_gpu_memory(text), 0U) << text;
  }
}

TEST_F(MachineTopology, OfAVirtualMachineWithOneGpuIsUnknown) {
  numa(0, "0-15");
  pci("pci0000:00", "0000:00:03.0", -1);
  gpu(0, "pci0000:00", "0000:00:06.0", -1);
  fs::create_directories(root_ + "/sys/class/infiniband");
  write("/dev/nvidiactl", "");
  write("/dev/nvidia-uvm", "");
  facts_.driver_table =
      "\t\033[4mGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\033[0m\n"
      "GPU0\t X \t0-15\t0\t\tN/A\n";
  EXPECT_EQ(gpu_device_files(root_), 1U);
  EXPECT_EQ(read(), NodeTopology());
}

TEST_F(MachineTopology, OfAMachineWithoutTheDriversFilesIsUnknown) {
  make_box();
  fs::remove_all(root_ + "/proc");
  EXPECT_EQ(read(), NodeTopology());
}

TEST_F(MachineTopology, ANicUnderTheSameBridgeIsNearerThanOneUnderTheSameRoot) {
  gpu(0, "pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:00.0", "0000:13:00.0", 0);
  nic("far", "pci0000:10", "0000:10:05.0", 0);
  EXPECT_EQ(nics_of_gpu(0), Words()) << "there is no choice";
  nic("farther", "pci0000:80", "0000:80:05.0", 0);
  EXPECT_EQ(nics_of_gpu(0), Words{"far"});
  nic("root_port", "pci0000:10/0000:10:01.0", "0000:15:00.0", 0);
  EXPECT_EQ(nics_of_gpu(0), Words{"root_port"});
  nic("switch0", "pci0000:10/0000:10:01.0/0000:11:00.0", "0000:12:09.0", 0);
  nic("switch1", "pci0000:10/0000:10:01.0/0000:11:00.0", "0000:12:0a.0", 0);
  EXPECT_EQ(nics_of_gpu(0), (Words{"switch0", "switch1"}));
}

TEST_F(MachineTopology, ANicOfTheSameNumaNodeIsNearerThanAnother) {
  gpu(0, "pci0000:10/0000:10:01.0", "0000:11:00.0", 0);
  gpu(1, "pci0000:20/0000:20:01.0", "0000:21:00.0", 1);
  gpu(2, "pci0000:30/0000:30:01.0", "0000:31:00.0", 2);
  nic("mlx5_0", "pci0000:40/0000:40:01.0", "0000:41:00.0", 0);
  nic("mlx5_1", "pci0000:50/0000:50:01.0", "0000:51:00.0", 1);
  EXPECT_EQ(nics_of_gpu(0), Words{"mlx5_0"});
  EXPECT_EQ(nics_of_gpu(1), Words{"mlx5_1"});
  EXPECT_EQ(nics_of_gpu(2), Words()) << "both are equally far";
}

TEST_F(MachineTopology, ANicThatCannotBeUsedIsNone) {
  const std::string way = "pci0000:10/0000:10:01.0";
  gpu(0, way, "0000:11:00.0", 0);
  nic("good", way, "0000:12:00.0", 0);
  nic("down", way, "0000:13:00.0", 0, "1: DOWN");
  nic("waits", way, "0000:14:00.0", 0, "2: INIT");
  nic("aws", way, "0000:15:00.0", 0, "4: ACTIVE", "efa");
  nic("closed", way, "0000:16:00.0", 0);
  fs::remove(root_ + "/dev/infiniband/uverbs_closed");
  nic("odd name", way, "0000:17:00.0", 0);
  EXPECT_EQ(nics_of_gpu(0), Words{"good"});
}

TEST_F(MachineTopology, GpusAreFoundByTheirUuidsToo) {
  make_box();
  facts_.gpus = {
      "GPU-5eb42286-33bc", "GPU-2", "MIG-GPU-6eb42286-33bc/1/0", "MIG-1-2", "GPU-", "GPU-9", "8"};
  const NodeTopology topology = read();
  ASSERT_EQ(topology.gpus.size(), 7U);
  EXPECT_EQ(topology.gpus[0].nics, Words{"mlx5_5"});
  EXPECT_EQ(topology.gpus[1].nics, Words{"mlx5_2"});
  EXPECT_EQ(topology.gpus[2].nics, Words{"mlx5_6"});
  for (size_t i = 3; i < 7; ++i) {
    EXPECT_EQ(topology.gpus[i], GpuFacts()) << facts_.gpus[i];
  }
}

TEST_F(MachineTopology, NumbersOfDifferentGpusAreCertainOnlyByAddress) {
  gpu(0, "pci0000:10/0000:10:01.0", "0000:11:00.0", 0, "A");
  gpu(1, "pci0000:20/0000:20:01.0", "0000:21:00.0", 1, "B");
  EXPECT_EQ(read(), NodeTopology()) << "CUDA puts the fastest one first";
  facts_.numbered_by_address = true;
  EXPECT_EQ(read().gpus[1].numa, 1U);
}

TEST_F(MachineTopology, AGpuThatIsHiddenIsNotCounted) {
  make_box();
  fs::remove(root_ + "/dev/nvidia0");
  facts_.driver_table = "";
  facts_.gpus = {"0", "3"};
  const NodeTopology topology = read();
  EXPECT_EQ(topology.gpus[0].nics, Words{"mlx5_1"});
  EXPECT_EQ(topology.gpus[1].numa, 1U);
  write("/dev/nvidia9", "");
  EXPECT_EQ(read(), NodeTopology()) << "one that the driver does not describe";
}

TEST_F(MachineTopology, ATableOfOtherGpusTellsNoIslands) {
  make_box();
  facts_.driver_table = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV18\t0-3\nGPU1\tNV18\t X \t0-3\n";
  EXPECT_EQ(read().gpus[0].island, kUnknownGroup);
  EXPECT_EQ(read().gpus[7].numa, 1U);
}

TEST_F(MachineTopology, CoresAreThoseThatPdjobMayUse) {
  make_box();
  facts_.cpus = *parse_number_list("20-30");
  EXPECT_EQ(read().numa, (std::vector<NumaFacts>{{0, "20-23"}, {1, "24-30"}}));
  facts_.cpus = *parse_number_list("0-3");
  EXPECT_EQ(read().numa, (std::vector<NumaFacts>{{0, "0-3"}}));
}

}  // namespace
}  // namespace pdjob::launcher
