#include "worker/foreign/engine_supervisor.h"

#include <gtest/gtest.h>

namespace pdjob::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

class Story {
 public:
  explicit Story(SupervisorRules rules = {.make = "vllm",
                                          .warms_up = true,
                                          .has_metrics = true,
                                          .lease = {},
                                          .start_timeout = seconds(60)})
      : core_(std::move(rules)) {}

  // Returns the effects by their names.
  std::string step(const SupervisorEvent& event) {
    std::vector<SupervisorEffect> effects;
    core_.step(event, now_, effects);
    std::string text;
    for (const SupervisorEffect& effect : effects) {
      text +=
          (text.empty() ? "" : " ") + std::visit([](const auto& one) { return name(one); }, effect);
    }
    return text;
  }
  // Time passes up to the next wakeup.
  std::string wake() {
    now_ = std::max(now_, core_.next_wakeup());
    return step(TimePassed{});
  }
  void pass(Duration time) { now_ += time; }
  void serve() {
    step(TimePassed{});
    wake();
    step(HealthAnswered{Health::kWell});
    step(WarmedUp{});
  }
  // One round of questions.
  std::string poll(Health health, std::optional<EngineSample> sample) {
    wake();
    step(HealthAnswered{health});
    return step(LoadAnswered{true, sample});
  }
  uint64_t standstill() const { return core_.load(now_).standstill_ms; }
  net::WorkerLoad load() const { return core_.load(now_); }
  Instant next_wakeup() const { return core_.next_wakeup(); }
  Instant now() const { return now_; }

 private:
  static std::string name(const StartEngine&) { return "start"; }
  static std::string name(const AskHealth&) { return "health?"; }
  static std::string name(const AskVersion&) { return "version?"; }
  static std::string name(const WarmUp&) { return "warm_up"; }
  static std::string name(const AskLoad&) { return "load?"; }
  static std::string name(const Serve&) { return "serve"; }
  static std::string name(const TerminateEngine&) { return "terminate"; }
  static std::string name(const KillEngine&) { return "kill"; }
  static std::string name(const TellDrained&) { return "drained"; }
  static std::string name(const EndWorker& effect) { return "end(" + effect.error + ")"; }
  static std::string name(const SupervisorNote&) { return "note"; }

  EngineSupervisor core_;
  Instant now_{seconds(1000)};
};

EngineSample busy(uint64_t progress) { return {.running = 1, .progress = progress}; }

TEST(EngineSupervisor, RegistersAnEngineThatIsHealthyAndWarm) {
  Story story;
  EXPECT_EQ(story.step(TimePassed{}), "start");
  EXPECT_EQ(story.wake(), "health?");
  EXPECT_EQ(story.step(HealthAnswered{Health::kSilent}), "");
  EXPECT_EQ(story.wake(), "health?");
  EXPECT_EQ(story.step(HealthAnswered{Health::kUnwell}), "");
  EXPECT_EQ(story.wake(), "health?");
  EXPECT_EQ(story.step(HealthAnswered{Health::kWell}), "note warm_up");
  EXPECT_EQ(story.step(WarmedUp{}), "serve");
  EXPECT_EQ(story.wake(), "health?");
  EXPECT_EQ(story.step(HealthAnswered{Health::kWell}), "load?");
}

SupervisorRules with_feature() {
  return {.make = "vllm",
          .warms_up = true,
          .start_timeout = seconds(60),
          .needs = {{.what = "kv_checksum of engine.features", .since = "0.21.0"}}};
}

TEST(EngineSupervisor, AnEngineThatIsTooOldForAFeatureDoesNotServe) {
  Story story(with_feature());
  story.step(TimePassed{});
  story.wake();
  EXPECT_EQ(story.step(HealthAnswered{Health::kWell}), "version?");
  EXPECT_EQ(story.step(VersionAnswered{"0.20.2"}), "kill");
  EXPECT_EQ(story.step(EngineExited{"signal 9 (Killed)", ""}),
            "end(vllm 0.20.2 is too old for kv_checksum of engine.features, which came with "
            "0.21.0: install a newer one, or do without)");
}

TEST(EngineSupervisor, AnEngineThatIsNewEnoughServes) {
  for (const char* const version : {"0.21.0", "0.21.1rc1", "1.0"}) {
    Story story(with_feature());
    story.step(TimePassed{});
    story.wake();
    EXPECT_EQ(story.step(HealthAnswered{Health::kWell}), "version?");
    EXPECT_EQ(story.step(VersionAnswered{version}), "note warm_up") << version;
    EXPECT_EQ(story.step(VersionAnswered{"0.1"}), "") << "it was asked once";
    EXPECT_EQ(story.step(WarmedUp{}), "serve");
  }
}

