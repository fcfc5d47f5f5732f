#include "launcher/agents/agent_session.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class AgentSessionTest : public testing::Test {
 protected:
  std::vector<AgentEffect> step(const AgentEvent& event) {
    std::vector<AgentEffect> effects;
    session_.step(event, now_, effects);
    return effects;
  }
  std::vector<AgentEffect> say(uint64_t session, uint64_t number, AgentMessage message) {
    return step(FrameArrived{{session, number, std::move(message)}});
  }
  // Serves session 7. Its next message has number 2.
  void serve(Duration orphan_timeout = {}) {
    step(LauncherConnected{});
    const auto milliseconds_of = [](Duration d) {
      return static_cast<uint64_t>(d / milliseconds(1));
    };
    say(7, 1,
        Welcome{
            .job = "j", .lease_ms = 5000, .orphan_timeout_ms = milliseconds_of(orphan_timeout)});
    step(SessionBegan{{.host = "10.0.0.1"}});
  }
  // Lets time pass in small steps, and returns all that happened.
  std::vector<AgentEffect> pass(Duration duration) {
    std::vector<AgentEffect> all;
    for (const Instant end = now_ + duration; now_ < end;) {
      now_ += milliseconds(100);
      for (AgentEffect& effect : step(TimePassed{})) {
        all.push_back(std::move(effect));
      }
    }
    return all;
  }

  template <class Effect>
  static int count(const std::vector<AgentEffect>& effects) {
    int found = 0;
    for (const AgentEffect& effect : effects) {
      found += std::holds_alternative<Effect>(effect) ? 1 : 0;
    }
    return found;
  }
  template <class Message>
  static int sent(const std::vector<AgentEffect>& effects) {
    int found = 0;
    for (const AgentEffect& effect : effects) {
      const auto* frame = std::get_if<SendFrame>(&effect);
      found += frame != nullptr && std::holds_alternative<Message>(frame->frame.message) ? 1 : 0;
    }
    return found;
  }

  Instant now_{seconds(1000)};
  AgentSession session_{AgentHello{.name = "n", .instance = 3}};
};

TEST_F(AgentSessionTest, SaysHelloUntilALauncherAnswers) {
  EXPECT_EQ(sent<AgentHello>(pass(seconds(3))), 0) << "there is no connection";
  EXPECT_EQ(sent<AgentHello>(step(LauncherConnected{})), 1);
  EXPECT_EQ(sent<AgentHello>(pass(seconds(3))), 3);
  EXPECT_EQ(count<BeginSession>(say(7, 1, Welcome{.lease_ms = 5000})), 1);
  EXPECT_EQ(sent<NodeReady>(step(SessionBegan{{.host = "10.0.0.1"}})), 1);
  EXPECT_EQ(sent<AgentHello>(pass(seconds(3))), 0);
}

TEST_F(AgentSessionTest, EndsEverythingWhenTheConnectionEnds) {
  serve();
  EXPECT_EQ(count<EndSession>(step(LauncherDisconnected{})), 1);
  EXPECT_EQ(session_.state(), AgentSession::State::kJoining);
}

TEST_F(AgentSessionTest, EndsEverythingWhenTheLauncherIsSilentForTheLease) {
  serve();
  EXPECT_EQ(count<EndSession>(pass(milliseconds(4900))), 0);
  EXPECT_EQ(count<EndSession>(pass(milliseconds(200))), 1);
}

TEST_F(AgentSessionTest, BeatsExtendTheLease) {
  serve();
  for (uint64_t number = 2; number < 20; ++number) {
    EXPECT_EQ(count<EndSession>(pass(seconds(1))), 0);
    say(7, number, Beat{});
  }
}

TEST_F(AgentSessionTest, CarriesOutOrdersOfItsSessionInOrder) {
  serve();
  EXPECT_EQ(count<CarryOut>(say(7, 2, StartProcess{.incarnation = 1})), 1);
  EXPECT_EQ(count<CarryOut>(say(6, 3, StartProcess{.incarnation = 2})), 0) << "another session";
  EXPECT_EQ(count<CarryOut>(say(7, 3, SignalProcess{.incarnation = 1})), 1);
}

TEST_F(AgentSessionTest, AnOrderThatWasLostEndsTheSession) {
  serve();
  const auto effects = say(7, 3, StartProcess{.incarnation = 1});
  EXPECT_EQ(count<CarryOut>(effects), 0);
  EXPECT_EQ(count<EndSession>(effects), 1);
  EXPECT_EQ(sent<AgentHello>(effects), 1);
}

