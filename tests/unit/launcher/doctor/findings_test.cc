#include "launcher/doctor/findings.h"

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

constexpr uint64_t kGiB = 1ULL << 30;

DoctorFacts plain_machine() {
  DoctorFacts facts;
  facts.files.locked_bytes = 8ULL << 20;
  facts.files.files = 524288;
  facts.share = {.cpus = 8, .cores_bound = "", .memory_bytes = 32 * kGiB, .memory_bound = ""};
  facts.pythons = {python_fact("/usr/bin/python3",
                               "pdjob-doctor vllm - \npdjob-doctor sglang - \n"
                               "pdjob-doctor nixl - ModuleNotFoundError: No module named 'nixl'\n"
                               "pdjob-doctor mooncake - ModuleNotFoundError: No module\n"
                               "pdjob-doctor end - \n")};
  facts.shared_memory_free = 16 * kGiB;
  facts.clock_synchronized = true;
  return facts;
}

Finding finding_of(const DoctorFacts& facts, const std::string& name) {
  for (const Finding& finding : findings_of(facts)) {
    if (finding.name == name) {
      return finding;
    }
  }
  return {.name = "no " + name};
}

TEST(Doctor, AMachineForPdjobsOwnEngineIsWell) {
  const auto findings = findings_of(plain_machine());
  EXPECT_EQ(findings_text(findings),
            R"(ok       vllm       not installed; only `engine.kind: vllm` needs it
ok       nixl       not needed: there is no vllm
ok       sglang     not installed; only `engine.kind: sglang` needs it
ok       mooncake   not needed: there is no sglang
ok       ucx        none of the machine's own; NIXL's package brings one
ok       gpus       none: engines compute on CPUs
ok       rdma       none: KV between machines goes over TCP
ok       cpus       8
ok       memory     32.0 GiB
ok       /dev/shm   16.0 GiB free
ok       memlock    8 MiB; only RDMA needs more
ok       nofile     524288
ok       ports      1000 of 1000 free for engines (21000-21999)
ok       port 8000  free for the router
ok       clock      synchronized
)");
  EXPECT_EQ(worst(findings), Level::kOk);
}

TEST(Doctor, AGpuMachineIsDescribed) {
  DoctorFacts facts = plain_machine();
  facts.vllm = "/opt/venv/bin/vllm";
  facts.pythons.insert(facts.pythons.begin(),
                       python_fact("/opt/venv/bin/python",
                                   "INFO: noise\npdjob-doctor vllm 0.32.0 \n"
                                   "pdjob-doctor sglang 0.5.22 \n"
                                   "pdjob-doctor nixl 1.5.1 \n"
                                   "pdjob-doctor mooncake 0.3.13 ImportError: "
                                   "libibverbs.so.1: cannot open\n"
                                   "pdjob-doctor end - \n"));
  facts.ucx = "1.18.0";
  facts.files.gpus_on_bus = facts.files.gpus_usable = 2;
  facts.files.gpu_driver = "580.95.05";
  facts.files.gpu_models = {"NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"};
  facts.files.rdma = {{"mlx5_0", true}, {"mlx5_1", false}};
  facts.files.rdma_usable = 2;
  facts.share = {.cpus = 0.5,
                 .cores_bound = "CPU quota of cgroup /x",
                 .memory_bytes = kGiB / 4,
                 .memory_bound = "memory limit of cgroup /x"};
  facts.shared_memory_free = 64ULL << 20;
  facts.files.files = 4096;
  facts.files.ports_taken = {8000, 21000, 22000};
  facts.clock_synchronized = false;
  const auto findings = findings_of(facts);
  EXPECT_EQ(findings_text(findings),
            R"(ok       vllm       0.32.0 as /opt/venv/bin/vllm
ok       nixl       1.5.1 of /opt/venv/bin/python
ok       sglang     0.5.22 of /opt/venv/bin/python
warning  mooncake   /opt/venv/bin/python cannot import it: ImportError: libibverbs.so.1: cannot open
                    fix: sglang hands KV over by it: /opt/venv/bin/python -m pip install mooncake-transfer-engine
ok       ucx        1.18.0
ok       gpus       2 usable, 2 x NVIDIA H100 80GB HBM3, driver 580.95.05
ok       rdma       mlx5_0 active; mlx5_1 down
warning  cpus       0.5, bounded by CPU quota of cgroup /x
                    fix: workers will be starved: raise the quota to one CPU at least
problem  memory     256 MiB, bounded by memory limit of cgroup /x
                    fix: a small model with its KV takes 1 GiB, and an engine of another make 4 GiB or more: raise the limit
warning  /dev/shm   only 64 MiB free
                    fix: engines with several ranks and NCCL need it: docker run --shm-size 8g, or mount -o remount,size=8g /dev/shm
problem  memlock    8 MiB, and RDMA locks all KV memory
                    fix: ulimit -l unlimited, LimitMEMLOCK=infinity, or docker run --ulimit memlock=-1
warning  nofile     4096 open files: a router takes half of them for connections
                    fix: ulimit -n 65536, LimitNOFILE=65536, or docker run --ulimit nofile=65536
ok       ports      999 of 1000 free for engines (21000-21999)
warning  port 8000  taken by another program
                    fix: set router.listen to another port
warning  clock      not synchronized
                    fix: start chrony or systemd-timesyncd: logs and traces of several machines are compared by time
)");
  EXPECT_EQ(worst(findings), Level::kProblem);
}

