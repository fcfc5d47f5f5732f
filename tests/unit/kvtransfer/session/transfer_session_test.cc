#include "kvtransfer/session/transfer_session.h"

#include <gtest/gtest.h>

namespace pdjob::kvtransfer {
namespace {

using std::chrono::seconds;

constexpr Instant kStart{};
constexpr LinkId kLink{1};
constexpr LinkId kOtherLink{2};
const Error kWhy{ErrorCode::kCancelled, "why"};

template <class Effect, class Effects>
const Effect* find(const Effects& effects) {
  for (const auto& effect : effects) {
    if (const Effect* found = std::get_if<Effect>(&effect)) {
      return found;
    }
  }
  return nullptr;
}

class SendSessionTest : public testing::Test {
 protected:
  using S = SendSession;
  using State = SendSession::State;

  std::vector<S::Effect> step(const S::Event& event, Instant now = kStart) {
    std::vector<S::Effect> effects;
    session_.step(event, now, effects);
    return effects;
  }
  // Brings the session to a state. Every state is reachable.
  void reach(State state) {
    if (state == State::kOffered) {
      return;
    }
    if (state == State::kAwaited) {
      step(S::PeerWaits{kLink, seconds(30)});
      return;
    }
    step(S::Granted{kLink, 100});
    if (state == State::kGranted) {
      return;
    }
    step(S::RowsReady{10});
    if (state == State::kPushing) {
      return;
    }
    step(S::CommitRequested{10});
    step(S::RangePushed{});
    if (state == State::kCommitted) {
      return;
    }
    if (state == State::kDone) {
      step(S::PeerCommitted{kLink});
    } else {
      step(S::Withdrawn{kWhy});
    }
  }
  void restart() { session_ = make(); }
  static SendSession make() {
    return SendSession({.row_bytes = 8,
                        .rows_max = 100,
                        .rows_per_push = 32,
                        .deadline = kStart + seconds(10),
                        .lease = seconds(5),
                        .stall_max = seconds(3),
                        .start_max = seconds(7)});
  }

