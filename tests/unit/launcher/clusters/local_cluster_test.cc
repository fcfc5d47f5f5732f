// Real processes: shell scripts in place of the pdjob binary.
#include "launcher/clusters/local_cluster.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/config/number_list.h"
#include "common/os/affinity.h"
#include "common/os/real_clock.h"
#include "net/control/process_spec.h"

namespace pdjob::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kKeepSpec = "cat /proc/self/fd/$3 > ${0%/*}/spec; ";

// Stops the loop with each event but Spawned.
struct Events final : Cluster::Handler {
  explicit Events(net::EventLoop& runs) : loop(runs) {}
  void on_cluster_event(const ClusterEvent& event) override {
    if (const auto* spawned = std::get_if<Spawned>(&event)) {
      pid = spawned->pid;
      if (!stops_when_spawned) {
        return;
      }
    }
    last = event;
    loop.stop();
  }
  net::EventLoop& loop;
  bool stops_when_spawned = false;
  int64_t pid = 0;
  ClusterEvent last;
};

class LocalClusterTest : public testing::Test {
 protected:
  LocalClusterTest()
      : folder_(testing::TempDir() + "/" +
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(folder_);
    logs_.emplace(*LogFolder::claim(folder_, "test"));
  }

  // $3 is the number of the spec's descriptor, as for pdjob itself.
  LocalCluster::Options script(const std::string& text) {
    const std::string path = folder_ + "/program";
    std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
    chmod(path.c_str(), 0700);
    return {.program = path, .logs = *logs_};
  }

  static SpawnOrder order(uint64_t incarnation) {
    SpawnOrder order{.node = "local", .incarnation = {incarnation}};
    order.spec.job = "test";
    order.spec.name = "decode-0";
    order.spec.role = net::Role::kDecode;
    order.spec.key = "a secret";
    return order;
  }

  std::string log() const {
    std::ifstream file(folder_ + "/decode-0.log");
    return {std::istreambuf_iterator<char>(file), {}};
  }

  void wait_for_log(const std::string& text) const {
    for (const Instant deadline = real_now() + seconds(20);
         log().find(text) == std::string::npos && real_now() < deadline;) {
      std::this_thread::sleep_for(milliseconds(10));
    }
  }

  // Of a child that ran kKeepSpec.
  net::ProcessSpec spec() const {
    std::ifstream file(folder_ + "/spec");
    const auto found = net::decode_spec({std::istreambuf_iterator<char>(file), {}});
    EXPECT_TRUE(found);
    return found ? *found : net::ProcessSpec{};
  }

  std::string how() const { return std::get<ProcessExited>(events_.last).how; }

  // Returns the port; 0: it failed, and why_not_ says why.
  uint16_t open_door(LocalCluster& cluster, const std::string& name, uint16_t port,
                     net::PortUse use = net::PortUse::kAlone) {
    cluster.report_to(events_);
    cluster.open_door(
        {.name = name, .node = "local", .host = "127.0.0.1", .port = port, .use = use});
    loop_.run();
    if (const auto* failed = std::get_if<DoorFailed>(&events_.last)) {
      why_not_ = failed->reason;
      return 0;
    }
    EXPECT_EQ(std::get<DoorOpened>(events_.last).name, name);
    return std::get<DoorOpened>(events_.last).port;
  }

  void spawn(LocalCluster& cluster, const SpawnOrder& what) {
    cluster.report_to(events_);
    cluster.spawn(what);
  }

  const std::string folder_;
  std::optional<LogFolder> logs_;
  net::EventLoop loop_;
  Events events_{loop_};
  std::string why_not_;
};

TEST_F(LocalClusterTest, AChildGetsItsSpecItsSocketAndItsLog) {
  LocalCluster cluster(
      loop_, script(std::string(kKeepSpec) + "echo role $1; ls -l /proc/$$/fd >&2; exit 7"));
  const uint16_t port = open_door(cluster, "decode-0", 0);
  ASSERT_GT(port, 0) << why_not_;
  spawn(cluster, order(1));
  loop_.run();
  EXPECT_EQ(how(), "exit code 7");
  EXPECT_NE(log().find("role worker"), std::string::npos);
  EXPECT_EQ(spec().key, "a secret");
  EXPECT_EQ(spec().port, port);
  EXPECT_NE(log().find("socket:["), std::string::npos);
}