TEST(Doctor, GpusThatCannotBeUsedAreAWarning) {
  DoctorFacts facts = plain_machine();
  facts.files.gpus_on_bus = 1;
  Finding finding = finding_of(facts, "gpus");
  EXPECT_EQ(finding.level, Level::kWarning);
  EXPECT_EQ(finding.found, "1 GPU, and no driver is loaded");
  facts.files.gpu_driver = "580.95.05";
  finding = finding_of(facts, "gpus");
  EXPECT_EQ(finding.found, "1 GPU, and /dev/nvidia0 cannot be opened");
  EXPECT_EQ(finding.fix, "start the container with its GPUs, such as docker run --gpus all");
}

TEST(Doctor, APythonThatDoesNotAnswerIsNoProof) {
  DoctorFacts facts = plain_machine();
  facts.pythons = {python_fact("/usr/bin/python3", "pdjob-doctor vllm - \n")};
  const Finding finding = finding_of(facts, "sglang");
  EXPECT_EQ(finding.level, Level::kWarning);
  EXPECT_EQ(finding.found, "unknown: /usr/bin/python3 did not answer in time");
}

TEST(Doctor, PortsThatConnectionsTakeAreAWarningAndTakenOnesAProblem) {
  DoctorFacts facts = plain_machine();
  facts.files.passing_port_first = 10000;
  EXPECT_EQ(finding_of(facts, "ports").level, Level::kWarning);
  for (uint16_t port = 21000; port <= 21999; ++port) {
    facts.files.ports_taken.insert(port);
  }
  const Finding finding = finding_of(facts, "ports");
  EXPECT_EQ(finding.level, Level::kProblem);
  EXPECT_EQ(finding.found, "0 of 1000 free for engines (21000-21999)");
}

TEST(Doctor, SaysTheSameAsJson) {
  const std::vector<Finding> findings = {{.name = "cpus", .found = "8"},
                                         {.name = "clock",
                                          .level = Level::kWarning,
                                          .found = "not synchronized",
                                          .fix = "start chrony"}};
  EXPECT_EQ(
      findings_json(findings),
      R"({"verdict":"warning","findings":[)"
      R"({"name":"cpus","level":"ok","found":"8","fix":""},)"
      R"({"name":"clock","level":"warning","found":"not synchronized","fix":"start chrony"}]})"
      "\n");
}

}  // namespace
}  // namespace pdjob::launcher