  SendSession session_ = make();
};

constexpr SendSession::State kLiveSendStates[] = {
    SendSession::State::kOffered, SendSession::State::kAwaited, SendSession::State::kGranted,
    SendSession::State::kPushing, SendSession::State::kCommitted};

TEST_F(SendSessionTest, PushesRangesThenCommits) {
  EXPECT_TRUE(step(S::RowsReady{40}).empty());  // The grant has yet to come.
  auto effects = step(S::Granted{kLink, 50});
  ASSERT_EQ(effects.size(), 1);
  EXPECT_EQ(std::get<S::Push>(effects[0]).range, (RowRange{0, 32}));
  EXPECT_EQ(session_.state(), State::kPushing);
  effects = step(S::RangePushed{});
  EXPECT_EQ(std::get<S::Push>(effects.at(0)).range, (RowRange{32, 8}));
  EXPECT_TRUE(step(S::RangePushed{}).empty());
  EXPECT_EQ(session_.state(), State::kGranted);
  effects = step(S::RowsReady{41});
  EXPECT_EQ(std::get<S::Push>(effects.at(0)).range, (RowRange{40, 1}));
  EXPECT_TRUE(step(S::CommitRequested{41}).empty());  // Its last row is still on its way.
  effects = step(S::RangePushed{});
  EXPECT_EQ(std::get<S::SendCommit>(effects.at(0)).rows, 41);
  EXPECT_EQ(std::get<S::SendCommit>(effects.at(0)).bytes, 41 * 8);
  EXPECT_EQ(session_.state(), State::kCommitted);
  effects = step(S::PeerCommitted{kLink});
  EXPECT_EQ(std::get<S::ReportDone>(effects.at(0)).bytes, 41 * 8);
  EXPECT_EQ(session_.state(), State::kDone);
}

TEST_F(SendSessionTest, PushesNoMoreAtOnceThanTheTransportOfTheGrantMay) {
  step(S::RowsReady{40});
  EXPECT_EQ(std::get<S::Push>(step(S::Granted{kLink, 50, 20}).at(0)).range, (RowRange{0, 20}));
  EXPECT_EQ(std::get<S::Push>(step(S::RangePushed{}).at(0)).range, (RowRange{20, 20}));
  restart();
  step(S::RowsReady{40});
  EXPECT_EQ(std::get<S::Push>(step(S::Granted{kLink, 50, 64}).at(0)).range, (RowRange{0, 32}));
}

TEST_F(SendSessionTest, CommitsNoRowsAtOnce) {
  step(S::CommitRequested{0});
  const auto effects = step(S::Granted{kLink, 0});
  EXPECT_EQ(std::get<S::SendCommit>(effects.at(0)).rows, 0);
}

TEST_F(SendSessionTest, WithdrawTellsTheReceiverIfThereIsOne) {
  for (const State state : kLiveSendStates) {
    restart();
    reach(state);
    ASSERT_EQ(session_.state(), state);
    const auto effects = step(S::Withdrawn{kWhy});
    EXPECT_EQ(find<S::SendAbort>(effects) != nullptr,
              state != State::kOffered && state != State::kAwaited);
    ASSERT_NE(find<S::ReportFailed>(effects), nullptr);
    EXPECT_EQ(session_.state(), State::kFailed);
  }
}

TEST_F(SendSessionTest, PeerCancelIsAcknowledgedInEveryStateThatIsSomebodys) {
  for (const State state : {State::kAwaited, State::kGranted, State::kPushing, State::kCommitted}) {
    restart();
    reach(state);
    const auto effects = step(S::PeerCancelled{kLink, kWhy});
    EXPECT_NE(find<S::SendCancelled>(effects), nullptr);
    EXPECT_EQ(find<S::ReportFailed>(effects)->reason, kWhy);
    EXPECT_EQ(session_.state(), State::kFailed);
  }
}

TEST_F(SendSessionTest, LostLinkFailsWhatItCarried) {
  for (const State state : {State::kGranted, State::kPushing, State::kCommitted}) {
    restart();
    reach(state);
    const auto effects = step(S::LinkLost{kLink, kWhy});
    ASSERT_EQ(effects.size(), 1);  // The peer is gone, so it gets no message.
    EXPECT_NE(find<S::ReportFailed>(effects), nullptr);
  }
}

TEST_F(SendSessionTest, OtherLinksAreIgnoredInEveryState) {
  const S::Event strangers[] = {S::PeerCommitted{kOtherLink}, S::PeerCancelled{kOtherLink, kWhy},
                                S::LinkLost{kOtherLink, kWhy}, S::PeerRenewed{kOtherLink}};
  for (const State state : kLiveSendStates) {
    for (const S::Event& event : strangers) {
      restart();
      reach(state);
      EXPECT_TRUE(step(event, kStart + seconds(8)).empty());
      EXPECT_EQ(session_.state(), state);
      EXPECT_EQ(session_.next_wakeup(), kStart + seconds(10));
    }
  }
}

TEST_F(SendSessionTest, SaysWhyItFailed) {
  const std::pair<S::Event, FailureCause> causes[] = {
      {S::Withdrawn{kWhy}, FailureCause::kCancelled},
      {S::PeerCancelled{kLink, kWhy}, FailureCause::kPeer},
      {S::LinkLost{kLink, kWhy}, FailureCause::kLink},
      {S::PushFailed{kWhy}, FailureCause::kLocal},
      {S::PeerCommitted{kLink}, FailureCause::kBrokenPromise}};
  for (const auto& [event, cause] : causes) {
    restart();
    reach(State::kPushing);
    EXPECT_EQ(find<S::ReportFailed>(step(event))->cause, cause);
  }
  restart();
  reach(State::kPushing);
  step(S::RangeStarted{});
  EXPECT_EQ(find<S::ReportFailed>(step(TimePassed{}, kStart + seconds(3)))->cause,
            FailureCause::kStalled);
  restart();
  EXPECT_EQ(find<S::ReportFailed>(step(TimePassed{}, kStart + seconds(10)))->cause,
            FailureCause::kTimeout);
}

TEST_F(SendSessionTest, SecondGrantIsIgnored) {
  reach(State::kPushing);
  EXPECT_TRUE(step(S::Granted{kOtherLink, 100}).empty());
  EXPECT_EQ(session_.link(), kLink);
}

TEST_F(SendSessionTest, NothingHappensAfterTheEnd) {
  const S::Event all[] = {S::RowsReady{20},
                          S::CommitRequested{20},
                          S::Withdrawn{kWhy},
                          S::Granted{kLink, 100},
                          S::RangeWaits{},
                          S::RangeStarted{},
                          S::RangePushed{},
                          S::PeerWaits{kLink, seconds(1)},
                          S::PushFailed{kWhy},
                          S::PeerCommitted{kLink},
                          S::PeerCancelled{kLink, kWhy},
                          S::PeerRenewed{kLink},
                          S::LinkLost{kLink, kWhy},
                          TimePassed{}};
  for (const State state : {State::kDone, State::kFailed}) {
    restart();
    reach(state);
    ASSERT_EQ(session_.state(), state);
    for (const S::Event& event : all) {
      EXPECT_TRUE(step(event, kNever).empty());
      EXPECT_EQ(session_.state(), state);
    }
  }
}

TEST_F(SendSessionTest, DeadlineFailsEveryLiveState) {
  for (const State state : kLiveSendStates) {
    restart();
    reach(state);
    EXPECT_TRUE(step(TimePassed{}, kStart + seconds(9)).empty());
    const auto effects = step(TimePassed{}, kStart + seconds(10));
    EXPECT_EQ(find<S::ReportFailed>(effects)->reason.code, ErrorCode::kTimeout);
  }
}

TEST_F(SendSessionTest, RenewalsExtendTheLease) {
  reach(State::kGranted);
  step(S::PeerRenewed{kLink}, kStart + seconds(8));
  EXPECT_EQ(session_.next_wakeup(), kStart + seconds(13));
  EXPECT_TRUE(step(TimePassed{}, kStart + seconds(12)).empty());
  step(S::PeerRenewed{kLink}, kStart + seconds(1));  // Never shortened.
  EXPECT_EQ(session_.next_wakeup(), kStart + seconds(13));
}

// Regression: the lease of an offer ended while its request queued at a decode worker without free
// rows.
TEST_F(SendSessionTest, ReceiverThatWaitsKeepsTheOfferByRenewals) {
  step(S::RowsReady{10});
  EXPECT_TRUE(step(S::PeerWaits{kLink, seconds(30)}, kStart + seconds(4)).empty());
  EXPECT_EQ(session_.state(), State::kAwaited);
  EXPECT_EQ(session_.next_wakeup(), kStart + seconds(10));  // Never shortened.
  for (int second = 6; second <= 20; second += 2) {
    EXPECT_TRUE(step(TimePassed{}, kStart + seconds(second)).empty());
    step(S::PeerRenewed{kLink}, kStart + seconds(second));
  }
  EXPECT_EQ(session_.next_wakeup(), kStart + seconds(25));
  const auto effects = step(S::Granted{kLink, 10}, kStart + seconds(21));
  EXPECT_EQ(std::get<S::Push>(effects.at(0)).range, (RowRange{0, 10}));
  // The bound of waits does not apply to fetches.
  step(S::PeerRenewed{kLink}, kStart + seconds(60));
  EXPECT_EQ(session_.next_wakeup(), kStart + seconds(65));
}

TEST_F(SendSessionTest, RenewalsKeepAnOfferNoLongerThanItsReceiverMayWait) {
  step(S::PeerWaits{kLink, seconds(12)}, kStart + seconds(4));
  step(S::PeerRenewed{kLink}, kStart + seconds(15));
  EXPECT_EQ(session_.next_wakeup(), kStart + seconds(16));
  const auto effects = step(TimePassed{}, kStart + seconds(16));
  ASSERT_EQ(effects.size(), 1U);  // The receiver has given up by itself.
  EXPECT_EQ(find<S::ReportFailed>(effects)->reason.code, ErrorCode::kTimeout);
}

TEST_F(SendSessionTest, WaitWithoutRenewalsEndsWithItsLease) {
  step(S::PeerWaits{kLink, seconds(100)}, kStart + seconds(9));
  EXPECT_EQ(session_.next_wakeup(), kStart + seconds(14));
  EXPECT_NE(find<S::ReportFailed>(step(TimePassed{}, kStart + seconds(14))), nullptr);
}

TEST_F(SendSessionTest, LostLinkOfAWaitLeavesTimeForTheNextLink) {
  step(S::PeerWaits{kLink, seconds(100)});
  step(S::PeerRenewed{kLink}, kStart + seconds(20));
  EXPECT_TRUE(step(S::LinkLost{kLink, kWhy}, kStart + seconds(21)).empty());
  EXPECT_EQ(session_.state(), State::kOffered);
  EXPECT_EQ(session_.next_wakeup(), kStart + seconds(24));  // Less than the whole renewed lease.
  step(S::PeerRenewed{kLink}, kStart + seconds(22));
  EXPECT_EQ(session_.next_wakeup(), kStart + seconds(24));
  step(S::PeerWaits{kOtherLink, seconds(100)}, kStart + seconds(23));
  EXPECT_EQ(session_.next_wakeup(), kStart + seconds(28));
}

TEST_F(SendSessionTest, LostLinkOfAWaitLeavesTheOfferItsOwnLease) {
  step(S::PeerWaits{kLink, seconds(100)}, kStart + seconds(1));
  step(S::LinkLost{kLink, kWhy}, kStart + seconds(2));
  EXPECT_EQ(session_.next_wakeup(), kStart + seconds(10));
}

TEST_F(SendSessionTest, LatestWaitCountsAndAGrantEndsThemAll) {
  reach(State::kAwaited);
  step(S::PeerWaits{kOtherLink, seconds(30)});
  EXPECT_TRUE(step(S::LinkLost{kLink, kWhy}).empty());
  EXPECT_EQ(session_.state(), State::kAwaited);
  step(S::Granted{kLink, 100});
  EXPECT_EQ(session_.link(), kLink);
  EXPECT_TRUE(step(S::PeerWaits{kOtherLink, seconds(30)}).empty());
  EXPECT_TRUE(step(S::PeerCancelled{kOtherLink, kWhy}).empty());
  EXPECT_EQ(session_.state(), State::kGranted);
}

TEST_F(SendSessionTest, RenewalsEndWithCommitAndLeaveOneLease) {
  reach(State::kGranted);
  step(S::CommitRequested{0}, kStart + seconds(8));
  ASSERT_EQ(session_.state(), State::kCommitted);
  step(S::PeerRenewed{kLink}, kStart + seconds(9));
  EXPECT_EQ(session_.next_wakeup(), kStart + seconds(13));
}

TEST_F(SendSessionTest, RangeThatStopsFails) {
  reach(State::kPushing);
  step(S::RangeStarted{}, kStart + seconds(1));
  EXPECT_EQ(session_.next_wakeup(), kStart + seconds(4));
  EXPECT_TRUE(step(TimePassed{}, kStart + seconds(3)).empty());
  const auto effects = step(TimePassed{}, kStart + seconds(4));
  EXPECT_NE(find<S::SendAbort>(effects), nullptr);
  EXPECT_EQ(find<S::ReportFailed>(effects)->reason.code, ErrorCode::kTimeout);
}

TEST_F(SendSessionTest, RangeThatWaitsForItsTurnHasNotStopped) {
  reach(State::kPushing);
  EXPECT_TRUE(step(TimePassed{}, kStart + seconds(9)).empty());
  step(S::RangeStarted{}, kStart + seconds(1));
  step(S::RangePushed{}, kStart + seconds(2));
  EXPECT_EQ(session_.next_wakeup(), kStart + seconds(10));  // The range waits for rows.
  step(S::RowsReady{20}, kStart + seconds(2));
  EXPECT_EQ(session_.next_wakeup(), kStart + seconds(10));  // The range waits for its turn.
  step(S::RangeStarted{}, kStart + seconds(5));
  EXPECT_EQ(session_.next_wakeup(), kStart + seconds(8));
}

TEST_F(SendSessionTest, RangeMayWaitLongerForItsLinkToBeReadyThanItMayMove) {
  reach(State::kPushing);
  step(S::RangeWaits{}, kStart + seconds(1));
  step(S::RangeWaits{}, kStart + seconds(2));  // The first one counts.
  EXPECT_EQ(session_.next_wakeup(), kStart + seconds(8));
  step(S::RangeStarted{}, kStart + seconds(3));
  EXPECT_EQ(session_.next_wakeup(), kStart + seconds(6));
  restart();
  reach(State::kPushing);
  step(S::RangeWaits{}, kStart + seconds(1));
  EXPECT_TRUE(step(TimePassed{}, kStart + seconds(7)).empty());
  EXPECT_EQ(find<S::ReportFailed>(step(TimePassed{}, kStart + seconds(8)))->cause,
            FailureCause::kStalled);
}

TEST_F(SendSessionTest, RowsBeyondTheGrantFail) {
  step(S::Granted{kLink, 5});
  const auto effects = step(S::RowsReady{6});
  EXPECT_EQ(find<S::ReportFailed>(effects)->reason.code, ErrorCode::kInvalidArgument);
  EXPECT_NE(find<S::SendAbort>(effects), nullptr);
}

TEST_F(SendSessionTest, MiscountedRowsFail) {
  EXPECT_NE(find<S::ReportFailed>(step(S::RowsReady{101})), nullptr);
  restart();
  EXPECT_NE(find<S::ReportFailed>(step(S::CommitRequested{101})), nullptr);
  restart();
  step(S::RowsReady{10});
  EXPECT_NE(find<S::ReportFailed>(step(S::CommitRequested{9})), nullptr);
}

TEST_F(SendSessionTest, DuplicatesChangeNothing) {
  reach(State::kPushing);
  EXPECT_TRUE(step(S::RowsReady{10}).empty());
  EXPECT_TRUE(step(S::RowsReady{5}).empty());
  step(S::CommitRequested{10});
  EXPECT_TRUE(step(S::CommitRequested{11}).empty());
  EXPECT_TRUE(step(S::RowsReady{12}).empty());
  EXPECT_NE(find<S::SendCommit>(step(S::RangePushed{})), nullptr);
  EXPECT_TRUE(step(S::RangePushed{}).empty());
}

TEST_F(SendSessionTest, EarlyConfirmationIsABrokenPromise) {
  reach(State::kPushing);
  EXPECT_EQ(find<S::ReportFailed>(step(S::PeerCommitted{kLink}))->reason.code, ErrorCode::kCorrupt);
}

TEST_F(SendSessionTest, FailedPushAborts) {
  reach(State::kPushing);
  const auto effects = step(S::PushFailed{kWhy});
  EXPECT_EQ(find<S::SendAbort>(effects)->reason, kWhy);
  EXPECT_EQ(session_.state(), State::kFailed);
}

class ReceiveSessionTest : public testing::TestWithParam<bool> {
 protected:
  using R = ReceiveSession;
  using State = ReceiveSession::State;

