#include "launcher/job/supervision.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

const JobTiming kTiming{.start_timeout = seconds(60),
                        .drain_timeout = seconds(30),
                        .lease = seconds(7),
                        .heartbeat_timeout = seconds(3),
                        .hang_timeout = seconds(15),
                        .progress_timeout = seconds(60),
                        .restart = {.attempts = 2}};

class SupervisionTest : public testing::Test {
 protected:
  SupervisionTest() { supervision_.start(process_, {}, turn_); }

  void register_it() {
    supervision_.registered(
        process_, {.worker = {.name = "other", .engine_id = process_.engine_id, .port = 1}}, turn_);
  }
  void prove_it() {
    register_it();
    supervision_.proved(process_, turn_);
    effects_.clear();
  }
  void pass_until_due() {
    ASSERT_NE(supervision_.due(process_), kNever);
    now_ = std::max(now_, supervision_.due(process_));
    turn_.now = now_;
    supervision_.time_passed(process_, turn_);
  }
  void beat_regularly() {
    for (int i = 0; i < 10; ++i) {
      now_ += milliseconds(500);
      turn_.now = now_;
      supervision_.beat(process_, {.waited_us = waited_us_}, turn_);
    }
  }
  // Until it is killed.
  void drain_while_it_beats() {
    supervision_.dismiss(process_, Fate::kEnd, turn_);
    supervision_.drain(process_, turn_);
    while (!process_.killed) {
      now_ = std::min(now_ + milliseconds(500), supervision_.due(process_));
      turn_.now = now_;
      supervision_.time_passed(process_, turn_);
      supervision_.beat(process_, {}, turn_);
    }
  }
  // Two heartbeats in a row that say so.
  void stand_still(Duration still, Duration patience) {
    const auto whole = [](Duration time) { return static_cast<uint64_t>(time / milliseconds(1)); };
    for (int i = 0; i < 2; ++i) {
      supervision_.beat(process_,
                        {.load = {.standstill_ms = whole(still), .patience_ms = whole(patience)}},
                        turn_);
    }
  }
  void seen(VitalSigns signs) {
    signs.at_ms = static_cast<uint64_t>(now_.time_since_epoch() / milliseconds(1));
    supervision_.seen(process_, signs, turn_);
  }
  void suspect_and_look(const VitalSigns& first, const VitalSigns& second) {
    prove_it();
    beat_regularly();
    pass_until_due();
    seen(first);
    pass_until_due();
    seen(second);
  }
  // It is looked at whenever that is due. Its first thread waits for this share of the time.
  void stay_silent(Duration time, double share) {
    const Instant end = now_ + time;
    while (!process_.killed && supervision_.due(process_) <= end) {
      const size_t looks = count<LookAt>();
      const Instant before = now_;
      pass_until_due();
      waited_us_ += static_cast<uint64_t>(share * 1e6 * pdjob::seconds(now_ - before));
      if (count<LookAt>() > looks) {
        seen({.turns = 7, .waited_us = waited_us_, .all_waited_us = waited_us_});
      }
    }
    waited_us_ += static_cast<uint64_t>(share * 1e6 * pdjob::seconds(end - now_));
    now_ = end;
  }
  void beat_for(Duration time, uint16_t starved_permille) {
    for (const Instant end = now_ + time; now_ < end;) {
      now_ += milliseconds(500);
      turn_.now = now_;
      supervision_.beat(process_, {.starved_permille = starved_permille}, turn_);
    }
  }
  ReportStarved report() const {
    for (const Effect& effect : effects_) {
      if (const auto* found = std::get_if<ReportStarved>(&effect)) {
        return *found;
      }
    }
    return {};
  }
  template <class T>
  size_t count() const {
    size_t found = 0;
    for (const Effect& effect : effects_) {
      found += std::holds_alternative<T>(effect) ? 1 : 0;
    }
    return found;
  }
  template <class M>
  bool sent() const {
    for (const Effect& effect : effects_) {
      const Send* send = std::get_if<Send>(&effect);
      if (send != nullptr && std::holds_alternative<M>(send->message)) {
        return true;
      }
    }
    return false;
  }

