#include "common/os/machine_share.h"

#include <filesystem>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>
#include <sched.h>

namespace pdjob {
namespace {

constexpr uint64_t kGiB = 1ULL << 30;

// The kernel's lines, as in `man proc_pid_mountinfo`.
std::string mount_v2(const std::string& path, const std::string& top = "/") {
  return "31 23 0:28 " + top + " " + path +
         " rw,nosuid,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
}
std::string mount_v1(const std::string& path, const std::string& controllers,
                     const std::string& top = "/") {
  return "32 31 0:29 " + top + " " + path + " rw,relatime - cgroup cgroup rw," + controllers + "\n";
}
const std::string kOtherMount = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n";

TEST(CgroupFolders, AreThoseOfTheGroupAndOfAllAboveIt) {
  EXPECT_EQ(cgroup_folders("0::/a.slice/b.scope\n", kOtherMount + mount_v2("/sys/fs/cgroup")),
            (std::vector<CgroupFolder>{{"/sys/fs/cgroup/a.slice/b.scope", "/a.slice/b.scope"},
                                       {"/sys/fs/cgroup/a.slice", "/a.slice"},
                                       {"/sys/fs/cgroup", "/"}}));
}

TEST(CgroupFolders, OfV1AreWhereTheControllerIsMounted) {
  const std::string mounts =
      mount_v1("/c/cpu,cpuacct", "cpu,cpuacct") + mount_v1("/c/memory", "memory");
  EXPECT_EQ(cgroup_folders("4:memory:/m\n3:cpu,cpuacct:/\n2:pids:/p\n0::/u\n", mounts),
            (std::vector<CgroupFolder>{
                {"/c/memory/m", "/m"}, {"/c/memory", "/"}, {"/c/cpu,cpuacct", "/"}}));
}

TEST(CgroupFolders, OfAContainerBeginAtTheGroupThatItsMountShows) {
  EXPECT_EQ(
      cgroup_folders("4:memory:/docker/7f/job\n", mount_v1("/c/memory", "memory", "/docker/7f")),
      (std::vector<CgroupFolder>{{"/c/memory/job", "/docker/7f/job"},
                                 {"/c/memory", "/docker/7f"}}));
  EXPECT_EQ(cgroup_folders("0::/docker/7f\n", mount_v2("/c", "/docker/7f")),
            (std::vector<CgroupFolder>{{"/c", "/docker/7f"}}));
}

TEST(CgroupFolders, AMountOfAnotherPartOfTheTreeIsTakenForTheProcesssGroup) {
  EXPECT_EQ(cgroup_folders("0::/pod/new\n", mount_v2("/c", "/pod/old")),
            (std::vector<CgroupFolder>{{"/c", "/pod/old"}}));
  EXPECT_EQ(cgroup_folders("0::/docker/7fab\n", mount_v2("/c", "/docker/7f")),
            (std::vector<CgroupFolder>{{"/c", "/docker/7f"}}));
}

TEST(CgroupFolders, AMountHidesAnEarlierOneAtItsPath) {
  EXPECT_EQ(cgroup_folders("0::/pod\n", mount_v2("/c") + mount_v2("/c", "/pod")),
            (std::vector<CgroupFolder>{{"/c", "/pod"}}));
}

TEST(CgroupFolders, AGroupOutsideOfTheNamespaceHasNone) {
  EXPECT_TRUE(cgroup_folders("0::/../other\n", mount_v2("/c")).empty());
}

TEST(CgroupFolders, NamesWithBlanksAreFoundAndUnprintableOnesAreReplaced) {
  EXPECT_EQ(cgroup_folders("0::/a\x1b[1m\n", mount_v2("/my\\040groups")).front(),
            (CgroupFolder{"/my groups/a\x1b[1m", "/a?[1m"}));
  const std::string group = "/" + std::string(3000, 'x');
  EXPECT_LT(cgroup_folders("0::" + group + "\n", mount_v2("/c")).front().group.size(), 200U);
}

TEST(CgroupFolders, LinesThatAreNoneAreLeftOut) {
  EXPECT_TRUE(cgroup_folders("", "").empty());
  EXPECT_TRUE(cgroup_folders("0\n:\n", "1 2 - cgroup2\n- - -\n\n" + mount_v2("/c")).empty());
}

// A made-up tree of files: /proc/self and the mounts of control groups.
class BoundByCgroups : public testing::Test {
 protected:
  BoundByCgroups()
      : root_(testing::TempDir() + "/" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(root_);
  }
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void group(const std::string& cgroup, const std::string& mounts) const {
    write("/proc/self/cgroup", cgroup);
    write("/proc/self/mountinfo", mounts);
  }
  MachineShare share() const {
    MachineShare share{.cpus = 8, .cores_bound = "", .memory_bytes = 16 * kGiB, .memory_bound = ""};
    bound_by_cgroups(share, root_);
    return share;
  }

