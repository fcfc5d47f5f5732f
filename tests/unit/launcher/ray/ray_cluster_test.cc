#include "launcher/ray/ray_cluster.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "net/loop/event_loop.h"

namespace pdjob::launcher {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

// The agents' end of a RayCluster. It keeps what it is asked for.
class AgentsDouble final : public Cluster {
 public:
  explicit AgentsDouble(std::vector<std::string>& asked) : asked_(asked) {}
  AgentsDouble(const AgentsDouble&) = delete;
  AgentsDouble& operator=(const AgentsDouble&) = delete;
  ~AgentsDouble() override { asked_.push_back("gone"); }
  void report_to(Handler& handler) override { handler_ = &handler; }
  std::vector<Node> nodes() const override { return {{.name = "a/0", .cluster = "a"}}; }
  void open_door(const Door& door) override { asked_.push_back("open " + door.name); }
  void close_door(const std::string& name) override { asked_.push_back("close " + name); }
  void spawn(const SpawnOrder& order) override { asked_.push_back("spawn " + order.spec.name); }
  void signal(const std::string& node, Incarnation, Signal) override {
    asked_.push_back("signal on " + node);
  }
  void look_at(const std::string& node, Incarnation) override {
    asked_.push_back("look on " + node);
  }
  void read_log(const LogQuestion& question) override {
    asked_.push_back("log of " + question.process);
  }
  void tell(const ClusterEvent& event) { handler_->on_cluster_event(event); }

 private:
  std::vector<std::string>& asked_;
  Handler* handler_ = nullptr;
};

// The real shim on a double of Ray, with a double of an agent.
class RayClusterTest : public ::testing::Test, protected Cluster::Handler {
 protected:
  RayClusterTest()
      : folder_(fs::temp_directory_path() / ("pdjob-ray-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
    fs::remove(agent_file());
    RayCluster::Options options{
        .setting = {.job = "j-1",
                    .address = "home:1",
                    .clusters = {{.name = "a", .share = {.cpus = 3}}}},
        .shim = {.python = "python3",
                 .environment = {{"PYTHONPATH", PDJOB_TEST_DIR "/ray_double"},
                                 {"HOME", folder_},
                                 {"PATH", std::getenv("PATH")}}},
    };
    // The shim, and so the agents of this double, hide variables that begin with PDJOB_.
    const fs::path program = folder_ / "agent";
    std::ofstream(program) << "#!/bin/sh\nPDJOB_AGENT_DOUBLE=" << agent_file().string()
                           << " exec " PDJOB_TEST_DIR "/agent_double.sh \"$@\"\n";
    fs::permissions(program, fs::perms::owner_all);
    options.agents["a"] = {
        .program = program, .endpoint = "10.0.0.1:7", .key = "hush", .share = {.cpus = 3}};
    auto agents = std::make_unique<AgentsDouble>(asked);
    agents_end = agents.get();
    cluster = std::make_unique<RayCluster>(loop, std::move(agents), std::move(options));
    cluster->report_to(*this);
  }
  ~RayClusterTest() override {
    cluster.reset();
    // The double of an agent takes its file away when it ends, which may be in the middle of this.
    const Instant end = loop.exact_now() + seconds(30);
    std::error_code failed;
    do {
      fs::remove_all(folder_, failed);
    } while (failed && loop.exact_now() < end);
    EXPECT_FALSE(failed) << failed.message();
  }

  fs::path agent_file() const { return folder_ / "agent-started"; }
  bool run_until(const std::function<bool()>& done) {
    const Instant end = loop.now() + seconds(30);
    while (!done() && loop.now() < end) {
      const net::TimerId timer =
          loop.call_at(loop.now() + milliseconds(20), [this] { loop.stop(); });
      loop.run();
      loop.cancel(timer);
    }
    return done();
  }
  void on_cluster_event(const ClusterEvent& event) override { events.push_back(event); }

  net::EventLoop loop;
  std::vector<std::string> asked;
  std::vector<ClusterEvent> events;
  AgentsDouble* agents_end = nullptr;
  std::unique_ptr<RayCluster> cluster;

 private:
  const fs::path folder_;
};

TEST_F(RayClusterTest, AnAgentIsStartedWithItsKeyItsShareAndTheLabelsOfItsNode) {
  ASSERT_TRUE(run_until([&] { return fs::exists(agent_file()); }));
  std::ifstream file(agent_file());
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word);) {
    words.push_back(word);
  }
  const std::string log_dir = agent_file().parent_path() / ".local/state/pdjob/ray/j-1-a.0";
  EXPECT_EQ(words, (std::vector<std::string>{"agent", "--join", "10.0.0.1:7", "--key-fd", "0",
                                             "--name", "0", "--log-dir", log_dir, "--cores", "3",
                                             "--granted", "--label=zone=west", "secret=hush"}));
}

TEST_F(RayClusterTest, EverythingElseGoesToTheAgentsAndTheirEventsToTheJob) {
  EXPECT_EQ(cluster->nodes().size(), 1U);
  cluster->open_door({.name = "d"});
  cluster->close_door("d");
  SpawnOrder order;
  order.spec.name = "w";
  cluster->spawn(order);
  cluster->signal("a/0", {1}, Signal::kKill);
  cluster->read_log({.process = "w"});
  EXPECT_EQ(asked, (std::vector<std::string>{"open d", "close d", "spawn w", "signal on a/0",
                                             "log of w"}));
  agents_end->tell(NodeJoined{{.name = "a/0"}});
  ASSERT_EQ(events.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<NodeJoined>(events[0]));
}

TEST_F(RayClusterTest, AnAgentThatIsLostIsStartedAgain) {
  ASSERT_TRUE(run_until([&] { return fs::exists(agent_file()); }));
  agents_end->tell(NodeJoined{{.name = "a/0"}});
  fs::remove(agent_file());
  agents_end->tell(NodeLost{.name = "a/0"});
  EXPECT_TRUE(run_until([&] { return fs::exists(agent_file()); }));
}

TEST_F(RayClusterTest, ItsEndEndsTheAgentsFirstAndThenItsReservations) {
  ASSERT_TRUE(run_until([&] { return fs::exists(agent_file()); }));
  cluster.reset();
  EXPECT_EQ(asked.back(), "gone");
  // The double of Ray is gone, and with it the other end of the agent's stdin.
  EXPECT_TRUE(run_until([&] { return !fs::exists(agent_file()); }));
}

}  // namespace
}  // namespace pdjob::launcher