TEST_F(AgentSessionTest, ASecondLauncherFindsACleanNode) {
  serve();
  const auto effects = say(8, 1, Welcome{.lease_ms = 5000});
  ASSERT_EQ(effects.size(), 2U);
  EXPECT_TRUE(std::holds_alternative<EndSession>(effects[0]));
  EXPECT_TRUE(std::holds_alternative<BeginSession>(effects[1]));
}

TEST_F(AgentSessionTest, ACopyOfItsWelcomeChangesNothing) {
  serve();
  EXPECT_TRUE(say(7, 1, Welcome{.lease_ms = 5000}).empty());
}

TEST_F(AgentSessionTest, KeepsProcessesForTheOrphanTimeout) {
  serve(seconds(10));
  const auto effects = step(LauncherDisconnected{});
  EXPECT_EQ(count<EndSession>(effects), 0);
  EXPECT_EQ(count<SayOrphaned>(effects), 1);
  EXPECT_EQ(count<EndSession>(pass(milliseconds(9900))), 0);
  EXPECT_EQ(count<EndSession>(pass(milliseconds(200))), 1);
}

TEST_F(AgentSessionTest, TheSameLauncherMayComeBackToAnOrphan) {
  serve(seconds(10));
  step(LauncherDisconnected{});
  EXPECT_EQ(sent<AgentHello>(step(LauncherConnected{})), 1);
  EXPECT_EQ(count<SayResumed>(say(7, 2, Beat{})), 1);
  EXPECT_EQ(session_.state(), AgentSession::State::kServing);
  EXPECT_EQ(count<EndSession>(pass(seconds(4))), 0);
}

TEST_F(AgentSessionTest, ALostLauncherHearsWhatHappenedWhenItIsBack) {
  serve(seconds(60));
  step(LauncherDisconnected{});
  EXPECT_EQ(sent<ProcessExited>(step(OutcomeKnown{ProcessExited{{1}, "signal 9"}})), 0);
  EXPECT_EQ(sent<ProcessExited>(step(OutcomeKnown{ProcessExited{{2}, "signal 9"}})), 0);
  const auto back = say(7, 2, Beat{.received = 1});
  EXPECT_EQ(sent<ProcessExited>(back), 2);
  EXPECT_EQ(std::get<SendFrame>(back[1]).frame.number, 2U) << "after NodeReady";
}

TEST_F(AgentSessionTest, WhatMayHaveBeenLostWithTheConnectionIsSentAgainAndABeatIsNot) {
  serve(seconds(60));
  step(OutcomeKnown{ProcessExited{{1}, "signal 9"}});
  step(OutcomeKnown{ProcessExited{{2}, "signal 9"}});
  EXPECT_EQ(sent<Beat>(pass(seconds(2))), 4);
  step(LauncherDisconnected{});
  step(OutcomeKnown{ProcessExited{{3}, "signal 9"}});
  std::vector<uint64_t> numbers;
  for (const auto& effect : say(7, 2, Beat{.received = 2})) {
    if (const auto* frame = std::get_if<SendFrame>(&effect)) {
      numbers.push_back(frame->frame.number);
    }
  }
  EXPECT_EQ(numbers, (std::vector<uint64_t>{3, 4})) << "NodeReady and the first outcome had come";
}

TEST_F(AgentSessionTest, SaysHelloWithTheSignThatItWasAskedFor) {
  serve(seconds(60));
  const auto answer = say(7, 0, SignAsked{3});
  ASSERT_EQ(sent<AgentHello>(answer), 1);
  const auto& hello = std::get<AgentHello>(std::get<SendFrame>(answer[0]).frame.message);
  EXPECT_EQ(hello.sign, 3U);
  EXPECT_EQ(hello.session, 7U);
  EXPECT_EQ(count<CarryOut>(say(7, 2, StartProcess{.incarnation = 1})), 1) << "it is no gap";
  EXPECT_EQ(sent<AgentHello>(say(6, 0, SignAsked{4})), 0) << "another session";
}

TEST_F(AgentSessionTest, AGoodbyeEndsAnOrphanAtOnce) {
  serve(seconds(10));
  step(LauncherDisconnected{});
  step(LauncherConnected{});
  EXPECT_EQ(count<EndSession>(say(7, 0, Goodbye{})), 1);
}