TEST(EngineSupervisor, AnEngineOfAnUnknownVersionServes) {
  for (const char* const version : {"", "0.1.dev1+g2b51d23f6"}) {
    Story story(with_feature());
    story.step(TimePassed{});
    story.wake();
    story.step(HealthAnswered{Health::kWell});
    EXPECT_EQ(story.step(VersionAnswered{version}), "note note warm_up") << version;
  }
}

TEST(EngineSupervisor, AnEngineThatDoesNotTellItsVersionIsNotReadyInTime) {
  Story story(with_feature());
  story.step(TimePassed{});
  story.wake();
  story.step(HealthAnswered{Health::kWell});
  EXPECT_EQ(story.wake(), "kill");
}

TEST(EngineSupervisor, AnotherNodeOfAnEngineIsAskedNothingAndEndsWhenItIsToldOrItsEngineEnds) {
  Story story({.make = "vllm", .follows = true, .start_timeout = seconds(60)});
  EXPECT_EQ(story.step(TimePassed{}), "start");
  EXPECT_EQ(story.next_wakeup(), kNever) << "however long the first node takes";
  EXPECT_EQ(story.standstill(), 0U);
  EXPECT_EQ(story.step(DrainAsked{seconds(30)}), "terminate");
  EXPECT_EQ(story.step(EngineExited{"exit code 0", ""}), "drained end()");
  Story other({.make = "vllm", .follows = true});
  other.step(TimePassed{});
  EXPECT_EQ(other.step(EngineExited{"signal 9 (Killed)", ""}),
            "end(vllm ended with signal 9 (Killed) while it served)");
}

TEST(EngineSupervisor, AnEngineThatEndsWhileItStartsEndsTheWorkerWithTheLikelyCause) {
  Story story;
  story.step(TimePassed{});
  EXPECT_EQ(
      story.step(EngineExited{"exit code 1", "a port is in use: 98"}),
      "end(vllm ended with exit code 1 while it started. Likely cause: a port is in use: 98)");
  EXPECT_EQ(story.next_wakeup(), kNever);
}

TEST(EngineSupervisor, AnEngineThatIsNotReadyInTimeIsKilled) {
  Story story;
  story.step(TimePassed{});
  story.wake();
  story.pass(seconds(60));
  EXPECT_EQ(story.step(TimePassed{}), "kill");
  EXPECT_EQ(story.step(EngineExited{"signal 9 (Killed)", ""}),
            "end(vllm was not ready within 60 s)");
}

TEST(EngineSupervisor, AnEngineThatWaitsForCoresHasMoreTimeToStart) {
  Story story;
  story.step(TimePassed{});
  story.wake();
  story.pass(seconds(59));
  story.step(EngineStarved{seconds(30)});
  story.pass(seconds(29));
  EXPECT_EQ(story.step(TimePassed{}), "");
  story.pass(seconds(2));
  EXPECT_EQ(story.step(TimePassed{}), "kill");
}

TEST(EngineSupervisor, TimeInWhichTheEngineWaitedForCoresIsNoStandstill) {
  Story story;
  story.serve();
  story.poll(Health::kWell, busy(1));
  story.poll(Health::kWell, busy(1));
  const uint64_t before = story.standstill();
  for (int i = 0; i < 10; ++i) {
    story.pass(seconds(2));
    story.step(EngineStarved{seconds(2)});
  }
  EXPECT_EQ(story.standstill(), before);
  story.pass(seconds(3));
  EXPECT_EQ(story.standstill(), before + 3000);
}

TEST(EngineSupervisor, AnEngineThatFailsItsFirstRequestIsKilled) {
  Story story;
  story.step(TimePassed{});
  story.wake();
  story.step(HealthAnswered{Health::kWell});
  EXPECT_EQ(story.step(WarmedUp{"status 500"}), "kill");
  EXPECT_EQ(story.step(EngineExited{"signal 9 (Killed)", ""}),
            "end(vllm failed its first request: status 500)");
}

TEST(EngineSupervisor, AnEngineThatWorksWithoutProgressStandsStill) {
  Story story;
  story.serve();
  story.poll(Health::kWell, busy(10));
  EXPECT_EQ(story.standstill(), 0U);
  story.poll(Health::kWell, busy(10));
  story.pass(seconds(7));
  EXPECT_EQ(story.standstill(), 7000U);
  story.poll(Health::kWell, busy(11));
  EXPECT_EQ(story.standstill(), 0U);
}