  bool peer_writes() const { return GetParam(); }
  std::vector<R::Effect> step(const R::Event& event, Instant now = kStart) {
    std::vector<R::Effect> effects;
    session_.step(event, now, effects);
    return effects;
  }
  void restart() { session_ = make(); }
  ReceiveSession make(Duration stall_max = seconds(20)) const {
    return ReceiveSession({.link = kLink,
                           .rows = 20,
                           .row_bytes = 8,
                           .peer_writes = peer_writes(),
                           .deadline = kStart + seconds(10),
                           .stall_max = stall_max});
  }
  void reach(State state) {
    if (state == State::kRequested) {
      return;
    }
    step(R::LinkReady{kLink});
    if (state == State::kGranted) {
      return;
    }
    step(R::RowsAnnounced{kLink, {0, 10}});
    if (state == State::kReceiving) {
      return;
    }
    if (state == State::kCancelling) {
      step(R::CancelRequested{kWhy});
      return;
    }
    step(R::CommitReceived{kLink, 10, 80, 99});
    if (state == State::kVerifying) {
      return;
    }
    step(R::RowsArrived{10, state == State::kDone ? 99u : 98u});
  }
  std::vector<State> live_states() const {
    std::vector<State> states = {State::kRequested, State::kGranted, State::kReceiving,
                                 State::kVerifying};
    if (peer_writes()) {
      states.push_back(State::kCancelling);
    }
    return states;
  }
  bool may_be_written(State state) const {
    return peer_writes() &&
           (state == State::kGranted || state == State::kReceiving || state == State::kCancelling);
  }
  void expect_failure(const std::vector<R::Effect>& effects, ErrorCode code, State before) {
    const auto* failed = find<R::ReportFailed>(effects);
    ASSERT_NE(failed, nullptr);
    EXPECT_EQ(failed->reason.code, code);
    EXPECT_EQ(failed->region_safe, !may_be_written(before));
    EXPECT_EQ(session_.state(), may_be_written(before) ? State::kCancelling : State::kFailed);
  }

