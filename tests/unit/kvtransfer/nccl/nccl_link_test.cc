#include "kvtransfer/nccl/nccl_link.h"

#include <gtest/gtest.h>

namespace pdjob::kvtransfer {
namespace {

using std::chrono::seconds;
using State = NcclLink::State;
using Side = NcclLink::Side;

constexpr TransferId kTransfer{.high = 1, .low = 2};

NcclLink::Options options(Side side) {
  return {.side = side,
          .slabs = 2,
          .slab_bytes = 100,
          .init_timeout = seconds(20),
          .slab_timeout = seconds(10),
          .abort_timeout = seconds(5)};
}

// One core, and the effects of its last step.
class End {
 public:
  explicit End(Side side) : core(options(side)) {}

  void step(const NcclLink::Event& event) {
    effects.clear();
    core.step(event, now, effects);
  }
  template <class Effect>
  const Effect* find() const {
    for (const NcclLink::Effect& effect : effects) {
      if (const auto* found = std::get_if<Effect>(&effect)) {
        return found;
      }
    }
    return nullptr;
  }
  template <class Message>
  const Message* sent() const {
    for (const NcclLink::Effect& effect : effects) {
      if (const auto* send = std::get_if<NcclLink::Send>(&effect)) {
        if (const auto* message = std::get_if<Message>(&send->message)) {
          return message;
        }
      }
    }
    return nullptr;
  }
  void expect_failed(ErrorCode code) const {
    ASSERT_NE(find<NcclLink::FailLink>(), nullptr);
    EXPECT_EQ(find<NcclLink::FailLink>()->reason.code, code);
    EXPECT_NE(find<NcclLink::Abort>(), nullptr);
    EXPECT_EQ(core.state(), State::kAborting);
  }
  // Checks that the core does nothing until just before its deadline, then passes the deadline.
  void let_time_pass() {
    ASSERT_NE(core.next_wakeup(), kNever);
    now = core.next_wakeup() - Duration(1);
    step(TimePassed{});
    EXPECT_TRUE(effects.empty());
    now = core.next_wakeup();
    step(TimePassed{});
  }

  NcclLink core;
  Instant now{};
  std::vector<NcclLink::Effect> effects;
};

struct Opened {
  Opened() {
    receiver.step(NcclLink::Wanted{});
    receiver.step(NcclLink::IdMade{.epoch = 1});
    sender.step(*receiver.sent<NcclOffer>());
    receiver.step(NcclLink::Joined{1});
    sender.step(NcclLink::Joined{1});
    EXPECT_EQ(receiver.core.state(), State::kReady);
    EXPECT_EQ(sender.core.state(), State::kReady);
  }
  // Packs a slab. Returns the sender's message for it.
  NcclSlab pack(uint32_t bytes = 100) {
    const uint32_t slab = *sender.core.free_slab();
    sender.step(NcclLink::Taken{slab});
    sender.step(NcclLink::Packed{.slab = slab, .bytes = bytes, .transfer = kTransfer});
    return *sender.sent<NcclSlab>();
  }
  // Moves a slab. Returns the effect that tells the receiver to empty it.
  NcclLink::TellFilled move(const NcclSlab& slab) {
    receiver.step(slab);
    const uint32_t to = receiver.find<NcclLink::StartReceive>()->slab;
    sender.step(*receiver.sent<NcclPosted>());
    const uint32_t from = sender.find<NcclLink::StartSend>()->slab;
    sender.step(NcclLink::Moved{1, from});
    receiver.step(NcclLink::Moved{1, to});
    return *receiver.find<NcclLink::TellFilled>();
  }