TEST(EngineSupervisor, AnEngineIsJudgedByItsOwnPauses) {
  Story story;
  story.serve();
  story.poll(Health::kWell, EngineSample{.running = 1, .progress = 10});
  EXPECT_EQ(story.load().patience_ms, 0U) << "nothing is known yet";
  story.poll(Health::kWell, EngineSample{.running = 1, .progress = 10});
  story.pass(seconds(20));
  story.poll(Health::kWell, EngineSample{.running = 1, .progress = 11});
  EXPECT_EQ(story.load().patience_ms, 3 * 20'500U - 3 * 500U) << "the pause was seen for 20 s";
}

TEST(EngineSupervisor, AnEngineThatHangsBeforeItsFirstStepStandsStill) {
  Story story;
  story.serve();
  story.poll(Health::kWell, EngineSample{.progress = 10});
  story.poll(Health::kWell, EngineSample{.in_flight = 1, .progress = 10});
  story.pass(seconds(7));
  EXPECT_EQ(story.standstill(), 7000U);
}

TEST(EngineSupervisor, AChunkOfALongPromptIsProgress) {
  Story story;
  story.serve();
  for (uint64_t chunk = 1; chunk <= 100; ++chunk) {
    story.pass(seconds(3));
    story.poll(Health::kWell, EngineSample{.running = 1, .kv_used = chunk, .progress = 10});
    EXPECT_EQ(story.standstill(), 0U);
  }
}

TEST(EngineSupervisor, AnEngineWithoutTheNamedCountersIsNotJudgedByThem) {
  Story story;
  story.serve();
  for (int i = 0; i < 100; ++i) {
    story.poll(Health::kWell, EngineSample{.running = 1});
  }
  EXPECT_EQ(story.standstill(), 0U);
}

TEST(EngineSupervisor, AnIdleEngineDoesNotStandStill) {
  Story story;
  story.serve();
  story.poll(Health::kWell, EngineSample{});
  story.pass(seconds(100));
  EXPECT_EQ(story.standstill(), 0U);
}

TEST(EngineSupervisor, AnEngineThatIsSlowToAnswerStandsStillOnlyUntilItAnswers) {
  Story story;
  story.serve();
  story.poll(Health::kWell, busy(10));
  EXPECT_EQ(story.wake(), "health?");
  story.pass(seconds(5));
  EXPECT_EQ(story.standstill(), 5000U);
  EXPECT_EQ(story.step(HealthAnswered{Health::kWell}), "load?") << "nothing is cancelled";
  story.step(LoadAnswered{true, busy(11)});
  EXPECT_EQ(story.standstill(), 0U);
}

TEST(EngineSupervisor, AnEngineThatAnswersNothingStandsStillSinceTheFirstQuestion) {
  Story story;
  story.serve();
  story.wake();
  for (int i = 0; i < 3; ++i) {
    story.pass(seconds(30));
    story.step(HealthAnswered{Health::kSilent});
    story.pass(seconds(30));
    story.step(LoadAnswered{});
    story.wake();
  }
  EXPECT_GE(story.standstill(), 180'000U);
}

TEST(EngineSupervisor, AnUnhealthyEngineStandsStill) {
  Story story;
  story.serve();
  story.poll(Health::kUnwell, EngineSample{});
  story.pass(seconds(3));
  EXPECT_EQ(story.standstill(), 3000U);
  story.poll(Health::kWell, EngineSample{});
  EXPECT_EQ(story.standstill(), 0U);
}

TEST(EngineSupervisor, AnEngineThatAnswersWithoutMetricsDoesNotStandStill) {
  Story story;
  story.serve();
  story.poll(Health::kWell, std::nullopt);
  story.pass(seconds(100));
  EXPECT_EQ(story.standstill(), 0U);
}

TEST(EngineSupervisor, ReportsItsLoad) {
  Story story;
  story.serve();
  story.poll(
      Health::kWell,
      EngineSample{
          .running = 3, .queued = 2, .kv_used = 7, .kv_max = 9, .progress = 1, .kv_received = 5});
  const net::WorkerLoad load = story.load();
  EXPECT_EQ(load.requests_running, 3U);
  EXPECT_EQ(load.requests_queued, 2U);
  EXPECT_EQ(load.kv_rows_used, 7U);
  EXPECT_EQ(load.kv_rows_max, 9U);
  EXPECT_EQ(load.kv_received, 5U);
}

TEST(EngineSupervisor, ADrainWaitsForTheRequests) {
  Story story;
  story.serve();
  story.poll(Health::kWell, busy(1));
  EXPECT_EQ(story.step(DrainAsked{minutes(2)}), "");
  EXPECT_EQ(story.poll(Health::kWell, busy(2)), "");
  EXPECT_EQ(story.poll(Health::kWell, EngineSample{.progress = 3}), "");
  EXPECT_EQ(story.poll(Health::kWell, EngineSample{.progress = 3}), "terminate");
  EXPECT_EQ(story.step(EngineExited{"exit code 0", ""}), "drained end()");
}

TEST(EngineSupervisor, ADrainOfAPrefillEngineWaitsForItsLease) {
  Story story({.make = "vllm", .has_metrics = true, .lease = seconds(30)});
  story.step(TimePassed{});
  story.wake();
  EXPECT_EQ(story.step(HealthAnswered{Health::kWell}), "serve");
  story.poll(Health::kWell, busy(1));
  story.step(DrainAsked{minutes(2)});
  story.poll(Health::kWell, EngineSample{.progress = 2});
  const Instant quiet = story.now();
  for (int i = 0; i < 1000; ++i) {
    if (story.poll(Health::kWell, EngineSample{.progress = 2}) == "terminate") {
      break;
    }
  }
  EXPECT_GE(story.now() - quiet, seconds(30));
  EXPECT_LE(story.now() - quiet, seconds(31));
}

TEST(EngineSupervisor, APrefillEngineThatWasIdleForItsLeaseDrainsAtOnce) {
  Story story({.make = "vllm", .has_metrics = true, .lease = seconds(30)});
  story.step(TimePassed{});
  story.wake();
  story.step(HealthAnswered{Health::kWell});
  story.poll(Health::kWell, EngineSample{});
  story.pass(seconds(40));
  story.poll(Health::kWell, EngineSample{});
  story.step(DrainAsked{minutes(2)});
  EXPECT_EQ(story.poll(Health::kWell, EngineSample{}), "");
  EXPECT_EQ(story.poll(Health::kWell, EngineSample{}), "terminate");
}

TEST(EngineSupervisor, AJobThatEndsWaitsForNoLease) {
  Story story({.make = "vllm", .has_metrics = true, .lease = minutes(1)});
  story.step(TimePassed{});
  story.wake();
  story.step(HealthAnswered{Health::kWell});
  story.poll(Health::kWell, busy(1));
  story.step(DrainAsked{seconds(30)});
  EXPECT_EQ(story.poll(Health::kWell, EngineSample{.progress = 2}), "");
  EXPECT_EQ(story.poll(Health::kWell, EngineSample{.progress = 2}), "terminate");
}

TEST(EngineSupervisor, ADrainWaitsForARequestThatTheEngineDoesNotCountYet) {
  Story story;
  story.serve();
  story.poll(Health::kWell, EngineSample{.in_flight = 1});
  story.step(DrainAsked{minutes(2)});
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(story.poll(Health::kWell, EngineSample{.in_flight = 1}), "");
  }
  EXPECT_EQ(story.poll(Health::kWell, EngineSample{}), "");
  EXPECT_EQ(story.poll(Health::kWell, EngineSample{}), "terminate");
}

TEST(EngineSupervisor, AnEngineThatIgnoresItsTerminationIsKilledAndThenItsGuard) {
  Story story;
  story.serve();
  story.poll(Health::kWell, EngineSample{});
  story.step(DrainAsked{minutes(2)});
  story.poll(Health::kWell, EngineSample{});
  EXPECT_EQ(story.poll(Health::kWell, EngineSample{}), "terminate");
  EXPECT_EQ(story.wake(), "kill");
  EXPECT_EQ(story.wake(), "kill");
  EXPECT_EQ(story.step(EngineExited{"signal 9 (Killed)", ""}), "drained end()");
}

TEST(EngineSupervisor, ADrainWhileItStartsTerminatesIt) {
  Story story;
  story.step(TimePassed{});
  EXPECT_EQ(story.step(DrainAsked{minutes(2)}), "terminate");
  EXPECT_EQ(story.step(EngineExited{"signal 15 (Terminated)", ""}), "drained end()");
}

TEST(EngineSupervisor, TheEndKillsAtOnce) {
  Story story;
  story.serve();
  EXPECT_EQ(story.step(EndAsked{}), "kill");
  EXPECT_EQ(story.step(EngineExited{"signal 9 (Killed)", ""}), "end()");
  EXPECT_EQ(story.step(EndAsked{}), "");
}

TEST(EngineSupervisor, AnEngineWithoutMetricsFinishesItsRequestsByItself) {
  Story story({.make = "own"});
  story.step(TimePassed{});
  story.wake();
  story.step(HealthAnswered{Health::kWell});
  EXPECT_EQ(story.wake(), "health?");
  EXPECT_EQ(story.step(HealthAnswered{Health::kWell}), "");
  EXPECT_EQ(story.step(DrainAsked{minutes(2)}), "terminate");
  EXPECT_EQ(story.next_wakeup(), kNever) << "the drain's own deadline ends it";
}

}  // namespace
}  // namespace pdjob::worker
