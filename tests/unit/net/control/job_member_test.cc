#include "net/control/job_member.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <variant>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

namespace pdjob::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Worker final : JobMember::Handler {
  void on_drain(Duration /*within*/) override { ++drains; }
  void on_next_role(const Drain::Next& /*next*/) override { ++next_roles; }
  void on_shutdown() override { ++shutdowns; }
  size_t replies_alive() override { return replies; }
  WorkerLoad current_load() override { return {}; }
  size_t replies = 0;
  int drains = 0;
  int next_roles = 0;
  int shutdowns = 0;
};

struct Launcher final : ControlClient {
  explicit Launcher(std::vector<Message>& heard) : sent(heard) {}
  void send(const Message& message) override { sent.push_back(message); }
  std::vector<Message>& sent;
};

class JobMemberTest : public testing::Test {
 protected:
  JobMemberTest() : member_(loop_, worker_, "decode-0", std::chrono::seconds(1)) {
    member_.attach(std::make_unique<Launcher>(sent_));
    member_.serve({.name = "decode-0", .engine_id = "decode-0.n.7"});
  }
  void hear(const Message& message) {
    static_cast<ControlClient::Handler&>(member_).on_message(message);
  }
  // Lives for a little more than one heartbeat. Returns how often it registered.
  long registrations_of_a_beat() {
    sent_.clear();
    loop_.call_at(loop_.now() + kHeartbeatInterval + milliseconds(50), [this] { loop_.stop(); });
    loop_.run();
    return std::ranges::count_if(
        sent_, [](const Message& one) { return std::holds_alternative<Registered>(one); });
  }

  HeartbeatSent heartbeat() {
    registrations_of_a_beat();
    const auto found = std::ranges::find_if(
        sent_, [](const Message& one) { return std::holds_alternative<HeartbeatSent>(one); });
    return found == sent_.end() ? HeartbeatSent{} : std::get<HeartbeatSent>(*found);
  }

  EventLoop loop_;
  Worker worker_;
  std::vector<Message> sent_;
  JobMember member_;
};

TEST_F(JobMemberTest, TheEngineThatItIsAlreadyIsAnnouncedAgainAndNotDrained) {
  hear(Acknowledge{});
  EXPECT_EQ(registrations_of_a_beat(), 0);
  hear(Drain{.deadline_ms = 1000, .next = {.engine_id = "decode-0.n.7"}});
  EXPECT_EQ(registrations_of_a_beat(), 1);
  EXPECT_EQ(worker_.drains, 0) << "an earlier launcher had ordered it, and it was done";
}

TEST_F(JobMemberTest, AnOrderToChangeItsRoleThatComesTwiceDrainsOnce) {
  hear(Acknowledge{});
  hear(Drain{.deadline_ms = 1000, .next = {.engine_id = "decode-0.n.8"}});
  hear(Drain{.deadline_ms = 1000, .next = {.engine_id = "decode-0.n.8"}});
  EXPECT_EQ(worker_.drains, 1);
}

TEST_F(JobMemberTest, ALaterOrderToEndTakesThePlaceOfTheChangeOfRole) {
  hear(Drain{.deadline_ms = 600'000, .next = {.engine_id = "decode-0.n.8"}});
  hear(Drain{.deadline_ms = 30});
  EXPECT_EQ(worker_.drains, 1);
  loop_.call_at(loop_.now() + milliseconds(500), [this] { loop_.stop(); });
  loop_.run();
  EXPECT_EQ(worker_.shutdowns, 1) << "at the new deadline";
  member_.drained();
  EXPECT_EQ(worker_.next_roles, 0);
}

TEST_F(JobMemberTest, ADrainedProcessEndsOnceItsLastReplyHasLeft) {
  hear(Drain{.deadline_ms = 60000});
  worker_.replies = 1;
  member_.drained();
  loop_.call_at(loop_.now() + milliseconds(30), [this] { loop_.stop(); });
  loop_.run();
  EXPECT_EQ(worker_.shutdowns, 0);
  worker_.replies = 0;
  loop_.call_at(loop_.now() + milliseconds(30), [this] { loop_.stop(); });
  loop_.run();
  EXPECT_EQ(worker_.shutdowns, 1);
}

TEST_F(JobMemberTest, HeartbeatsTellHowLongThreadsWaitedForCores) {
  RunDelays delays = {{getpid(), seconds(7)}, {1, seconds(3)}};
  member_.watch_cores([&] { return delays; });
  EXPECT_EQ(heartbeat().starved_permille, 0) << "what was before the first look is unknown";
  delays[1] += seconds(1000);
  const HeartbeatSent starved = heartbeat();
  EXPECT_EQ(starved.starved_permille, 1000) << "that of the thread that waited longest";
  EXPECT_EQ(starved.waited_us, 7'000'000U) << "that of the first thread";
  EXPECT_EQ(heartbeat().starved_permille, 0);
}

TEST_F(JobMemberTest, AChangeIsToldUntilItIsAcknowledgedItself) {
  hear(Acknowledge{});
  sent_.clear();
  member_.change({.name = "decode-0", .engine_id = "decode-0.n.7", .adapters = {"sql"}});
  ASSERT_EQ(sent_.size(), 1U) << "at once";
  const auto& told = std::get<Registered>(sent_[0]);
  EXPECT_EQ(told.worker.adapters, std::vector<std::string>{"sql"});
  hear(Acknowledge{});
  EXPECT_EQ(registrations_of_a_beat(), 1) << "that was of the entry before";
  hear(Acknowledge{.number = told.number});
  EXPECT_EQ(registrations_of_a_beat(), 0);
}

}  // namespace
}  // namespace pdjob::net