TEST_F(AgentSessionTest, AJobBegunAnewEndsWhatAnOrphanHoldsAndAPlanDoesNot) {
  serve(seconds(10));
  step(LauncherDisconnected{});
  step(LauncherConnected{});
  const auto planned = say(8, 1, Welcome{.job = "j", .lease_ms = 5000});
  EXPECT_EQ(count<EndSession>(planned), 0);
  EXPECT_EQ(sent<NodeLeaving>(planned), 1);
  const auto anew = say(9, 1, Welcome{.job = "j", .lease_ms = 5000, .owner = "new", .launcher = 1});
  EXPECT_EQ(count<EndSession>(anew), 1);
  EXPECT_EQ(count<BeginSession>(anew), 1);
}

// --- another launcher of the same run

TEST_F(AgentSessionTest, ALaterLauncherOfTheRunAdoptsWhatRuns) {
  step(LauncherConnected{});
  say(7, 1, Welcome{.lease_ms = 5000, .orphan_timeout_ms = 10000, .owner = "run", .launcher = 1});
  step(SessionBegan{});
  step(LauncherDisconnected{});
  step(LauncherConnected{});
  const auto effects = say(
      9, 1, Welcome{.lease_ms = 5000, .orphan_timeout_ms = 10000, .owner = "run", .launcher = 2});
  EXPECT_EQ(count<EndSession>(effects), 0);
  EXPECT_EQ(count<BeginSession>(effects), 0);
  EXPECT_EQ(count<AdoptSession>(effects), 1);
  const auto ready =
      step(SessionBegan{{.host = "h", .running = {{{4}, 44}}, .doors = {{"r", 80}}}});
  ASSERT_EQ(sent<NodeReady>(ready), 1);
  EXPECT_EQ(std::get<SendFrame>(ready[0]).frame.number, 1U) << "a new session";
  EXPECT_EQ(count<CarryOut>(say(9, 2, StartProcess{.incarnation = 5})), 1);
  EXPECT_EQ(count<CarryOut>(say(7, 2, StartProcess{.incarnation = 6})), 0) << "the earlier one";
}

TEST_F(AgentSessionTest, AnEarlierLauncherOfTheRunIsIgnoredForEver) {
  step(LauncherConnected{});
  say(7, 1, Welcome{.lease_ms = 5000, .orphan_timeout_ms = 10000, .owner = "run", .launcher = 2});
  step(SessionBegan{});
  const Welcome stale{.lease_ms = 5000, .owner = "run", .launcher = 1};
  EXPECT_EQ(count<SayIgnored>(say(9, 1, stale)), 1);
  EXPECT_EQ(session_.state(), AgentSession::State::kServing);
  EXPECT_EQ(count<CarryOut>(say(7, 2, StartProcess{.incarnation = 5})), 1) << "nothing changed";
  say(7, 0, Goodbye{});
  EXPECT_EQ(count<BeginSession>(say(9, 1, stale)), 0);
  EXPECT_EQ(session_.state(), AgentSession::State::kJoining);
}

// It has given up what runs here, or the run is another one.
TEST_F(AgentSessionTest, TheSameLauncherOrAnotherRunFindsACleanNode) {
  for (const Welcome& next : {Welcome{.lease_ms = 5000, .owner = "run", .launcher = 1},
                              Welcome{.lease_ms = 5000, .owner = "other", .launcher = 2}}) {
    session_ = AgentSession(AgentHello{.name = "n", .instance = 3});
    step(LauncherConnected{});
    say(7, 1, Welcome{.lease_ms = 5000, .orphan_timeout_ms = 10000, .owner = "run", .launcher = 1});
    step(SessionBegan{});
    const auto effects = say(9, 1, next);
    EXPECT_EQ(count<EndSession>(effects), 1);
    EXPECT_EQ(count<BeginSession>(effects), 1);
    EXPECT_EQ(count<AdoptSession>(effects), 0);
  }
}