  const std::string root_;
};

TEST_F(BoundByCgroups, WithoutFilesTheMachineIsOurs) {
  EXPECT_EQ(share().cores(), 8U);
  EXPECT_EQ(share().cores_bound, "");
  EXPECT_EQ(share().memory_bytes, 16 * kGiB);
  EXPECT_EQ(share().memory_bound, "");
}

TEST_F(BoundByCgroups, TheTightestGroupOfV2Decides) {
  group("0::/pod/container\n", mount_v2("/c"));
  write("/c/pod/container/cpu.max", "400000 100000\n");
  write("/c/pod/container/memory.max", "max\n");
  write("/c/pod/cpu.max", "200000 100000\n");
  write("/c/pod/memory.max", "4294967296\n");
  write("/c/cpu.max", "max 100000\n");
  EXPECT_EQ(share().cores(), 2U);
  EXPECT_EQ(share().cores_bound, "CPU quota of cgroup /pod");
  EXPECT_EQ(share().memory_bytes, 4 * kGiB);
  EXPECT_EQ(share().memory_bound, "memory.max of cgroup /pod");
}

TEST_F(BoundByCgroups, TheTightestGroupOfV1Decides) {
  group("2:memory:/docker/7f\n1:cpu:/docker/7f\n",
        mount_v1("/c/memory", "memory") + mount_v1("/c/cpu", "cpu"));
  write("/c/cpu/docker/7f/cpu.cfs_quota_us", "-1\n");
  write("/c/cpu/docker/7f/cpu.cfs_period_us", "100000\n");
  write("/c/cpu/docker/cpu.cfs_quota_us", "30000\n");
  write("/c/cpu/docker/cpu.cfs_period_us", "10000\n");
  write("/c/memory/docker/7f/memory.limit_in_bytes", "1073741824\n");
  write("/c/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(share().cores(), 3U);
  EXPECT_EQ(share().cores_bound, "CPU quota of cgroup /docker");
  EXPECT_EQ(share().memory_bytes, kGiB);
  EXPECT_EQ(share().memory_bound, "memory.limit_in_bytes of cgroup /docker/7f");
}

TEST_F(BoundByCgroups, APartOfACoreIsNoCoreButTheFirst) {
  group("0::/g\n", mount_v2("/c"));
  write("/c/g/cpu.max", "250000 100000\n");
  EXPECT_EQ(share().cores(), 2U);
  EXPECT_EQ(share().cores_bound, "CPU quota 2.50 of cgroup /g");
  write("/c/g/cpu.max", "30000 100000\n");
  EXPECT_EQ(share().cores(), 1U);
  EXPECT_EQ(share().cores_bound, "CPU quota 0.30 of cgroup /g");
}

// Beyond memory.high the kernel takes pages back, such as those of the model's file.
TEST_F(BoundByCgroups, MemoryThatTheKernelWouldTakeBackIsNotOurs) {
  group("0::/g\n", mount_v2("/c"));
  write("/c/g/memory.max", "4294967296\n");
  write("/c/g/memory.high", "2147483648\n");
  EXPECT_EQ(share().memory_bytes, 2 * kGiB);
  EXPECT_EQ(share().memory_bound, "memory.high of cgroup /g");
}

TEST_F(BoundByCgroups, WhatIsLargerThanTheMachineOrNoNumberBoundsNothing) {
  group("0::/g\n", mount_v2("/c"));
  write("/c/g/cpu.max", "900000 100000\n");
  write("/c/g/memory.max", "99999999999999999999999\n");
  EXPECT_EQ(share().cores_bound + share().memory_bound, "");
  write("/c/g/cpu.max", "100000 0\n");
  write("/c/g/memory.max", "0\n");
  EXPECT_EQ(share().cores_bound + share().memory_bound, "");
}

TEST(MachineShare, IsOnlyLowered) {
  MachineShare share{.cpus = 4, .cores_bound = "", .memory_bytes = kGiB, .memory_bound = ""};
  share.bound_cores(0, "none");
  share.bound_cores(8, "more");
  share.bound_memory(0, "none");
  share.bound_memory(2 * kGiB, "more");
  EXPECT_EQ(share.cores_bound + share.memory_bound, "");
  share.bound_cores(2, "--cores");
  share.bound_memory(7, "--memory");
  EXPECT_EQ(share.cores(), 2U);
  EXPECT_EQ(share.cores_bound, "--cores");
  EXPECT_EQ(share.memory_bytes, 7U);
  EXPECT_EQ(share.memory_bound, "--memory");
}

TEST(MachineShare, HasNoMoreCoresThanTheThreadMayRunOn) {
  const MachineShare before = machine_share();
  EXPECT_GE(before.cores(), 1U);
  EXPECT_GT(before.memory_bytes, 0U);
  MachineShare after;
  std::thread([&] {
    const int core = sched_getcpu();
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
    after = machine_share();
  }).join();
  EXPECT_EQ(after.cores(), 1U);
  if (before.cpus > 1) {
    EXPECT_EQ(after.cores_bound, "affinity");
  }
}

}  // namespace
}  // namespace pdjob