  End receiver{Side::kReceiver}, sender{Side::kSender};
};

TEST(NcclLink, OpensWhenATransferWaits) {
  End receiver(Side::kReceiver), sender(Side::kSender);
  EXPECT_EQ(receiver.core.next_wakeup(), kNever);
  receiver.step(NcclLink::Wanted{});
  EXPECT_EQ(receiver.find<NcclLink::MakeId>()->epoch, 1);
  receiver.step(NcclLink::IdMade{.epoch = 1, .id = {std::byte{7}}});
  EXPECT_EQ(receiver.find<NcclLink::Join>()->rank, 0);
  sender.step(*receiver.sent<NcclOffer>());
  EXPECT_EQ(sender.find<NcclLink::Join>()->rank, 1);
  EXPECT_EQ(sender.find<NcclLink::Join>()->id[0], std::byte{7});
  EXPECT_FALSE(sender.core.free_slab());
  sender.step(NcclLink::Joined{1});
  EXPECT_NE(sender.find<NcclLink::TellFree>(), nullptr);
  EXPECT_TRUE(sender.core.free_slab());
}

TEST(NcclLink, SlabMovesWhenBothEndsAreReadyForIt) {
  Opened link;
  const NcclSlab first = link.pack(), second = link.pack(50);
  EXPECT_EQ(link.sender.find<NcclLink::StartSend>(), nullptr);
  EXPECT_FALSE(link.sender.core.free_slab());
  const NcclLink::TellFilled filled = link.move(first);
  EXPECT_EQ(filled.bytes, 100);
  EXPECT_EQ(filled.transfer, kTransfer);
  EXPECT_TRUE(link.sender.core.free_slab());
  EXPECT_EQ(link.move(second).bytes, 50);
  EXPECT_TRUE(link.sender.core.at_rest());
  EXPECT_FALSE(link.receiver.core.at_rest());
}

TEST(NcclLink, ReceiverWithoutAFreeSlabPostsWhenOneIsEmptied) {
  Opened link;
  const uint32_t filled = link.move(link.pack()).slab;
  link.move(link.pack());
  const NcclSlab third = link.pack();
  link.receiver.step(third);
  EXPECT_TRUE(link.receiver.effects.empty());
  link.receiver.step(NcclLink::Emptied{filled});
  EXPECT_EQ(link.receiver.find<NcclLink::StartReceive>()->slab, filled);
  EXPECT_EQ(link.receiver.sent<NcclPosted>()->number, third.number);
}

TEST(NcclLink, SlabThatComesWhileTheReceiverJoinsIsReceivedThen) {
  End receiver(Side::kReceiver);
  receiver.step(NcclLink::Wanted{});
  receiver.step(NcclLink::IdMade{1});
  receiver.step(NcclSlab{.epoch = 1, .number = 0, .bytes = 1});
  EXPECT_TRUE(receiver.effects.empty());
  receiver.step(NcclLink::Joined{1});
  EXPECT_NE(receiver.find<NcclLink::StartReceive>(), nullptr);
  receiver.step(NcclSlab{.epoch = 1, .number = 1, .bytes = 1});
  EXPECT_EQ(receiver.sent<NcclPosted>()->number, 1);
}

TEST(NcclLink, EveryWaitEndsAtItsDeadline) {
  {
    End receiver(Side::kReceiver);
    receiver.step(NcclLink::Wanted{});
    receiver.let_time_pass();
    receiver.expect_failed(ErrorCode::kTimeout);
  }
  {
    End sender(Side::kSender);
    sender.step(NcclOffer{.epoch = 1});
    sender.let_time_pass();
    sender.expect_failed(ErrorCode::kTimeout);
  }
  {
    Opened link;  // Never posted.
    link.pack();
    link.sender.let_time_pass();
    link.sender.expect_failed(ErrorCode::kTimeout);
  }
  {
    Opened link;  // Never received.
    link.receiver.step(link.pack());
    link.receiver.let_time_pass();
    link.receiver.expect_failed(ErrorCode::kTimeout);
  }
  {
    Opened link;  // Never answered.
    link.receiver.step(NcclLink::LeaveRequested{});
    link.receiver.let_time_pass();
    link.receiver.expect_failed(ErrorCode::kTimeout);
  }
  {
    Opened link;  // Never left.
    link.sender.step(NcclLink::LeaveRequested{});
    EXPECT_EQ(link.sender.core.state(), State::kDraining);
    link.sender.let_time_pass();
    link.sender.expect_failed(ErrorCode::kTimeout);
  }
}

TEST(NcclLink, RestHasNoDeadline) {
  Opened link;
  const uint32_t slab = link.move(link.pack()).slab;
  link.receiver.step(NcclLink::Emptied{slab});
  EXPECT_EQ(link.receiver.core.next_wakeup(), kNever);
  EXPECT_EQ(link.sender.core.next_wakeup(), kNever);
  link.sender.now += std::chrono::hours(1);
  link.sender.step(TimePassed{});
  EXPECT_TRUE(link.sender.effects.empty());
}

TEST(NcclLink, AbortThatDoesNotReturnIsReportedOnce) {
  Opened link;
  link.sender.step(NcclLink::LinkLost{});
  EXPECT_NE(link.sender.find<NcclLink::Abort>(), nullptr);
  EXPECT_EQ(link.sender.find<NcclLink::FailLink>(), nullptr);
  link.sender.let_time_pass();
  link.sender.let_time_pass();
  EXPECT_NE(link.sender.find<NcclLink::ReportStuck>(), nullptr);
  EXPECT_EQ(link.sender.core.next_wakeup(), kNever);
}

// A worker that was stopped (SIGSTOP) for longer than the timeout ended itself.
TEST(NcclLink, AbortHasTimeToReturnAfterTheProcessWasStopped) {
  Opened link;
  link.sender.step(NcclLink::LinkLost{});
  link.sender.now = link.sender.core.next_wakeup() + std::chrono::minutes(1);
  link.sender.step(TimePassed{});
  EXPECT_EQ(link.sender.find<NcclLink::ReportStuck>(), nullptr);
  EXPECT_GT(link.sender.core.next_wakeup(), link.sender.now);
}

TEST(NcclLink, LostLinkIsClosedWhenNcclHasLetGo) {
  Opened link;
  link.pack();
  link.sender.step(NcclLink::LinkLost{});
  EXPECT_EQ(link.sender.core.state(), State::kAborting);
  link.sender.step(NcclLink::Left{1});
  EXPECT_EQ(link.sender.core.state(), State::kClosed);
  End idle(Side::kReceiver);
  idle.step(NcclLink::LinkLost{});
  EXPECT_EQ(idle.core.state(), State::kClosed);
  EXPECT_TRUE(idle.effects.empty());
}

TEST(NcclLink, FailureAbortsOnceAndTellsTheLink) {
  Opened link;
  link.receiver.step(NcclLink::Failed{1, {ErrorCode::kUnavailable, "remote error"}});
  link.receiver.expect_failed(ErrorCode::kUnavailable);
  link.receiver.step(NcclLink::Failed{1, {ErrorCode::kUnavailable, "again"}});
  EXPECT_TRUE(link.receiver.effects.empty());
  link.receiver.step(NcclLink::LinkLost{});
  EXPECT_TRUE(link.receiver.effects.empty());
  link.receiver.step(NcclLink::Moved{1, 0});  // Late results are ignored.
  link.receiver.step(NcclSlab{.epoch = 1, .bytes = 1});
  EXPECT_TRUE(link.receiver.effects.empty());
}

TEST(NcclLink, LeavesAndOpensTheNextEpoch) {
  Opened link;
  link.receiver.step(NcclLink::Wanted{.wanted = false});
  link.receiver.step(NcclLink::LeaveRequested{});
  EXPECT_EQ(link.receiver.core.state(), State::kReady);
  link.sender.step(*link.receiver.sent<NcclLeave>());
  EXPECT_EQ(link.sender.core.state(), State::kDraining);
  link.receiver.step(*link.sender.sent<NcclLeave>());
  EXPECT_NE(link.receiver.find<NcclLink::Leave>(), nullptr);
  link.receiver.step(NcclLink::Left{1});
  EXPECT_EQ(link.receiver.core.state(), State::kIdle);
  // The receiver may open the next epoch before the sender has left.
  link.receiver.step(NcclLink::Wanted{});
  EXPECT_EQ(link.receiver.find<NcclLink::MakeId>()->epoch, 2);
  link.receiver.step(NcclLink::IdMade{2});
  link.sender.step(*link.receiver.sent<NcclOffer>());
  EXPECT_TRUE(link.sender.effects.empty());
  link.sender.step(NcclLink::Left{1});
  EXPECT_EQ(link.sender.find<NcclLink::Join>()->epoch, 2);
  // Events of the old epoch are ignored.
  for (const NcclLink::Event& old : std::vector<NcclLink::Event>{
           NcclLink::Joined{1}, NcclLink::Moved{1, 0}, NcclLink::Failed{1, {}}, NcclLink::Left{1},
           NcclPosted{.epoch = 1}, NcclLeave{1}}) {
    link.sender.step(old);
    EXPECT_TRUE(link.sender.effects.empty());
    EXPECT_EQ(link.sender.core.state(), State::kInit);
  }
}

TEST(NcclLink, SenderLeavesWhenItsLastSlabIsSent) {
  Opened link;
  const NcclSlab slab = link.pack();
  link.sender.step(NcclLink::LeaveRequested{});
  EXPECT_EQ(link.sender.core.state(), State::kReady);
  EXPECT_FALSE(link.sender.core.free_slab());
  link.receiver.step(slab);
  link.sender.step(*link.receiver.sent<NcclPosted>());
  link.sender.step(NcclLink::Moved{1, 0});
  EXPECT_EQ(link.sender.core.state(), State::kDraining);
  // The receiver must still see the slab arrive, and empty it.
  link.receiver.step(*link.sender.sent<NcclLeave>());
  EXPECT_EQ(link.receiver.core.state(), State::kReady);
  link.receiver.step(NcclLink::Moved{1, 0});
  EXPECT_EQ(link.receiver.core.state(), State::kReady);
  link.receiver.step(NcclLink::Emptied{0});
  EXPECT_EQ(link.receiver.core.state(), State::kDraining);
  // Transfers still wait for rows, so the link opens again by itself.
  link.receiver.step(NcclLink::Left{1});
  EXPECT_EQ(link.receiver.find<NcclLink::MakeId>()->epoch, 2);
  // The sender's leave belonged to the old epoch.
  link.receiver.step(NcclSlab{.epoch = 2, .number = 0, .bytes = 1});
  EXPECT_EQ(link.receiver.core.state(), State::kInit);
}

// One end may have joined and ask to leave before the other end knows that it has joined itself.
struct Opening {
  Opening() {
    receiver.step(NcclLink::Wanted{});
    receiver.step(NcclLink::IdMade{.epoch = 1});
    sender.step(*receiver.sent<NcclOffer>());
    receiver.step(NcclLink::Wanted{.wanted = false});  // The first transfer was cancelled.
  }