  static Process planned() {
    Process process;
    process.name = "decode-0";
    process.role = net::Role::kDecode;
    process.restart_policy = RestartPolicy(kTiming.restart);
    return process;
  }

  Supervision supervision_{kTiming, "n"};
  Process process_ = planned();
  Instant now_{seconds(1000)};
  uint64_t waited_us_ = 0;  // By its first thread.
  std::vector<Effect> effects_;
  Turn turn_{now_, effects_};
};

TEST_F(SupervisionTest, ARegistrationTellsNeitherNameNorRoleNorStanding) {
  register_it();
  EXPECT_EQ(process_.entry.name, "decode-0");
  EXPECT_EQ(process_.entry.role, net::Role::kDecode);
  EXPECT_EQ(process_.entry.standing, net::Standing::kProving);
}

TEST_F(SupervisionTest, AProcessThatDoesNotRegisterIsLookedAtAndKilledAndSaysWhy) {
  pass_until_due();
  EXPECT_EQ(now_, Instant(seconds(1060)));
  EXPECT_EQ(count<LookAt>(), 1U);
  EXPECT_EQ(count<SendSignal>(), 0U);
  while (!process_.killed) {
    seen({.asleep = true});
    pass_until_due();
  }
  EXPECT_EQ(now_, Instant(seconds(1062)));
  EXPECT_EQ(count<SendSignal>(), 1U);
  supervision_.died(process_, "signal 9 (Killed)", net::LossCause::kOutside, turn_);
  EXPECT_EQ(process_.last_exit, "did not register in time, then signal 9 (Killed)");
}

TEST_F(SupervisionTest, SilenceIsSuspectedAtFirstAndKilledLater) {
  prove_it();
  pass_until_due();
  EXPECT_EQ(now_, Instant(seconds(1003)));
  EXPECT_TRUE(process_.suspected);
  EXPECT_EQ(count<SendSignal>(), 0U);
  while (now_ < Instant(seconds(1015))) {
    EXPECT_EQ(count<SendSignal>(), 0U);
    pass_until_due();
  }
  EXPECT_EQ(now_, Instant(seconds(1015)));
  EXPECT_EQ(count<SendSignal>(), 1U);
  EXPECT_EQ(supervision_.due(process_), kNever);
}

TEST_F(SupervisionTest, WhoSentHeartbeatsRegularlyIsSuspectedSooner) {
  prove_it();
  beat_regularly();
  const Instant last = now_;
  pass_until_due();
  EXPECT_EQ(now_, last + milliseconds(1250));
  EXPECT_TRUE(process_.suspected);
}

TEST_F(SupervisionTest, ASuspectThatSleepsThroughTwoLooksIsKilled) {
  prove_it();
  beat_regularly();
  pass_until_due();
  EXPECT_EQ(count<LookAt>(), 1U);
  seen({.asleep = true, .turns = 7});
  EXPECT_EQ(count<SendSignal>(), 0U);
  pass_until_due();
  EXPECT_EQ(count<LookAt>(), 2U);
  seen({.asleep = true, .turns = 7});
  EXPECT_EQ(count<SendSignal>(), 1U);
  EXPECT_EQ(process_.killed_for, "silent");
}

TEST_F(SupervisionTest, AStoppedSuspectIsKilledAndSaysSo) {
  suspect_and_look({.asleep = true, .stopped = true, .turns = 7},
                   {.asleep = true, .stopped = true, .turns = 7});
  EXPECT_EQ(count<SendSignal>(), 1U);
  EXPECT_EQ(process_.killed_for, "stopped");
}

TEST_F(SupervisionTest, ASuspectThatRanBetweenTwoLooksLives) {
  suspect_and_look({.asleep = true, .turns = 7}, {.asleep = true, .turns = 8});
  EXPECT_EQ(count<SendSignal>(), 0U);
}

TEST_F(SupervisionTest, ASuspectThatWaitsForACoreIsStarvedAndLives) {
  suspect_and_look({.asleep = false, .turns = 7}, {.asleep = false, .turns = 7});
  EXPECT_EQ(count<SendSignal>(), 0U);
}

