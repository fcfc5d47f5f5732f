#include "launcher/report/job_news.h"

#include <map>

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A job whose processes start, register and pass their probes at once.
class JobNewsTest : public testing::Test {
 protected:
  void step(const Event& event) {
    std::vector<Effect> effects;
    job_.step(event, now_, effects);
    lines_ += news_.look(job_, now_);
    for (const Effect& effect : effects) {
      if (const auto* spawn = std::get_if<Spawn>(&effect)) {
        step(Spawned{spawn->incarnation, 100});
        if (serves_) {
          serve(*spawn);
        }
      } else if (const auto* probe = std::get_if<Probe>(&effect)) {
        step(ProbeSucceeded{.probe = probe->probe, .kv_bytes = 1});
      } else if (const auto* send = std::get_if<Send>(&effect)) {
        if (const auto* told = std::get_if<net::Membership>(&send->message)) {
          step(MessageArrived{send->peer,
                              net::MembershipApplied{engine_ids_[send->peer], told->version}});
        }
      }
    }
  }
  void serve(const Spawn& spawned) {
    newest_ = spawned;
    engine_ids_[spawned.name] = spawned.engine_id;
    const net::Role role = spawned.name == "router-0" ? net::Role::kRouter : net::Role::kBoth;
    step(MessageArrived{spawned.name, net::Registered{.worker = {.name = spawned.name,
                                                                 .engine_id = spawned.engine_id,
                                                                 .role = role,
                                                                 .port = 1}}});
  }
  void pass(Duration duration) {
    now_ += duration;
    step(TimePassed{});
  }

  Job job_{{{"router-0", net::Role::kRouter}, {"decode-0", net::Role::kBoth}}, JobTiming{}, "n"};
  JobNews news_;
  Instant now_{seconds(1000)};
  std::string lines_;
  bool serves_ = true;
  Spawn newest_;
  std::map<std::string, std::string> engine_ids_;
};

TEST_F(JobNewsTest, TellsOfDeathsAndRecoveriesOfAReadyJobOnly) {
  step(Started{});
  ASSERT_EQ(job_.state(), JobState::kReady) << job_.waiting_for();
  EXPECT_EQ(lines_, "");
  serves_ = false;
  step(ProcessExited{.incarnation = newest_.incarnation, .how = "signal 9 (Killed)"});
  EXPECT_EQ(lines_, "decode-0 died: signal 9 (Killed); it is tried again in 0.2 s\n");
  pass(milliseconds(300));
  EXPECT_TRUE(lines_.ends_with("0.2 s\n")) << "it does not serve yet";
  serves_ = true;
  step(ProcessExited{.incarnation = {newest_.incarnation.value + 1}, .how = "exit code 1"});
  EXPECT_TRUE(lines_.ends_with("0.2 s\n")) << "one line for one absence";
  pass(seconds(5));
  EXPECT_TRUE(lines_.ends_with("0.2 s\ndecode-0 serves again\n")) << lines_;
}

}  // namespace
}  // namespace pdjob::launcher