// The caller of pdjob may have left any descriptor open, without close-on-exec.
TEST_F(LocalClusterTest, DescriptorsOfTheCallerDoNotReachAChild) {
  const int leaked = open("/dev/full", O_WRONLY);  // NOLINT: without close-on-exec.
  ASSERT_GE(leaked, 0);
  LocalCluster cluster(loop_, script("ls -l /proc/$$/fd; echo listed"));
  spawn(cluster, order(1));
  loop_.run();
  EXPECT_NE(log().find("listed"), std::string::npos);
  EXPECT_EQ(log().find("/dev/full"), std::string::npos) << log();
  close(leaked);
}

TEST_F(LocalClusterTest, AChildSeesTheGpuOfItsOrderAlone) {
  ::setenv("CUDA_VISIBLE_DEVICES", "0,GPU-8a1", 1);
  LocalCluster cluster(loop_, script("env | grep -c CUDA_; env | grep CUDA_"));
  EXPECT_EQ(LocalCluster::this_node().gpus, (std::vector<std::string>{"0", "GPU-8a1"}));
  SpawnOrder with_gpu = order(1);
  with_gpu.spec.gpus = "GPU-8a1";
  spawn(cluster, with_gpu);
  loop_.run();
  EXPECT_EQ(log(), "1\nCUDA_VISIBLE_DEVICES=GPU-8a1\n");
  spawn(cluster, order(2));
  loop_.run();
  EXPECT_TRUE(log().ends_with("1\nCUDA_VISIBLE_DEVICES=0,GPU-8a1\n"));
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST_F(LocalClusterTest, AChildRunsOnTheCpusOfItsOrder) {
  const std::string last = std::to_string(own_cpus().back());
  LocalCluster cluster(loop_, script("grep Cpus_allowed_list /proc/self/status"));
  SpawnOrder near = order(1);
  near.spec.cpus = last;
  near.spec.memory_node = "0";
  spawn(cluster, near);
  loop_.run();
  EXPECT_EQ(log(), "Cpus_allowed_list:\t" + last + "\n");
  spawn(cluster, order(2));
  loop_.run();
  EXPECT_TRUE(log().ends_with("Cpus_allowed_list:\t" + number_list_text(own_cpus()) + "\n"))
      << log();
}

TEST_F(LocalClusterTest, ADeathByASignalIsTold) {
  LocalCluster cluster(loop_, script("exec sleep 1000"));
  spawn(cluster, order(1));
  cluster.signal("local", {1}, Signal::kKill);
  loop_.run();
  EXPECT_EQ(how(), "signal 9 (Killed)");
}

TEST_F(LocalClusterTest, ALookAtAStoppedChildSaysSo) {
  LocalCluster cluster(loop_, script("kill -STOP $$"));
  spawn(cluster, order(1));
  const Instant deadline = real_now() + seconds(20);
  VitalSigns signs;
  while (!signs.stopped && real_now() < deadline) {
    cluster.look_at("local", {1});
    loop_.run();
    signs = std::get<ProcessSeen>(events_.last).signs;
  }
  EXPECT_TRUE(signs.stopped && signs.asleep);
  cluster.look_at("local", {2});  // Unknown: nobody answers.
  cluster.signal("local", {1}, Signal::kKill);
  loop_.run();
  EXPECT_EQ(how(), "signal 9 (Killed)");
}

TEST_F(LocalClusterTest, TermReachesWhatTheChildStartedToo) {
  LocalCluster cluster(loop_, script("sleep 1000 & echo grandchild $! started; wait"));
  spawn(cluster, order(1));
  wait_for_log("started");
  const int grandchild = std::stoi(log().substr(log().find("grandchild ") + 11));
  ASSERT_GT(grandchild, 1);
  cluster.signal("local", {1}, Signal::kTerminate);
  loop_.run();
  for (int i = 0; i < 500 && kill(grandchild, 0) == 0; ++i) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_NE(kill(grandchild, 0), 0);
}

TEST_F(LocalClusterTest, AProgramThatCannotBeExecutedExitsWith127) {
  LocalCluster cluster(loop_, {.program = "/nonexistent", .logs = *logs_});
  spawn(cluster, order(1));
  loop_.run();
  EXPECT_EQ(how(), "exit code 127");
  EXPECT_EQ(log(), "pdjob: cannot execute the program\n");
}

TEST_F(LocalClusterTest, AChildWithoutADoorGetsASocketOfItsOwn) {
  LocalCluster cluster(loop_, script(kKeepSpec));
  spawn(cluster, order(1));
  loop_.run();
  EXPECT_NE(spec().port, 0);
  EXPECT_GE(spec().listen_fd, 0);
}

TEST_F(LocalClusterTest, WorkersShareOneBoardOfThreads) {
  LocalCluster cluster(loop_,
                       script(std::string(kKeepSpec) + "stat -L -c '%n is %i' /proc/$$/fd/*"));
  const auto board_of = [&](uint64_t incarnation, net::Role role) {
    SpawnOrder spawned = order(incarnation);
    spawned.spec.role = role;
    const size_t before = log().size();
    spawn(cluster, spawned);
    loop_.run();
    const std::string name = "/fd/" + std::to_string(spec().threads_fd) + " is ";
    const size_t found = log().find(name, before);
    return found == std::string::npos
               ? "none"
               : log().substr(found + name.size(), log().find('\n', found) - found - name.size());
  };
  EXPECT_EQ(board_of(1, net::Role::kRouter), "none");
  const std::string board = board_of(2, net::Role::kPrefill);
  EXPECT_NE(board, "none");
  EXPECT_EQ(board_of(3, net::Role::kDecode), board);
}

// A launcher gives its orders in the middle of a step of the Job core.
TEST_F(LocalClusterTest, NothingIsToldInsideAnOrder) {
  LocalCluster cluster(loop_, {.program = "/nonexistent", .logs = *logs_});
  spawn(cluster, order(1));
  EXPECT_EQ(events_.pid, 0);
  loop_.run();
  EXPECT_GT(events_.pid, 0);
}

TEST_F(LocalClusterTest, APortInUseIsAnErrorThatNamesIt) {
  LocalCluster cluster(loop_, script(""));
  const uint16_t port = open_door(cluster, "a", 0);
  ASSERT_GT(port, 0) << why_not_;
  EXPECT_EQ(open_door(cluster, "b", port), 0);
  EXPECT_NE(why_not_.find(std::to_string(port)), std::string::npos);
  cluster.close_door("a");
  EXPECT_EQ(open_door(cluster, "b", port), port);
}

TEST_F(LocalClusterTest, ProcessesThatSayThatTheyShareAPortMay) {
  LocalCluster cluster(loop_, script(""));
  const uint16_t port = open_door(cluster, "a", 0, net::PortUse::kShared);
  ASSERT_GT(port, 0) << why_not_;
  EXPECT_EQ(open_door(cluster, "b", port, net::PortUse::kShared), port);
  EXPECT_EQ(open_door(cluster, "c", port), 0);
}

TEST_F(LocalClusterTest, NothingOutlivesTheCluster) {
  {
    LocalCluster cluster(loop_, script("trap '' TERM; while :; do sleep 1; done"));
    events_.stops_when_spawned = true;
    spawn(cluster, order(1));
    loop_.run();
    EXPECT_EQ(kill(static_cast<pid_t>(events_.pid), 0), 0);
  }
  EXPECT_NE(kill(static_cast<pid_t>(events_.pid), 0), 0);
}

// A killed launcher cannot clean up, so the kernel does it.
TEST_F(LocalClusterTest, NoChildOutlivesALauncherThatIsKilled) {
  const LocalCluster::Options options =
      script("trap '' TERM HUP INT; echo started; while :; do sleep 0.1; done");
  int report[2];
  ASSERT_EQ(pipe(report), 0);
  const pid_t launcher = fork();
  if (launcher == 0) {
    net::EventLoop loop;
    LocalCluster cluster(loop, options);
    Events events(loop);
    events.stops_when_spawned = true;
    cluster.report_to(events);
    cluster.spawn(order(1));
    loop.run();
    static_cast<void>(!write(report[1], &events.pid, sizeof events.pid));
    loop.run();
    _exit(0);
  }
  int64_t child = 0;
  ASSERT_EQ(::read(report[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  ASSERT_GT(child, 1);
  wait_for_log("started");
  ASSERT_EQ(kill(launcher, SIGKILL), 0);
  ASSERT_EQ(waitpid(launcher, nullptr, 0), launcher);
  const std::string stat = "/proc/" + std::to_string(child) + "/stat";
  const auto gone = [&] {
    std::ifstream file(stat);
    std::string text;
    std::getline(file, text);
    return text.empty() || text.find(") Z ") != std::string::npos;  // A zombie only waits for init.
  };
  for (int i = 0; i < 500 && !gone(); ++i) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_TRUE(gone());
  close(report[0]);
  close(report[1]);
}

}  // namespace
}  // namespace pdjob::launcher
