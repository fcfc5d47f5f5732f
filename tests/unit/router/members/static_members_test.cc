#include "router/members/static_members.h"

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "router/members/engine_routes.h"

namespace pdjob::router {
namespace {

using How = StaticMembers::Answered::How;
using Question = StaticMembers::Question;
using std::chrono::milliseconds;

constexpr std::string_view kDescribed = R"({"name":"p0","model":"m"})";
constexpr std::string_view kModels = R"({"data":[{"id":"m"}]})";

// Two addresses: h:1 is worker 0, a prefill worker, and h:2 is worker 1, a decode worker.
struct StaticMembersTest : testing::Test {
  void watch(RouterConfig config = {}) {
    members = std::make_unique<StaticMembers>(
        std::vector<StaticWorker>{{net::Role::kPrefill, {"h", 1}}, {net::Role::kDecode, {"h", 2}}},
        "key", config);
    pass({});
  }
  void pass(Duration time) {
    now += time;
    step(TimePassed{});
  }
  void step(const StaticMembers::Event& event) {
    std::vector<StaticMembers::Effect> effects;
    members->step(event, now, effects);
    for (StaticMembers::Effect& effect : effects) {
      std::visit([this](auto& one) { take(one); }, effect);
    }
  }
  void take(const StaticMembers::Ask& ask) {
    asked += ask.address.to_string() + std::string(ask.path) + ' ';
  }
  void take(StaticMembers::Tell& tell) {
    if (const auto* changed = std::get_if<WorkersChanged>(&tell.event)) {
      there.clear();
      for (const net::WorkerEntry& worker : changed->workers) {
        there.push_back(worker);
      }
    } else if (const auto* probed = std::get_if<WorkerProbed>(&tell.event)) {
      told += probed->name +
              (probed->reachable ? " well"
               : probed->silent  ? " silent"
                                 : " unwell") +
              ' ';
    } else if (const auto* nobody = std::get_if<NobodyThere>(&tell.event)) {
      told += "nobody: " + nobody->why;
    } else if (const auto* load = std::get_if<LoadChanged>(&tell.event)) {
      told += load->name + " load ";
    }
  }
  void take(const StaticMembers::Left& effect) { left += effect.address.to_string() + ' '; }
  void take(const StaticMembers::Note& note) {
    (note.is_warning ? warnings : notes).push_back(note.text);
  }
  void answer(size_t worker, Question question, int status, std::string_view body = "") {
    step(StaticMembers::Answered{worker, question, How::kReply, status, std::string(body)});
  }
  void answer(size_t worker, Question question, How how) {
    step(StaticMembers::Answered{.worker = worker, .question = question, .how = how});
  }
  // The next poll of worker 0 fails.
  void fail(How how) {
    pass(StaticMembers::kPollInterval);
    answer(0, Question::kDescription, how);
  }
  void become_foreign(size_t worker) {
    answer(worker, Question::kDescription, 404);
    answer(worker, Question::kHealth, 200);
  }
  // What was asked since the last call.
  std::string questions() { return std::exchange(asked, ""); }
  std::string events() { return std::exchange(told, ""); }

