#include "launcher/clusters/merged_cluster.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "net/loop/event_loop.h"

namespace pdjob::launcher {
namespace {

// Writes down what it is asked.
struct Asked final : Cluster {
  Asked(std::string node, std::vector<std::string>& into) : name(std::move(node)), log(into) {}
  void report_to(Handler& handler) override { handler_ = &handler; }
  std::vector<Node> nodes() const override { return {{.name = name}}; }
  void open_door(const Door& door) override { log.push_back(name + " opens " + door.name); }
  void close_door(const std::string& door) override { log.push_back(name + " closes " + door); }
  void spawn(const SpawnOrder& order) override {
    log.push_back(name + " spawns " + order.spec.name);
  }
  void signal(const std::string& node, Incarnation incarnation, Signal /*signal*/) override {
    log.push_back(name + " signals " + std::to_string(incarnation.value) + " on " + node);
  }
  void look_at(const std::string& node, Incarnation incarnation) override {
    log.push_back(name + " looks at " + std::to_string(incarnation.value) + " on " + node);
  }
  void read_log(const LogQuestion& question) override {
    log.push_back(name + " reads " + question.process);
  }
  const std::string name;
  std::vector<std::string>& log;
  Handler* handler_ = nullptr;
};

struct Events final : Cluster::Handler {
  void on_cluster_event(const ClusterEvent& event) override { all.push_back(event); }
  std::vector<ClusterEvent> all;
};

class MergedClusterTest : public testing::Test {
 protected:
  MergedClusterTest() {
    std::vector<std::unique_ptr<Cluster>> clusters;
    clusters.push_back(std::make_unique<Asked>("local", log_));
    clusters.push_back(std::make_unique<Asked>("lab/a", log_));
    lab_ = static_cast<Asked*>(clusters.back().get());
    merged_ = std::make_unique<MergedCluster>(loop_, std::move(clusters));
    merged_->report_to(events_);
  }
  static SpawnOrder order(const std::string& node) {
    SpawnOrder order{.node = node, .incarnation = {7}};
    order.spec.name = "decode-0";
    return order;
  }
  void run_loop() {
    loop_.post([this] { loop_.stop(); });
    loop_.run();
  }

  net::EventLoop loop_;
  std::vector<std::string> log_;
  Events events_;
  std::unique_ptr<MergedCluster> merged_;
  Asked* lab_ = nullptr;
};

TEST_F(MergedClusterTest, OrdersGoToTheClusterOfTheNode) {
  merged_->spawn(order("lab/a"));
  merged_->open_door({.name = "router-0", .node = "local"});
  EXPECT_EQ(log_, (std::vector<std::string>{"lab/a spawns decode-0", "local opens router-0"}));
}

TEST_F(MergedClusterTest, ANodeThatJoinsIsReachedUntilItIsLost) {
  lab_->handler_->on_cluster_event(NodeJoined{{.name = "lab/b"}});
  merged_->spawn(order("lab/b"));
  EXPECT_EQ(log_, std::vector<std::string>{"lab/a spawns decode-0"});
  lab_->handler_->on_cluster_event(NodeLost{"lab/b", "gone"});
  merged_->spawn(order("lab/b"));
  EXPECT_EQ(log_.size(), 1U);
  EXPECT_EQ(events_.all.size(), 2U) << "the refusal comes later";
  run_loop();
  ASSERT_EQ(events_.all.size(), 3U);
  EXPECT_TRUE(std::holds_alternative<SpawnFailed>(events_.all.back()));
}

TEST_F(MergedClusterTest, ASignalReachesNoOtherClusterThanTheNodes) {
  merged_->signal("lab/a", {7}, Signal::kKill);
  merged_->look_at("local", {7});
  merged_->signal("lab/b", {7}, Signal::kKill);
  EXPECT_EQ(log_,
            (std::vector<std::string>{"lab/a signals 7 on lab/a", "local looks at 7 on local"}));
}

TEST_F(MergedClusterTest, AClusterCannotSpeakForTheNodeOfAnotherOne) {
  lab_->handler_->on_cluster_event(ProcessExited{{7}, "signal 11", true, "local"});
  lab_->handler_->on_cluster_event(Spawned{{7}, 1, "local"});
  lab_->handler_->on_cluster_event(SpawnFailed{{7}, "no", "local"});
  lab_->handler_->on_cluster_event(ProcessSeen{{7}, {}, "local"});
  lab_->handler_->on_cluster_event(NodeLost{"local", "gone"});
  lab_->handler_->on_cluster_event(NodeJoined{{.name = "local"}, {{{7}, 1}}, {}});
  EXPECT_TRUE(events_.all.empty());
  merged_->signal("local", {7}, Signal::kKill);
  EXPECT_EQ(log_, std::vector<std::string>{"local signals 7 on local"});
  lab_->handler_->on_cluster_event(ProcessExited{{7}, "signal 11", true, "lab/a"});
  EXPECT_EQ(events_.all.size(), 1U);
}

}  // namespace
}  // namespace pdjob::launcher
