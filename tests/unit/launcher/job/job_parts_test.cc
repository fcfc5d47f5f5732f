// A process that is an engine over several nodes: all its parts start, end and are replaced as one.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "launcher/job/job.h"

namespace pdjob::launcher {
namespace {

using std::chrono::seconds;

const Demand kWide{.parts = 2, .cores = 1, .gpus = 2, .role = "decode", .model = "m"};
const Demand kOne{.cores = 1, .role = "prefill", .model = "m"};

Node node(const std::string& name) { return {.name = name, .cores = 8, .gpus = {"0", "1"}}; }

class JobParts : public testing::Test {
 protected:
  JobParts()
      : job_(std::make_unique<Job>(
            std::vector<ProcessPlan>{
                {"router-0", net::Role::kRouter, "", {}, {.node = "a"}},
                {"prefill-0", net::Role::kPrefill, "m", kOne, {.node = "a"}},
                {"decode-0",
                 net::Role::kDecode,
                 "m",
                 kWide,
                 {.node = "a", .gpus = {"0", "1"}, .more = {{"b", {"0", "1"}}}}}},
            JobTiming{}, "n",
            JobSetting{.nodes = {node("a"), node("b"), node("c")}, .launcher = 1})) {}

  std::vector<Effect> tell(const Event& event) {
    std::vector<Effect> effects;
    job_->step(event, now_, effects);
    return effects;
  }
  const Process& decode() const { return *job_->find("decode-0"); }
  void start() {
    tell(Started{});
    for (const Process& process : job_->processes()) {
      for (const PlacePart& part : process.place.parts()) {
        tell(Spawned{process.incarnation, part.node == "a" ? 10 : 20, part.node});
      }
      tell(MessageArrived{process.name,
                          net::Registered{.worker = {.engine_id = process.engine_id, .port = 1}}});
    }
  }
  std::vector<Effect> pass(Duration duration) {
    now_ += duration;
    return tell(TimePassed{});
  }

  // "kill a, kill b"
  static std::string signals(const std::vector<Effect>& effects) {
    std::string text;
    for (const Effect& effect : effects) {
      if (const auto* signal = std::get_if<SendSignal>(&effect)) {
        text += (text.empty() ? "" : ", ") + std::string(to_string(signal->signal)) + " " +
                signal->node;
      }
    }
    return text;
  }
  // "a+b" of the process that starts.
  static std::string spawned(const std::vector<Effect>& effects) {
    std::string text;
    for (const Effect& effect : effects) {
      const auto* const spawn = std::get_if<Spawn>(&effect);
      for (const PlacePart& part :
           spawn == nullptr ? std::vector<PlacePart>() : spawn->place.parts()) {
        text += (text.empty() ? "" : "+") + part.node;
      }
    }
    return text;
  }

  std::unique_ptr<Job> job_;
  Instant now_{seconds(1000)};
};

TEST_F(JobParts, OneStartHasAllPartsAndThePidOfTheFirst) {
  start();
  EXPECT_EQ(decode().place.more.size(), 1U);
  EXPECT_EQ(decode().pid, 10);
}

TEST_F(JobParts, TheDeathOfOnePartEndsAllAndTheyStartAgainTogether) {
  start();
  const auto effects = tell(ProcessExited{decode().incarnation, "signal 9 (Killed)", true, "b"});
  EXPECT_EQ(signals(effects), "Kill a, Kill b");
  EXPECT_EQ(decode().state, ProcessState::kBackoff);
  EXPECT_EQ(decode().last_exit, "signal 9 (Killed) on node b");
  const Incarnation dead = decode().incarnation;
  EXPECT_EQ(spawned(pass(seconds(1))), "a+b");
  EXPECT_NE(decode().incarnation, dead);
  tell(ProcessExited{dead, "signal 9 (Killed)", false, "a"});
  EXPECT_EQ(decode().state, ProcessState::kStarting) << "its old parts say nothing of the new ones";
}

TEST_F(JobParts, APartThatCannotStartEndsTheOthers) {
  tell(Started{});
  EXPECT_EQ(signals(tell(SpawnFailed{decode().incarnation, "no port", "b"})), "Kill a, Kill b");
  EXPECT_EQ(decode().last_exit, "no port on node b");
}

TEST_F(JobParts, ALostNodeEndsTheirOtherPartsAndAnotherNodeTakesItsPlace) {
  start();
  EXPECT_EQ(signals(tell(NodeLost{"b", "no heartbeat"})), "Kill a");
  EXPECT_EQ(spawned(pass(seconds(1))), "a+c");
}

TEST_F(JobParts, WithoutEnoughNodesAllOfItWaits) {
  start();
  tell(NodeLost{"b", "no heartbeat"});
  tell(NodeLost{"c", "no heartbeat"});
  EXPECT_EQ(spawned(pass(seconds(1))), "");
  EXPECT_EQ(decode().state, ProcessState::kWaiting);
  EXPECT_TRUE(decode().place.node.empty()) << "it holds no part of a place";
  EXPECT_EQ(spawned(tell(NodeJoined{node("d"), {}, {}})), "a+d");
}

TEST_F(JobParts, WhatEndsByItselfAfterADrainTakesTheOthersAlong) {
  start();
  tell(StopAsked{0});
  EXPECT_EQ(signals(tell(ProcessExited{decode().incarnation, "exit code 0", false, "a"})),
            "Kill a, Kill b");
}

TEST_F(JobParts, ANewLauncherKeepsThemOnlyIfAllRun) {
  start();
  const JobRecord record = job_->record();
  const auto next = [&] {
    job_ = std::make_unique<Job>(std::vector<ProcessPlan>{}, JobTiming{}, "n",
                                 JobSetting{.launcher = 2, .record = record});
    tell(Started{});
    std::vector<RunningProcess> on_a;
    for (const Process& process : job_->processes()) {
      on_a.push_back({process.incarnation, 10});
    }
    EXPECT_EQ(signals(tell(NodeJoined{node("a"), on_a, {}})), "");
    tell(NodeJoined{node("c"), {}, {}});
  };
  next();
  EXPECT_EQ(signals(tell(NodeJoined{node("b"), {{decode().incarnation, 20}}, {}})), "");
  EXPECT_TRUE(decode().alive());
  EXPECT_EQ(decode().pid, 10);
  next();
  EXPECT_EQ(signals(tell(NodeJoined{node("b"), {}, {}})), "Kill a, Kill b");
  EXPECT_EQ(decode().state, ProcessState::kBackoff);
}

}  // namespace
}  // namespace pdjob::launcher