  Instant now = Instant{} + std::chrono::hours(1);
  std::unique_ptr<StaticMembers> members;
  std::string asked;
  std::string told;
  std::string left;
  std::vector<net::WorkerEntry> there;
  std::vector<std::string> warnings;
  std::vector<std::string> notes;
};

TEST_F(StaticMembersTest, AreAskedEverySecond) {
  watch();
  EXPECT_EQ(questions(), "h:1/pdjob/worker h:2/pdjob/worker ");
  EXPECT_EQ(members->next_wakeup(), kNever) << "both answers are pending";
  now += milliseconds(300);
  answer(0, Question::kDescription, 200, kDescribed);
  EXPECT_EQ(members->next_wakeup(), now + StaticMembers::kPollInterval);
  pass(StaticMembers::kPollInterval - milliseconds(1));
  EXPECT_EQ(questions(), "");
  pass(milliseconds(1));
  EXPECT_EQ(questions(), "h:1/pdjob/worker ");
}

TEST_F(StaticMembersTest, DescribeThemselves) {
  watch();
  answer(0, Question::kDescription, 200, kDescribed);
  ASSERT_EQ(there.size(), 1U);
  EXPECT_EQ(there[0].name, "p0");
  EXPECT_EQ(there[0].role, net::Role::kPrefill);
  EXPECT_EQ(there[0].host, "h");
  EXPECT_EQ(there[0].port, 1);
  EXPECT_EQ(there[0].key, "key");
  EXPECT_EQ(events(), "p0 well p0 load ");
  EXPECT_EQ(notes, std::vector<std::string>{"worker p0 (prefill) at h:1 is here"});
  there.clear();
  pass(StaticMembers::kPollInterval);
  answer(0, Question::kDescription, 200, kDescribed);
  EXPECT_TRUE(there.empty()) << "nothing changed";
  EXPECT_EQ(events(), "p0 well p0 load ");
}

TEST_F(StaticMembersTest, WithOneNameAreToldApartByTheirAddresses) {
  watch();
  answer(0, Question::kDescription, 200, kDescribed);
  answer(1, Question::kDescription, 200, kDescribed);
  ASSERT_EQ(there.size(), 2U);
  EXPECT_EQ(there[1].name, "h:2");
}

TEST_F(StaticMembersTest, LeaveWhenTheyDrain) {
  watch();
  answer(0, Question::kDescription, 200, kDescribed);
  pass(StaticMembers::kPollInterval);
  answer(0, Question::kDescription, 200, R"({"name":"p0","draining":true})");
  EXPECT_TRUE(there.empty());
  EXPECT_EQ(left, "h:1 ");
  EXPECT_EQ(members->next_wakeup(), now + StaticMembers::kPollInterval);
}

TEST_F(StaticMembersTest, LeaveWhenTheirAddressRefusesForAWhileAndComeBack) {
  watch();
  answer(0, Question::kDescription, 200, kDescribed);
  events();
  fail(How::kFailure);
  fail(How::kFailure);
  EXPECT_EQ(there.size(), 1U);
  fail(How::kFailure);
  EXPECT_EQ(events(), "p0 unwell p0 unwell p0 unwell ");
  EXPECT_TRUE(there.empty());
  EXPECT_EQ(left, "h:1 ");
  EXPECT_EQ(warnings, std::vector<std::string>{"worker p0 is gone"});
  pass(StaticMembers::kPollInterval);
  answer(0, Question::kDescription, 200, kDescribed);
  EXPECT_EQ(there.size(), 1U);
}

TEST_F(StaticMembersTest, StayWhileTheyConnectButDoNotAnswer) {
  watch();
  answer(0, Question::kDescription, 200, kDescribed);
  events();
  for (int i = 0; i < 5; ++i) {
    fail(How::kSilence);
  }
  EXPECT_EQ(events(), "p0 unwell p0 unwell p0 silent p0 silent p0 silent ");
  EXPECT_EQ(there.size(), 1U);
  EXPECT_EQ(warnings.size(), 1U) << "it is said once";
  pass(StaticMembers::kPollInterval);
  answer(0, Question::kDescription, 200, kDescribed);
  EXPECT_EQ(events(), "p0 well p0 load ");
  fail(How::kSilence);
  EXPECT_EQ(events(), "p0 unwell ") << "it is counted anew";
}

TEST_F(StaticMembersTest, AreMissedWhenNobodyHasEverAnswered) {
  watch();
  answer(0, Question::kDescription, How::kFailure);
  EXPECT_EQ(events(), "");
  answer(1, Question::kDescription, How::kFailure);
  EXPECT_EQ(events(),
            "nobody: no worker has answered yet, of 2 that this router was given, first h:1");
  EXPECT_EQ(warnings,
            (std::vector<std::string>{"no worker answers at h:1: it gets requests once it does",
                                      "no worker answers at h:2: it gets requests once it does"}));
  fail(How::kFailure);
  EXPECT_EQ(warnings.size(), 2U);
}

TEST_F(StaticMembersTest, ThatDescribeNothingAreForeignEngines) {
  watch();
  questions();
  answer(1, Question::kDescription, 404);
  EXPECT_EQ(questions(), "h:2/health ");
  answer(1, Question::kHealth, 200);
  EXPECT_EQ(questions(), "h:2/v1/models ");
  EXPECT_TRUE(there.empty());
  answer(1, Question::kModels, 200, kModels);
  ASSERT_EQ(there.size(), 1U);
  EXPECT_EQ(there[0].name, "h:2");
  EXPECT_EQ(there[0].model, "m");
  EXPECT_EQ(there[0].protocol, Protocol::kNixl);
  EXPECT_EQ(notes, std::vector<std::string>{"worker h:2 (decode) at h:2 is a foreign engine"});
  pass(StaticMembers::kPollInterval);
  EXPECT_EQ(questions(), "h:2/health ");
  answer(1, Question::kHealth, 200);
  EXPECT_EQ(questions(), "") << "its model is known";
  EXPECT_EQ(events(), "h:2 well h:2 well ");
}

TEST_F(StaticMembersTest, ThatSendGarbageAreForeignEnginesIfTheyAreHealthy) {
  watch();
  questions();
  answer(0, Question::kDescription, How::kGarbage);
  EXPECT_EQ(questions(), "h:1/health ");
  answer(0, Question::kHealth, How::kGarbage);
  EXPECT_TRUE(there.empty());
  pass(StaticMembers::kPollInterval);
  EXPECT_EQ(questions(), "h:1/pdjob/worker ") << "another worker may have its address now";
}

TEST_F(StaticMembersTest, WithoutAHealthPathAreAskedForTheirModels) {
  watch();
  questions();
  for (const int status : {404, 405}) {
    answer(1, Question::kHealth, status);
    EXPECT_EQ(questions(), "h:2/v1/models ");
  }
  answer(1, Question::kModels, 401);
  ASSERT_EQ(there.size(), 1U);
  EXPECT_EQ(there[0].model, "") << "it serves any model";
}

TEST_F(StaticMembersTest, ThatAreUnhealthyStayIfTheyAreThere) {
  watch();
  become_foreign(1);
  answer(1, Question::kModels, 200, kModels);
  events();
  for (uint32_t i = 0; i < StaticMembers::kSilencesMax; ++i) {
    answer(1, Question::kHealth, 503);
  }
  EXPECT_EQ(events(), "h:2 unwell h:2 unwell h:2 silent ");
  EXPECT_EQ(there.size(), 1U);
}

TEST_F(StaticMembersTest, ThatAreNoPdjobWorkersAreRefusedWhereThoseAreWanted) {
  watch({.protocol = Protocol::kPdjob});
  for (int i = 0; i < 2; ++i) {
    answer(0, Question::kDescription, 404);
  }
  EXPECT_TRUE(there.empty());
  EXPECT_EQ(warnings, std::vector<std::string>{"h:1 is of no use: it is no pdjob worker, and "
                                               "router.protocol asks for one"});
}

TEST_F(StaticMembersTest, ThatWantAKeyAreRefusedWithTheReason) {
  watch();
  answer(0, Question::kDescription, 401, "a pdjob worker wants a key");
  EXPECT_TRUE(there.empty());
  EXPECT_EQ(warnings, std::vector<std::string>{"h:1 is of no use: it wants a key: start this "
                                               "router with --worker-key-file"});
}

TEST_F(StaticMembersTest, AreNotAskedToDescribeThemselvesInAForeignProtocol) {
  watch({.protocol = Protocol::kNixl});
  EXPECT_EQ(questions(), "h:1/health h:2/health ");
}

TEST_F(StaticMembersTest, OfMooncakeAreMetOnceTheirBootstrapServerNamesThem) {
  watch({.protocol = Protocol::kMooncake, .bootstrap_port = 7});
  answer(0, Question::kHealth, 404);
  questions();
  answer(0, Question::kModels, 200, kModels);
  EXPECT_EQ(questions(), "h:7/query ");
  answer(0, Question::kEngines, 200, "{}");
  EXPECT_EQ(warnings,
            std::vector<std::string>{"h:1 is of no use: its bootstrap server h:7 names no engine"});
  EXPECT_TRUE(there.empty());
  answer(0, Question::kEngines, 200, R"({"0":{"engine_id":"e"}})");
  ASSERT_EQ(there.size(), 1U);
  EXPECT_NE(there[0].kv_address.find("h:7"), std::string::npos) << there[0].kv_address;
  answer(1, Question::kModels, 200, kModels);
  EXPECT_EQ(there.size(), 2U) << "a decode worker has none";
}

TEST_F(StaticMembersTest, OfSglangHaveTheAddressOfTheirBootstrapServer) {
  watch({.protocol = Protocol::kSglang, .bootstrap_port = 7});
  answer(0, Question::kModels, 200, kModels);
  ASSERT_EQ(there.size(), 1U);
  EXPECT_NE(there[0].kv_address.find('7'), std::string::npos) << there[0].kv_address;
}

TEST_F(StaticMembersTest, WarnOfPairsThatCannotHandOver) {
  watch();
  answer(0, Question::kDescription, 200, kDescribed);
  become_foreign(1);
  answer(1, Question::kModels, 200, kModels);
  EXPECT_EQ(warnings, std::vector<std::string>{
                          "no KV can go from p0 to h:2, so h:2 computes prompts again: they speak "
                          "different protocols"});
}

constexpr std::string_view kWithAdapter =
    R"({"data":[{"id":"m","created":7,"max_model_len":2048},{"id":"sql","parent":"m"}]})";

TEST_F(StaticMembersTest, AreAskedForTheirAdaptersNowAndThen) {
  watch();
  become_foreign(1);
  answer(1, Question::kModels, 200, kModels);
  ASSERT_EQ(there.size(), 1U);
  EXPECT_EQ(there[0].adapters, std::vector<std::string>{});
  questions();
  pass(StaticMembers::kPollInterval);
  answer(1, Question::kHealth, 200);
  EXPECT_EQ(questions(), "h:2/health ");
  pass(StaticMembers::kModelsInterval);
  answer(1, Question::kHealth, 200);
  EXPECT_EQ(questions(), "h:2/health h:2/v1/models ");
  answer(1, Question::kModels, 200, kWithAdapter);
  EXPECT_EQ(there[0].model, "m");
  EXPECT_EQ(there[0].adapters, std::vector<std::string>{"sql"});
  EXPECT_EQ(notes.back(), "worker h:2 (decode) at h:2 has 1 adapters");
  pass(StaticMembers::kModelsInterval);
  answer(1, Question::kHealth, 200);
  answer(1, Question::kModels, 500);
  EXPECT_EQ(there[0].adapters, std::vector<std::string>{"sql"}) << "it serves what it served";
}

TEST_F(StaticMembersTest, ServeTheRoutesOfTheirMakeOrThoseOfTheConfig) {
  const auto routes = [this](RouterConfig config) {
    watch(std::move(config));
    become_foreign(1);
    answer(1, Question::kModels, 200, kModels);
    return there.empty() ? std::vector<std::string>{} : there[0].routes;
  };
  EXPECT_EQ(routes({}), engine_routes(net::Protocol::kNixl, net::Role::kDecode));
  RouterConfig config;
  config.engine_routes = {"/v1/odd"};
  EXPECT_EQ(routes(config), std::vector<std::string>{"/v1/odd"});
}

}  // namespace
}  // namespace pdjob::router
