#include "launcher/ray/shim_process.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

using std::chrono::seconds;

// A double of the package `ray`: the real shim runs on it, where Ray is not installed.
class ShimProcessTest : public ::testing::Test, protected ShimProcess::Handler {
 protected:
  void start(const std::string& double_of_ray) {
    const char* test_folder = PDJOB_TEST_DIR;
    auto started = ShimProcess::start(
        loop,
        {.python = "python3",
         .environment = {{"PYTHONPATH", std::string(test_folder) + "/" + double_of_ray}}},
        *this);
    ASSERT_TRUE(started) << started.error().message;
    shim = std::move(*started);
  }
  void run_until(size_t count) {
    lines_wanted = count;
    const net::TimerId timer = loop.call_at(loop.now() + seconds(20), [this] { loop.stop(); });
    loop.run();
    loop.cancel(timer);
  }
  template <class Line>
  const Line* find() const {
    for (const ShimLine& line : lines) {
      if (const auto* found = std::get_if<Line>(&line)) {
        return found;
      }
    }
    return nullptr;
  }

  void on_shim_line(const ShimLine& line) override {
    lines.push_back(line);
    if (lines.size() >= lines_wanted) {
      loop.stop();
    }
  }
  void on_shim_gone(const std::string& why) override {
    gone = why;
    loop.stop();
  }

  net::EventLoop loop;
  std::unique_ptr<ShimProcess> shim;
  std::vector<ShimLine> lines;
  size_t lines_wanted = 0;
  std::string gone;
};

TEST_F(ShimProcessTest, TheShimSaysHelloOpensAndAnswers) {
  start("ray_double");
  run_until(1);
  ASSERT_NE(find<ShimHello>(), nullptr) << gone;
  EXPECT_EQ(find<ShimHello>()->protocol, kShimProtocol);
  EXPECT_EQ(find<ShimHello>()->ray, "2.60.0");
  shim->send(1, Release{"too early"});
  run_until(2);
  ASSERT_NE(find<ShimRefused>(), nullptr);
  EXPECT_EQ(find<ShimRefused>()->id, 1U);
  shim->send(2, OpenHome{.name = "a", .address = "x:1", .job = "j", .lease = seconds(5)});
  run_until(5);
  ASSERT_NE(find<ShimDone>(), nullptr) << gone;
  ASSERT_NE(find<RayNodeSeen>(), nullptr);
  EXPECT_EQ(find<RayNodeSeen>()->cluster, "a");
  ASSERT_NE(find<HomeSeen>(), nullptr);
  EXPECT_TRUE(find<HomeSeen>()->reachable);
}

TEST_F(ShimProcessTest, SaysWhyThereIsNoRay) {
  start("no_ray_double");
  run_until(1);
  ASSERT_NE(find<ShimHasNoRay>(), nullptr) << gone;
  EXPECT_NE(find<ShimHasNoRay>()->text.find("no Ray in this double"), std::string::npos);
  run_until(99);
  EXPECT_EQ(gone, "the shim ended: exit code 1");
}

TEST_F(ShimProcessTest, IsEndedWhenTheShimSpeaksNonsense) {
  start("babbling_double");
  run_until(99);
  EXPECT_EQ(gone, "the shim's line: not a JSON object");
}

TEST_F(ShimProcessTest, WaitsWithoutTheLoop) {
  start("ray_double");
  for (int looks = 0; lines.empty() && looks < 200; ++looks) {
    shim->wait(std::chrono::milliseconds(100));
  }
  EXPECT_NE(find<ShimHello>(), nullptr);
}

TEST(ShimProcess, RefusesAnInterpreterThatIsNotThere) {
  net::EventLoop loop;
  struct Deaf final : ShimProcess::Handler {
    void on_shim_line(const ShimLine&) override {}
    void on_shim_gone(const std::string&) override {}
  };
  Deaf handler;
  EXPECT_FALSE(ShimProcess::start(loop, {.python = "/no/such/python"}, handler));
}

}  // namespace
}  // namespace pdjob::launcher