  ReceiveSession session_ = make();
};

TEST_P(ReceiveSessionTest, GrantsReceivesVerifies) {
  EXPECT_NE(find<R::SendGrant>(step(R::LinkReady{kLink})), nullptr);
  EXPECT_TRUE(step(R::RowsAnnounced{kLink, {0, 10}}).empty());
  EXPECT_TRUE(step(R::RowsArrived{10, 5}).empty());
  EXPECT_TRUE(step(R::RowsAnnounced{kLink, {10, 10}}).empty());
  EXPECT_TRUE(step(R::CommitReceived{kLink, 20, 160, 77}).empty());
  EXPECT_EQ(session_.state(), State::kVerifying);
  const auto effects = step(R::RowsArrived{20, 77});
  EXPECT_NE(find<R::SendCommitted>(effects), nullptr);
  EXPECT_EQ(find<R::ReportDone>(effects)->rows, 20);
  EXPECT_EQ(find<R::ReportDone>(effects)->bytes, 160);
  EXPECT_EQ(session_.state(), State::kDone);
}

TEST_P(ReceiveSessionTest, VerifiesAtOnceWhenAllHasArrived) {
  reach(State::kReceiving);
  step(R::RowsArrived{10, 7});
  EXPECT_NE(find<R::ReportDone>(step(R::CommitReceived{kLink, 10, 80, 7})), nullptr);
}

TEST_P(ReceiveSessionTest, NoRowsAreATransferToo) {
  reach(State::kGranted);
  EXPECT_NE(find<R::ReportDone>(step(R::CommitReceived{kLink, 0, 0, 0})), nullptr);
}

TEST_P(ReceiveSessionTest, WrongDigestIsCorruptAndSafe) {
  reach(State::kVerifying);
  const auto effects = step(R::RowsArrived{10, 98});
  EXPECT_NE(find<R::SendCancel>(effects), nullptr);
  EXPECT_EQ(find<R::ReportFailed>(effects)->cause, FailureCause::kDigest);
  expect_failure(effects, ErrorCode::kCorrupt, State::kVerifying);
}

// Other rows on the same link may be damaged too. The next link may work better.
TEST_P(ReceiveSessionTest, WrongDigestEndsTheLinkAndWrongCountsDoNot) {
  reach(State::kVerifying);
  EXPECT_NE(find<R::FailLink>(step(R::RowsArrived{10, 98})), nullptr);
  restart();
  reach(State::kReceiving);
  const auto effects = step(R::CommitReceived{kLink, 9, 72, 99});
  EXPECT_EQ(find<R::FailLink>(effects), nullptr);
  EXPECT_EQ(find<R::ReportFailed>(effects)->cause, FailureCause::kBrokenPromise);
}

TEST_P(ReceiveSessionTest, SaysWhyItFailed) {
  const std::pair<R::Event, FailureCause> causes[] = {
      {R::CancelRequested{kWhy}, FailureCause::kCancelled},
      {R::PeerStopped{kLink, kWhy}, FailureCause::kPeer},
      {R::LinkLost{kLink, LinkLoss::kClosed, kWhy}, FailureCause::kLink},
      {R::LinkLost{kLink, LinkLoss::kGivenUp, kWhy}, FailureCause::kLink}};
  for (const auto& [event, cause] : causes) {
    restart();
    reach(State::kGranted);
    EXPECT_EQ(find<R::ReportFailed>(step(event))->cause, cause);
  }
  restart();
  reach(State::kGranted);
  EXPECT_EQ(find<R::ReportFailed>(step(TimePassed{}, kStart + seconds(1000)))->cause,
            FailureCause::kTimeout);
}

TEST_P(ReceiveSessionTest, WrongCountsInCommitAreCorrupt) {
  for (const auto& commit :
       {R::CommitReceived{kLink, 9, 72, 99}, R::CommitReceived{kLink, 11, 88, 99},
        R::CommitReceived{kLink, 10, 79, 99}}) {
    restart();
    reach(State::kReceiving);
    const auto effects = step(commit);
    EXPECT_NE(find<R::SendCancel>(effects), nullptr);
    expect_failure(effects, ErrorCode::kCorrupt, State::kVerifying);
  }
}

TEST_P(ReceiveSessionTest, WrongRangesAreCorrupt) {
  for (const RowRange range :
       {RowRange{10, 11}, RowRange{9, 1}, RowRange{11, 1}, RowRange{10, 0},
        RowRange{10, 0xffffffff}, RowRange{0xffffffff, 10}, RowRange{0, 10}}) {
    restart();
    reach(State::kReceiving);
    expect_failure(step(R::RowsAnnounced{kLink, range}), ErrorCode::kCorrupt, State::kReceiving);
  }
}

TEST_P(ReceiveSessionTest, RowsOrCommitAfterCommitAreCorrupt) {
  reach(State::kVerifying);
  expect_failure(step(R::RowsAnnounced{kLink, {10, 1}}), ErrorCode::kCorrupt, State::kVerifying);
  restart();
  reach(State::kVerifying);
  expect_failure(step(R::CommitReceived{kLink, 10, 80, 99}), ErrorCode::kCorrupt,
                 State::kVerifying);
}

TEST_P(ReceiveSessionTest, CancelInEveryState) {
  for (const State state : live_states()) {
    restart();
    reach(state);
    ASSERT_EQ(session_.state(), state);
    const auto effects = step(R::CancelRequested{kWhy});
    if (state == State::kCancelling) {
      EXPECT_TRUE(effects.empty());
      continue;
    }
    EXPECT_EQ(find<R::SendCancel>(effects) != nullptr, state != State::kRequested);
    expect_failure(effects, ErrorCode::kCancelled, state);
  }
}

TEST_P(ReceiveSessionTest, DeadlineInEveryState) {
  for (const State state : live_states()) {
    restart();
    reach(state);
    EXPECT_TRUE(step(TimePassed{}, kStart + seconds(9)).empty());
    const auto effects = step(TimePassed{}, kStart + seconds(10));
    if (state == State::kCancelling) {
      EXPECT_TRUE(effects.empty());  // Only the sender can release the target.
    } else {
      expect_failure(effects, ErrorCode::kTimeout, state);
    }
  }
}

TEST_P(ReceiveSessionTest, AnnouncedRowsThatDoNotArriveFail) {
  for (const State state : {State::kReceiving, State::kVerifying}) {
    session_ = make(seconds(3));
    reach(state);
    EXPECT_TRUE(step(TimePassed{}, kStart + seconds(2)).empty());
    const auto effects = step(TimePassed{}, kStart + seconds(3));
    EXPECT_NE(find<R::SendCancel>(effects), nullptr);
    expect_failure(effects, ErrorCode::kTimeout, state);
  }
}

TEST_P(ReceiveSessionTest, EachAnnouncedRangeHasItsTime) {
  session_ = make(seconds(3));
  reach(State::kReceiving);
  step(R::RowsAnnounced{kLink, {10, 5}}, kStart + seconds(2));
  EXPECT_EQ(session_.next_wakeup(), kStart + seconds(3));  // The deadline of the first range.
  step(R::RowsArrived{0, 0}, kStart + seconds(2));
  EXPECT_EQ(session_.next_wakeup(), kStart + seconds(3));
  step(R::RowsArrived{10, 1}, kStart + seconds(2));
  EXPECT_EQ(session_.next_wakeup(), kStart + seconds(5));
  step(R::RowsArrived{15, 2}, kStart + seconds(4));
  EXPECT_EQ(session_.next_wakeup(), kStart + seconds(10));  // The sender may compute for this long.
}

TEST_P(ReceiveSessionTest, UnansweredCancelFailsTheLinkOnce) {
  if (!peer_writes()) {
    GTEST_SKIP() << "never waits for the sender to stop";
  }
  session_ = make(seconds(3));
  reach(State::kCancelling);
  EXPECT_TRUE(step(TimePassed{}, kStart + seconds(2)).empty());
  EXPECT_NE(find<R::FailLink>(step(TimePassed{}, kStart + seconds(3))), nullptr);
  EXPECT_TRUE(step(TimePassed{}, kStart + seconds(4)).empty());
  EXPECT_EQ(session_.next_wakeup(), kNever);
  EXPECT_TRUE(step(R::LinkLost{kLink, LinkLoss::kGivenUp, kWhy}).empty());
  EXPECT_NE(find<R::ReportReleased>(step(R::LinkLost{kLink, LinkLoss::kClosed, kWhy})), nullptr);
}

TEST_P(ReceiveSessionTest, ClosedLinkIsSafeInEveryState) {
  for (const State state : live_states()) {
    restart();
    reach(state);
    const auto effects = step(R::LinkLost{kLink, LinkLoss::kClosed, kWhy});
    ASSERT_EQ(effects.size(), 1);
    if (state == State::kCancelling) {
      EXPECT_NE(find<R::ReportReleased>(effects), nullptr);
    } else {
      EXPECT_TRUE(find<R::ReportFailed>(effects)->region_safe);
    }
    EXPECT_EQ(session_.state(), State::kFailed);
  }
}

TEST_P(ReceiveSessionTest, GivenUpLinkIsUnsafeWhereThePeerMayWrite) {
  for (const State state : live_states()) {
    restart();
    reach(state);
    const auto effects = step(R::LinkLost{kLink, LinkLoss::kGivenUp, kWhy});
    if (state == State::kCancelling) {
      EXPECT_TRUE(effects.empty());
      EXPECT_EQ(session_.state(), State::kCancelling);
    } else {
      EXPECT_EQ(find<R::SendCancel>(effects), nullptr);  // The link is gone.
      expect_failure(effects, ErrorCode::kCancelled, state);
    }
  }
}

TEST_P(ReceiveSessionTest, StoppedSenderFailsOrReleases) {
  for (const State state : live_states()) {
    restart();
    reach(state);
    const auto effects = step(R::PeerStopped{kLink, kWhy});
    if (state == State::kRequested) {
      EXPECT_TRUE(effects.empty());  // The sender does not know this fetch yet.
    } else if (state == State::kCancelling) {
      EXPECT_NE(find<R::ReportReleased>(effects), nullptr);
      EXPECT_EQ(session_.state(), State::kFailed);
    } else {
      EXPECT_TRUE(find<R::ReportFailed>(effects)->region_safe);
      EXPECT_EQ(session_.state(), State::kFailed);
    }
  }
}

TEST_P(ReceiveSessionTest, OtherLinksAreIgnoredInEveryState) {
  const R::Event strangers[] = {R::LinkReady{kOtherLink}, R::RowsAnnounced{kOtherLink, {0, 1}},
                                R::CommitReceived{kOtherLink, 10, 80, 99},
                                R::PeerStopped{kOtherLink, kWhy},
                                R::LinkLost{kOtherLink, LinkLoss::kClosed, kWhy}};
  for (const State state : live_states()) {
    for (const R::Event& event : strangers) {
      restart();
      reach(state);
      EXPECT_TRUE(step(event).empty());
      EXPECT_EQ(session_.state(), state);
    }
  }
}

TEST_P(ReceiveSessionTest, LateMessagesWhileCancellingAreIgnored) {
  if (!peer_writes()) {
    GTEST_SKIP() << "never waits for the sender to stop";
  }
  reach(State::kCancelling);
  EXPECT_TRUE(step(R::RowsAnnounced{kLink, {10, 1}}).empty());
  EXPECT_TRUE(step(R::RowsArrived{10, 1}).empty());
  EXPECT_TRUE(step(R::CommitReceived{kLink, 10, 80, 99}).empty());
  EXPECT_EQ(session_.state(), State::kCancelling);
}

TEST_P(ReceiveSessionTest, NothingHappensAfterTheEnd) {
  const R::Event all[] = {R::LinkReady{kLink},         R::RowsAnnounced{kLink, {0, 1}},
                          R::RowsArrived{1, 1},        R::CommitReceived{kLink, 1},
                          R::PeerStopped{kLink, kWhy}, R::CancelRequested{kWhy},
                          R::LinkLost{kLink},          TimePassed{}};
  for (const State state : {State::kDone, State::kFailed}) {
    restart();
    reach(state);
    ASSERT_EQ(session_.state(), state);
    for (const R::Event& event : all) {
      EXPECT_TRUE(step(event, kNever).empty());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Writers, ReceiveSessionTest, testing::Bool(),
                         [](const auto& param) { return param.param ? "PeerWrites" : "WeWrite"; });

// A receiver whose own GPU may write a little longer.
class ReceiveSessionOfAGpu : public testing::Test {
 protected:
  using R = ReceiveSession;
  using State = ReceiveSession::State;

  std::vector<R::Effect> step(const R::Event& event, Instant now = kStart) {
    std::vector<R::Effect> effects;
    session_.step(event, now, effects);
    return effects;
  }

  ReceiveSession session_{{.link = kLink,
                           .rows = 20,
                           .row_bytes = 8,
                           .writes_late = true,
                           .deadline = kStart + seconds(10),
                           .stall_max = seconds(20)}};
};

TEST_F(ReceiveSessionOfAGpu, FailsAtOnceAndReleasesTheRowsWhenTheGpuHasLetGo) {
  const R::Event ends[] = {R::CancelRequested{kWhy}, R::PeerStopped{kLink, kWhy},
                           R::LinkLost{kLink, LinkLoss::kClosed, kWhy},
                           R::RowsAnnounced{kLink, {5, 1}}};
  const ReceiveSession fresh = session_;
  for (const R::Event& end : ends) {
    session_ = fresh;
    step(R::LinkReady{kLink});
    step(R::RowsAnnounced{kLink, {0, 10}});
    EXPECT_FALSE(find<R::ReportFailed>(step(end))->region_safe);
    ASSERT_EQ(session_.state(), State::kReleasing);
    EXPECT_EQ(session_.next_wakeup(), kNever);
    for (const R::Event& late : ends) {
      EXPECT_TRUE(step(late).empty());  // The end of the link says nothing about the GPU either.
    }
    EXPECT_TRUE(step(TimePassed{}, kNever).empty());
    EXPECT_NE(find<R::ReportReleased>(step(R::WritesEnded{})), nullptr);
    EXPECT_TRUE(session_.ended());
  }
}

TEST_F(ReceiveSessionOfAGpu, IsSafeBeforeItsGrantAndWhenItIsDone) {
  const ReceiveSession fresh = session_;
  EXPECT_TRUE(find<R::ReportFailed>(step(R::CancelRequested{kWhy}))->region_safe);
  EXPECT_TRUE(session_.ended());
  session_ = fresh;
  step(R::LinkReady{kLink});
  step(R::RowsAnnounced{kLink, {0, 10}});
  step(R::RowsArrived{10, 7});
  EXPECT_NE(find<R::ReportDone>(step(R::CommitReceived{kLink, 10, 80, 7})), nullptr);
  EXPECT_TRUE(session_.ended());
}

}  // namespace
}  // namespace pdjob::kvtransfer