TEST_F(AgentSessionTest, AnotherJobIsToldWhoseOrphansItWouldEndAndGetsTheNodeAfterThem) {
  step(LauncherConnected{});
  say(7, 1,
      Welcome{.job = "night",
              .lease_ms = 5000,
              .orphan_timeout_ms = 10000,
              .owner = "run",
              .launcher = 1});
  step(SessionBegan{});
  step(LauncherDisconnected{});
  step(LauncherConnected{});
  const Welcome other{.job = "day", .lease_ms = 5000, .owner = "other", .launcher = 1};
  const auto refused = say(9, 1, other);
  ASSERT_EQ(sent<NodeLeaving>(refused), 1);
  const AgentFrame& answer = std::get<SendFrame>(refused[0]).frame;
  EXPECT_EQ(answer.session, 9U);
  EXPECT_EQ(answer.number, 1U);
  EXPECT_EQ(std::get<NodeLeaving>(answer.message).why,
            "it keeps the processes of job night, whose launcher is lost, for 10 s more");
  EXPECT_EQ(session_.state(), AgentSession::State::kOrphaned);
  EXPECT_EQ(count<EndSession>(say(9, 0, Goodbye{})), 0) << "that session never was";
  const Welcome next{
      .job = "night", .lease_ms = 5000, .orphan_timeout_ms = 10000, .owner = "run", .launcher = 2};
  EXPECT_EQ(count<AdoptSession>(say(11, 1, next)), 1);

  step(SessionBegan{});
  step(LauncherDisconnected{});
  EXPECT_EQ(count<EndSession>(pass(milliseconds(10100))), 1);
  EXPECT_EQ(count<BeginSession>(say(13, 1, other)), 1);
}

class WarmAgentTest : public AgentSessionTest {
 protected:
  WarmAgentTest() {
    step(LauncherConnected{});
    say(7, 1, Welcome{.job = "night", .lease_ms = 5000, .owner = "run", .launcher = 1});
    step(SessionBegan{});
    const auto told = say(7, 0, Goodbye{.keep_ms = 60000});
    EXPECT_EQ(count<EndSession>(told), 0);
    EXPECT_EQ(count<SayOrphaned>(told), 1);
    step(LauncherDisconnected{});
    step(LauncherConnected{});
  }
};

TEST_F(WarmAgentTest, KeepsAllForTheNextLauncherOfTheRun) {
  EXPECT_EQ(count<EndSession>(pass(seconds(59))), 0);
  const auto next = say(9, 1, Welcome{.job = "night", .owner = "run", .launcher = 2});
  EXPECT_EQ(count<AdoptSession>(next), 1);
  EXPECT_EQ(count<EndSession>(next), 0);
  step(SessionBegan{});
  EXPECT_EQ(count<EndSession>(step(LauncherDisconnected{})), 1) << "that one kept nothing";
}

TEST_F(WarmAgentTest, EndsAllWhenTheTimeIsOver) {
  EXPECT_EQ(count<EndSession>(pass(milliseconds(60100))), 1);
}

TEST_F(WarmAgentTest, YieldsToAnotherJobAndNotToAPlan) {
  const auto planned = say(8, 1, Welcome{.job = "day", .lease_ms = 5000});
  EXPECT_EQ(count<EndSession>(planned), 0);
  ASSERT_EQ(sent<NodeLeaving>(planned), 1);
  EXPECT_EQ(std::get<NodeLeaving>(std::get<SendFrame>(planned[0]).frame.message).why,
            "it keeps the processes of job night, which has ended, warm for 60 s more");
  const auto other = say(9, 1, Welcome{.job = "day", .owner = "other", .launcher = 1});
  EXPECT_EQ(count<EndSession>(other), 1);
  EXPECT_EQ(count<BeginSession>(other), 1);
}

TEST_F(AgentSessionTest, WhoIsRefusedWaitsLonger) {
  step(LauncherConnected{});
  EXPECT_EQ(count<SayRefused>(say(0, 0, Refused{"no"})), 1);
  EXPECT_EQ(sent<AgentHello>(pass(milliseconds(2900))), 0);
  EXPECT_EQ(sent<AgentHello>(pass(milliseconds(200))), 1);
}

TEST_F(AgentSessionTest, TellsWhyItCannotServe) {
  step(LauncherConnected{});
  say(7, 1, Welcome{.lease_ms = 5000});
  const auto effects = step(SessionImpossible{"no such interface"});
  EXPECT_EQ(sent<NodeLeaving>(effects), 1);
  EXPECT_EQ(session_.state(), AgentSession::State::kJoining);
}

TEST_F(AgentSessionTest, AStoppedAgentSaysThatItLeaves) {
  serve();
  const auto effects = step(AgentStopped{});
  EXPECT_EQ(sent<NodeLeaving>(effects), 1);
  EXPECT_EQ(count<EndSession>(effects), 1);
}

}  // namespace
}  // namespace pdjob::launcher