// Its first thread may sleep because it waits for one that has no core.
TEST_F(SupervisionTest, ASuspectThatSleepsWhileItsOtherThreadsWaitForCoresLives) {
  suspect_and_look({.asleep = true, .turns = 7},
                   {.asleep = true, .turns = 7, .all_waited_us = 500'000});
  EXPECT_EQ(count<SendSignal>(), 0U);
}

TEST_F(SupervisionTest, AStoppedSuspectIsKilledWhateverItWaitedFor) {
  suspect_and_look({.asleep = true, .stopped = true, .turns = 7},
                   {.asleep = true, .stopped = true, .turns = 7, .all_waited_us = 500'000});
  EXPECT_EQ(process_.killed_for, "stopped");
}

TEST_F(SupervisionTest, ASilentProcessThatAlwaysWaitsForACoreIsNeverKilled) {
  prove_it();
  beat_regularly();
  stay_silent(minutes(10), 1.0);
  EXPECT_FALSE(process_.killed);
  EXPECT_TRUE(process_.starvation.starved());
}

// A CPU quota may hold it back for minutes. The kernel counts a wait when it is over.
TEST_F(SupervisionTest, ASilentProcessWhoseWaitForACoreDoesNotEndIsNeverKilled) {
  prove_it();
  beat_regularly();
  while (now_ < Instant(seconds(1600))) {
    pass_until_due();
    seen({.runnable = true, .turns = 7, .any_runnable = true});
    ASSERT_FALSE(process_.killed);
  }
  EXPECT_TRUE(process_.starvation.starved());
}

// It spins, and shares its core with three others.
TEST_F(SupervisionTest, OneThatRunsWithoutEndIsKilledOnceItHasHadItsTime) {
  prove_it();
  beat_regularly();
  stay_silent(seconds(50), 0.75);
  EXPECT_FALSE(process_.killed);
  stay_silent(seconds(20), 0.75);
  EXPECT_EQ(process_.killed_for, "silent");
}

TEST_F(SupervisionTest, OneThatRunsWithoutEndOnACoreOfItsOwnIsKilledAfterTheTimeout) {
  prove_it();
  beat_regularly();
  stay_silent(seconds(14), 0.0);
  EXPECT_FALSE(process_.killed);
  stay_silent(seconds(1), 0.0);
  EXPECT_EQ(process_.killed_for, "silent");
  EXPECT_FALSE(process_.starvation.starved());
}

TEST_F(SupervisionTest, WhatItWaitedForBeforeItsLastHeartbeatDoesNotCount) {
  prove_it();
  waited_us_ = 60'000'000;
  beat_regularly();
  stay_silent(seconds(15), 0.0);
  EXPECT_EQ(process_.killed_for, "silent");
}

TEST_F(SupervisionTest, AnIncidentIsReportedWhenItBeginsAndWhenItEnds) {
  prove_it();
  beat_for(seconds(10), 430);
  ASSERT_EQ(count<ReportStarved>(), 1U);
  const auto began = report();
  EXPECT_EQ(began.name, "decode-0");
  EXPECT_NEAR(began.share, 0.43, 1e-9);
  EXPECT_FALSE(began.ended);
  effects_.clear();
  beat_for(seconds(10), 20);
  ASSERT_EQ(count<ReportStarved>(), 1U);
  EXPECT_TRUE(report().ended);
  EXPECT_GE(report().lasted, seconds(8));
  EXPECT_FALSE(process_.starvation.starved());
}

TEST_F(SupervisionTest, AStarvedProcessHasMoreTimeToStart) {
  pass_until_due();
  seen({.all_waited_us = 50'000'000});
  EXPECT_TRUE(process_.starvation.starved());
  pass_until_due();
  EXPECT_EQ(now_, Instant(seconds(1110))) << "50 of 60 s were none of its own";
  EXPECT_EQ(count<SendSignal>(), 0U);
  EXPECT_EQ(count<LookAt>(), 2U);
  while (!process_.killed) {
    seen({.all_waited_us = 50'000'000});
    pass_until_due();
  }
  EXPECT_EQ(now_, Instant(seconds(1112)));
  EXPECT_EQ(process_.killed_for, "did not register in time");
}

// Its first wait is not over, so the kernel has not counted it.
TEST_F(SupervisionTest, OneThatStartsAndGetsNoCoreAtAllIsWaitedFor) {
  while (now_ < Instant(seconds(1500))) {
    pass_until_due();
    seen({.runnable = true, .any_runnable = true});
    ASSERT_FALSE(process_.killed);
  }
}

TEST_F(SupervisionTest, OneThatStartsForTenTimesItsTimeIsKilledHoweverItsThreadsWait) {
  while (!process_.killed) {
    pass_until_due();
    seen({.all_waited_us = 3'600'000'000});
  }
  EXPECT_LE(now_, Instant(seconds(1000 + 600 + 2)));
  EXPECT_GE(now_, Instant(seconds(1000 + 600)));
}

TEST_F(SupervisionTest, AnEngineThatWaitedForCoresIsNotHung) {
  prove_it();
  const net::WorkerLoad load{.standstill_ms = 100'000, .starved_ms = 50'000};
  for (int i = 0; i < 2; ++i) {
    supervision_.beat(process_, {.load = load}, turn_);
  }
  EXPECT_EQ(process_.state, ProcessState::kReady);
}

TEST_F(SupervisionTest, TwoLooksAtOneMomentProveNothing) {
  prove_it();
  beat_regularly();
  pass_until_due();
  const VitalSigns signs{.asleep = true, .turns = 7, .at_ms = 5};
  supervision_.seen(process_, signs, turn_);
  pass_until_due();
  supervision_.seen(process_, signs, turn_);  // Both were taken late, on a slow node.
  EXPECT_EQ(count<SendSignal>(), 0U);
}

TEST_F(SupervisionTest, AHeartbeatEndsSuspicionAndLooks) {
  prove_it();
  beat_regularly();
  pass_until_due();
  seen({.asleep = true, .turns = 7});
  supervision_.beat(process_, {}, turn_);
  EXPECT_FALSE(process_.suspected);
  seen({.asleep = true, .turns = 7});
  EXPECT_EQ(count<SendSignal>(), 0U);
}

TEST_F(SupervisionTest, AnEngineThatKnowsItsPaceIsHungSooner) {
  prove_it();
  stand_still(milliseconds(1900), seconds(2));
  EXPECT_EQ(process_.state, ProcessState::kReady);
  stand_still(seconds(2), seconds(2));
  EXPECT_EQ(process_.state, ProcessState::kHung);
}

TEST_F(SupervisionTest, ASlowEngineStillHasNoMoreThanTheTimeout) {
  prove_it();
  stand_still(seconds(60), minutes(10));
  EXPECT_EQ(process_.state, ProcessState::kHung);
}

TEST_F(SupervisionTest, AnEngineOfAnotherMakeWithLongPausesGetsTheTimeItUsuallyTakes) {
  prove_it();
  process_.entry.protocol = net::Protocol::kNixl;
  stand_still(seconds(59), seconds(2));
  stand_still(seconds(89), seconds(90));
  EXPECT_EQ(process_.state, ProcessState::kReady);
  stand_still(seconds(90), seconds(90));
  EXPECT_EQ(process_.state, ProcessState::kHung);
}

TEST_F(SupervisionTest, AServingProcessIsToldToDrainOnceRoutersHadTimeToLearnOfIt) {
  prove_it();
  supervision_.dismiss(process_, Fate::kEnd, turn_);
  EXPECT_EQ(process_.state, ProcessState::kDraining);
  EXPECT_TRUE(effects_.empty());
  pass_until_due();
  EXPECT_TRUE(sent<net::Drain>());
  supervision_.died(process_, "exit code 0", net::LossCause::kOutside, turn_);
  EXPECT_EQ(process_.state, ProcessState::kExited);
}

TEST_F(SupervisionTest, WhoDoesNotDrainInTimeIsKilled) {
  prove_it();
  drain_while_it_beats();
  EXPECT_EQ(now_, Instant(seconds(1032)));
  EXPECT_EQ(count<SendSignal>(), 1U);
}

TEST_F(SupervisionTest, AStoppedWorkerIsKilledWhileItDrainsToo) {
  prove_it();
  beat_regularly();
  supervision_.dismiss(process_, Fate::kEnd, turn_);
  supervision_.drain(process_, turn_);
  for (int look = 0; look < 2; ++look) {
    pass_until_due();
    seen({.asleep = true, .stopped = true, .turns = 7});
  }
  EXPECT_EQ(process_.killed_for, "stopped");
  EXPECT_LT(now_, Instant(seconds(1010)));
  supervision_.died(process_, "signal 9 (Killed)", net::LossCause::kOutside, turn_);
  EXPECT_EQ(process_.state, ProcessState::kExited);
}

TEST_F(SupervisionTest, AnEngineThatHangsIsKilledWhileItDrainsToo) {
  prove_it();
  supervision_.dismiss(process_, Fate::kChangeRole, turn_);
  supervision_.drain(process_, turn_);
  stand_still(seconds(61), seconds(0));
  EXPECT_EQ(process_.state, ProcessState::kHung);
  pass_until_due();
  EXPECT_TRUE(process_.killed);
  supervision_.died(process_, "signal 9 (Killed)", net::LossCause::kOutside, turn_);
  EXPECT_EQ(process_.state, ProcessState::kWaiting) << "its fate still holds";
}

// Its launcher died before its turn came.
TEST_F(SupervisionTest, AWorkerThatServedWhileItsJobStoppedIsNotKilledByTheNextLauncher) {
  prove_it();
  process_.fate = Fate::kEnd;
  EXPECT_FALSE(supervision_.adopt(process_, turn_));
  EXPECT_FALSE(process_.killed);
  EXPECT_EQ(process_.state, ProcessState::kReady);
}

TEST_F(SupervisionTest, AHungWorkerThatWasToLeaveIsKilledByTheNextLauncher) {
  prove_it();
  supervision_.dismiss(process_, Fate::kEnd, turn_);
  supervision_.drain(process_, turn_);
  stand_still(seconds(61), seconds(0));
  process_.killed = false;
  EXPECT_FALSE(supervision_.adopt(process_, turn_));
  EXPECT_TRUE(process_.killed);
}

TEST_F(SupervisionTest, APrefillWorkerMayKeepItsKvForItsLeaseOnTop) {
  process_.role = net::Role::kPrefill;
  prove_it();
  drain_while_it_beats();
  EXPECT_EQ(now_, Instant(seconds(1039)));
}

TEST_F(SupervisionTest, AProcessThatStartsIsEndedAtOnceWhenDismissed) {
  supervision_.dismiss(process_, Fate::kEnd, turn_);
  EXPECT_EQ(count<SendSignal>(), 1U);
  pass_until_due();
  EXPECT_EQ(count<SendSignal>(), 2U);  // It ignored SIGTERM.
}

TEST_F(SupervisionTest, FateSaysWhatFollowsADeath) {
  supervision_.died(process_, "exit code 1", net::LossCause::kOutside, turn_);
  EXPECT_EQ(process_.state, ProcessState::kBackoff);
  supervision_.start(process_, {}, turn_);
  prove_it();
  supervision_.dismiss(process_, Fate::kChangeRole, turn_);
  supervision_.died(process_, "exit code 0", net::LossCause::kOutside, turn_);
  EXPECT_EQ(process_.state, ProcessState::kWaiting);
}

TEST_F(SupervisionTest, WhoDiesOftenWithoutBeingReadyIsHopelessUntilItIs) {
  supervision_.died(process_, "exit code 1", net::LossCause::kOutside, turn_);
  EXPECT_FALSE(process_.hopeless());
  supervision_.start(process_, {}, turn_);
  supervision_.died(process_, "exit code 1", net::LossCause::kOutside, turn_);
  EXPECT_TRUE(process_.hopeless());
  supervision_.start(process_, {}, turn_);
  prove_it();
  EXPECT_FALSE(process_.hopeless());
}

}  // namespace
}  // namespace pdjob::launcher