  End receiver{Side::kReceiver}, sender{Side::kSender};
};

// Regression: the receiver stayed ready for good, while its sender had left.
TEST(NcclLink, ReceiverLeavesWhenItHasJoinedWhatItsSenderHasLeft) {
  Opening link;
  link.sender.step(NcclLink::Joined{1});
  link.sender.step(NcclLink::LeaveRequested{});
  link.receiver.step(*link.sender.sent<NcclLeave>());
  EXPECT_EQ(link.receiver.core.state(), State::kInit);
  EXPECT_EQ(link.receiver.core.next_wakeup(), Instant{} + seconds(20)) << "that of joining";
  EXPECT_FALSE(link.receiver.core.stays());
  link.receiver.now += seconds(15);
  link.receiver.step(NcclLink::Joined{1});
  EXPECT_EQ(link.receiver.core.state(), State::kDraining);
  EXPECT_EQ(link.receiver.core.next_wakeup(), link.receiver.now + seconds(10));
  link.receiver.step(NcclLink::Wanted{});
  link.receiver.step(NcclLink::Left{1});
  EXPECT_EQ(link.receiver.find<NcclLink::MakeId>()->epoch, 2);
}

// The sender's slabs were on their way while the receiver joined.
TEST(NcclLink, ReceiverThatJoinsLateEmptiesTheLastSlabsBeforeItLeaves) {
  Opening link;
  link.receiver.step(NcclSlab{.epoch = 1, .number = 0, .bytes = 1});
  link.receiver.step(NcclLeave{1});
  link.receiver.step(NcclLink::Joined{1});
  EXPECT_EQ(link.receiver.core.state(), State::kReady);
  link.receiver.step(NcclLink::Moved{1, link.receiver.find<NcclLink::StartReceive>()->slab});
  link.receiver.step(NcclLink::Emptied{link.receiver.find<NcclLink::TellFilled>()->slab});
  EXPECT_EQ(link.receiver.core.state(), State::kDraining);
}

// Regression: new transfers ran until the receiver's wait timed out and it aborted them all.
TEST(NcclLink, SenderLeavesWhenItHasJoinedWhatItsReceiverWantsToLeave) {
  Opening link;
  link.receiver.step(NcclLink::Joined{1});
  link.receiver.step(NcclLink::LeaveRequested{});
  link.sender.step(*link.receiver.sent<NcclLeave>());
  EXPECT_EQ(link.sender.core.state(), State::kInit);
  link.sender.step(NcclLink::Joined{1});
  EXPECT_FALSE(link.sender.core.free_slab());
  EXPECT_EQ(link.sender.core.state(), State::kDraining);
  link.receiver.step(*link.sender.sent<NcclLeave>());
  EXPECT_EQ(link.receiver.core.state(), State::kDraining);
}

TEST(NcclLink, DroppedSlabIsFreeAgain) {
  Opened link;
  link.sender.step(NcclLink::Taken{0});
  EXPECT_EQ(link.sender.core.free_slab(), 1);
  link.sender.step(NcclLink::Dropped{0});
  EXPECT_EQ(link.sender.core.free_slab(), 0);
}

// --- rows that a GPU reads or writes itself

constexpr TransferId kOther{.high = 1, .low = 3};

// Returns whether the last step gave back the rows of kTransfer.
bool releases(const End& end) {
  const auto* release = end.find<NcclLink::Release>();
  return release != nullptr && release->transfer == kTransfer;
}

TEST(NcclLink, RowsAreGivenBackAtOnceWhereNoneOfTheirSlabsIsUnderWay) {
  Opened link;
  link.pack();
  for (End* const end : {&link.sender, &link.receiver}) {
    end->step(NcclLink::Ended{kOther});
    EXPECT_EQ(end->find<NcclLink::Release>()->transfer, kOther);
  }
  End idle(Side::kReceiver);
  idle.step(NcclLink::Ended{kTransfer});
  EXPECT_TRUE(releases(idle));
}

// The receiver's kernels wait for every slab that was announced.
TEST(NcclLink, SenderGivesRowsBackWhenTheLastSlabThatWasAnnouncedIsSent) {
  Opened link;
  const NcclSlab first = link.pack(), second = link.pack();
  link.sender.step(NcclLink::Ended{kTransfer});
  EXPECT_FALSE(releases(link.sender));
  link.receiver.step(first);
  link.sender.step(*link.receiver.sent<NcclPosted>());
  link.sender.step(NcclLink::Moved{1, 0});
  EXPECT_FALSE(releases(link.sender));
  link.receiver.step(second);
  link.sender.step(*link.receiver.sent<NcclPosted>());
  EXPECT_FALSE(releases(link.sender));
  link.sender.step(NcclLink::Moved{1, 1});
  EXPECT_TRUE(releases(link.sender));
}

TEST(NcclLink, ReceiverGivesRowsBackWhenTheLastSlabThatItPostedHasCome) {
  Opened link;
  const NcclSlab first = link.pack(), second = link.pack();
  link.receiver.step(first);
  link.receiver.step(second);
  link.receiver.step(NcclLink::Ended{kTransfer});
  EXPECT_FALSE(releases(link.receiver));
  link.receiver.step(NcclLink::Moved{1, 0});
  EXPECT_FALSE(releases(link.receiver));
  link.receiver.step(NcclLink::Moved{1, 1});
  EXPECT_TRUE(releases(link.receiver));
}

TEST(NcclLink, SlabThatIsNotPostedHoldsNoRowsOfTheReceiver) {
  Opened link;
  link.move(link.pack());
  link.move(link.pack());
  link.receiver.step(link.pack());  // The receiver has no free slab for it.
  link.receiver.step(NcclLink::Ended{kTransfer});
  EXPECT_TRUE(releases(link.receiver));
}

// Copies behind an aborted kernel still run.
TEST(NcclLink, AfterAnAbortRowsAreGivenBackWhenTheGpuIsAtRest) {
  Opened link;
  link.receiver.step(link.pack());
  link.sender.step(*link.receiver.sent<NcclPosted>());
  for (End* const end : {&link.sender, &link.receiver}) {
    end->step(NcclLink::Ended{kTransfer});
    end->step(NcclLink::LinkLost{});
    EXPECT_FALSE(releases(*end));
    // This slab has moved, but other work may still be on the stream.
    end->step(NcclLink::Moved{1, 0});
    EXPECT_FALSE(releases(*end));
    end->step(NcclLink::Left{1});
    EXPECT_TRUE(releases(*end));
    end->step(NcclLink::Ended{kTransfer});
    EXPECT_TRUE(releases(*end));
  }
}

TEST(NcclLink, AbortGivesBackRowsOfSlabsThatWereOnlyAnnounced) {
  Opened link;
  link.pack();
  link.sender.step(NcclLink::Ended{kTransfer});
  EXPECT_FALSE(releases(link.sender));
  link.sender.step(NcclLink::LinkLost{});
  EXPECT_TRUE(releases(link.sender));
}

TEST(NcclLink, BrokenPromisesFailTheLink) {
  for (const NcclSlab& wrong : {NcclSlab{.epoch = 1, .number = 1, .bytes = 1},
                                NcclSlab{.epoch = 1, .number = 0, .bytes = 0},
                                NcclSlab{.epoch = 1, .number = 0, .bytes = 101}}) {
    Opened link;
    link.receiver.step(wrong);
    link.receiver.expect_failed(ErrorCode::kCorrupt);
  }
  {
    Opened link;  // Posted before it was announced.
    link.sender.step(NcclPosted{.epoch = 1, .number = 0});
    link.sender.expect_failed(ErrorCode::kCorrupt);
  }
  {
    Opened link;  // Posted out of order.
    link.pack();
    link.pack();
    link.sender.step(NcclPosted{.epoch = 1, .number = 1});
    link.sender.expect_failed(ErrorCode::kCorrupt);
  }
  {
    Opened link;  // An offer while another one is open.
    link.sender.step(NcclOffer{.epoch = 2});
    link.sender.expect_failed(ErrorCode::kCorrupt);
  }
  {
    Opened link;  // More slabs than exist.
    for (uint64_t number = 0; number < 4; ++number) {
      link.receiver.step(NcclSlab{.epoch = 1, .number = number, .bytes = 1});
    }
    link.receiver.step(NcclSlab{.epoch = 1, .number = 4, .bytes = 1});
    link.receiver.expect_failed(ErrorCode::kCorrupt);
  }
  {
    Opened link;  // A slab after the last one.
    const NcclSlab slab = link.pack();
    link.receiver.step(slab);
    link.receiver.step(NcclLeave{1});
    link.receiver.step(NcclSlab{.epoch = 1, .number = 1, .bytes = 1});
    link.receiver.expect_failed(ErrorCode::kCorrupt);
  }
}

}  // namespace
}  // namespace pdjob::kvtransfer
