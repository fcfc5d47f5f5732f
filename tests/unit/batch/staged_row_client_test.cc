#include "batch/staged_row_client.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "net/loop/event_loop.h"
#include "tests/unit/batch/scratch_folder.h"

namespace pdjob::batch {
namespace {

// Answers each body with {"echo": BODY} at the end of the turn.
class EchoClient final : public RowClient {
 public:
  // `asked` gets all attempts.
  EchoClient(net::EventLoop& loop, std::vector<Attempt>& asked_of_it)
      : asked(asked_of_it), loop_(loop) {}
  void start(Attempt attempt, const Then& then) override {
    asked.push_back(attempt);
    if (attempt.tell_every > 0) {
      told_(attempt.id, "0@1.2");
    }
    loop_.post([this, alive = std::weak_ptr(alive_), attempt, then] {
      if (!alive.expired() && !cancelled.contains(attempt.id)) {
        then(attempt.id,
             {.outcome = outcome, .status = 200, .body = "{\"echo\":" + attempt.body + "}"});
      }
    });
  }
  void cancel(AttemptId attempt) override { cancelled.insert(attempt); }
  void on_told(OnTold told) override { told_ = std::move(told); }
  void count_workers(std::function<void(size_t)> then) override { then(1); }

  std::vector<Attempt>& asked;
  std::set<AttemptId> cancelled;
  Outcome outcome = Outcome::kAnswered;

 private:
  net::EventLoop& loop_;
  OnTold told_;
  const std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

class StagedRowClientTest : public testing::Test {
 protected:
  StagedRowClientTest() { std::signal(SIGPIPE, SIG_IGN); }

  // A stage whose processes run this script of shell.
  static StageConfig script(const std::string& text) {
    return {.name = "clean", .command = {"sh", "-c", text}};
  }
  // A stage that runs shell for each `$line`, which is that of row `$id`.
  static StageConfig shell(const std::string& name, const std::string& each) {
    return {.name = name,
            .command = {"sh", "-c",
                        "while read -r line; do id=${line#*'\"custom_id\":\"'}; id=${id%%'\"'*}; " +
                            each + "; done"}};
  }
  // A stage that answers each row with these members.
  static StageConfig says(const std::string& name, const std::string& members) {
    return shell(name, R"(echo '{"custom_id":"'$id'",)" + members + "}'");
  }

  // Asks all rows at once; returns their results.
  std::map<uint64_t, RowResult> ask(const StagesConfig& stages, uint64_t rows) {
    auto model = std::make_unique<EchoClient>(loop_, asked_);
    model->outcome = outcome_;
    StagedRowClient client(loop_, std::move(model), stages,
                           {.folder = scratch_.path(), .logs = scratch_.path()},
                           [this](const std::string& text) { told_ += text + "\n"; });
    std::map<uint64_t, RowResult> results;
    for (uint64_t row = 1; row <= rows; ++row) {
      client.start({.id = {row},
                    .target = "/v1/completions",
                    .body = "{\"prompt\":" + std::to_string(row) + "}",
                    .custom_id = "r" + std::to_string(row)},
                   [&](AttemptId id, RowResult result) {
                     EXPECT_TRUE(results.emplace(id.value, std::move(result)).second);
                     if (results.size() == rows) {
                       loop_.post([&] { client.finish([this] { loop_.stop(); }); });
                     }
                   });
      EXPECT_TRUE(results.empty()) << "not inside start()";
    }
    loop_.run();
    return results;
  }

  ScratchFolder scratch_;
  net::EventLoop loop_;
  std::vector<RowClient::Attempt> asked_;
  Outcome outcome_ = Outcome::kAnswered;
  std::string told_;
};

TEST_F(StagedRowClientTest, ARowGoesThroughAllStagesInOrder) {
  const auto results = ask(
      {.before = {says("one", R"("body":{"prompt":"one","stream":true})"), says("two", R"("n":2)")},
       .after = {says("three", R"("score":3)"), says("four", R"("response":{"all":4})")}},
      3);
  ASSERT_EQ(results.size(), 3U);
  for (const auto& [id, result] : results) {
    EXPECT_EQ(result.outcome, Outcome::kAnswered);
    EXPECT_EQ(result.body, R"({"all":4})");
    EXPECT_EQ(result.stages, R"({"two":{"n":2},"three":{"score":3}})");
  }
  EXPECT_EQ(asked_.at(0).body, R"({"prompt":"one"})") << "one whole reply is asked for";
  EXPECT_EQ(told_, "");
}

TEST_F(StagedRowClientTest, TheModelGoesOnWithARowsTokensAndTellsMore) {
  StagedRowClient client(loop_, std::make_unique<EchoClient>(loop_, asked_),
                         {.before = {says("clean", R"("body":{"prompt":"b"})")}},
                         {.folder = scratch_.path(), .logs = scratch_.path()},
                         [](const std::string&) {});
  std::string told;
  client.on_told([&](AttemptId, std::string_view note) { told = note; });
  client.start({.id = {1},
                .target = "/v1/completions",
                .body = R"({"prompt":"a"})",
                .goes_on = {.tokens = "[[1]]"},
                .tell_every = 16,
                .custom_id = "r1"},
               [&](AttemptId, const RowResult&) {
                 loop_.post([&] { client.finish([this] { loop_.stop(); }); });
               });
  loop_.run();
  ASSERT_EQ(asked_.size(), 1U);
  EXPECT_EQ(asked_[0].body, R"({"prompt":"b"})");
  EXPECT_EQ(asked_[0].goes_on.tokens, "[[1]]");
  EXPECT_EQ(told, "0@1.2");
}

TEST_F(StagedRowClientTest, ADroppedRowIsNotAsked) {
  const auto results = ask({.before = {says("clean", R"("pdjob_drop":"too short")")}}, 1);
  EXPECT_EQ(results.at(1).outcome, Outcome::kRefused);
  EXPECT_EQ(results.at(1).cause, "dropped_by_clean");
  EXPECT_EQ(results.at(1).message, "too short");
  EXPECT_TRUE(asked_.empty());
}

TEST_F(StagedRowClientTest, AnAnswerThatIsDroppedStaysWithTheError) {
  const auto results = ask({.after = {says("judge", R"("pdjob_drop":"wrong")")}}, 1);
  EXPECT_EQ(results.at(1).cause, "dropped_by_judge");
  EXPECT_EQ(results.at(1).status, 200);
  EXPECT_EQ(results.at(1).body, R"({"echo":{"prompt":1}})");
}

TEST_F(StagedRowClientTest, AFailureOfTheModelPassesNoLaterStage) {
  outcome_ = Outcome::kBroken;
  const auto results = ask({.after = {says("judge", R"("score":1)")}}, 1);
  EXPECT_EQ(results.at(1).outcome, Outcome::kBroken);
  EXPECT_EQ(results.at(1).stages, "");
}

TEST_F(StagedRowClientTest, AChangedRequestIsChecked) {
  const auto results = ask({.before = {says("clean", R"("url":"/v1/models")")}}, 1);
  EXPECT_EQ(results.at(1).cause, "failed_in_clean");
  EXPECT_NE(results.at(1).message.find("its url must be"), std::string::npos);
}

TEST_F(StagedRowClientTest, ARowThatKillsItsProcessFailsAlone) {
  const auto results = ask(
      {.before = {shell("clean", R"(case "$line" in *'"r5"'*) kill -9 $$;; esac; echo "$line")")}},
      20);
  ASSERT_EQ(results.size(), 20U);
  for (const auto& [id, result] : results) {
    EXPECT_EQ(result.outcome, id == 5 ? Outcome::kRefused : Outcome::kAnswered) << id;
  }
  EXPECT_EQ(results.at(5).cause, "failed_in_clean");
  EXPECT_NE(results.at(5).message.find("signal 9 (Killed)"), std::string::npos)
      << results.at(5).message;
  EXPECT_NE(told_.find("stage clean: process 0 ended: signal 9"), std::string::npos) << told_;
}

// What the first process of the stage does wrong. The next one is right.
class OddFirstProcess : public StagedRowClientTest {
 protected:
  void expect_answers_after(const std::string& odd, const std::string& told,
                            Duration timeout = std::chrono::minutes(1)) {
    StageConfig stage = script("mkdir first 2>/dev/null && { " + odd + "; }; exec cat");
    stage.timeout = timeout;
    stage.start_timeout = {};
    const auto results = ask({.before = {stage}}, 9);
    ASSERT_EQ(results.size(), 9U);
    for (const auto& [id, result] : results) {
      EXPECT_EQ(result.outcome, Outcome::kAnswered) << result.message;
      EXPECT_EQ(result.body, "{\"echo\":{\"prompt\":" + std::to_string(id) + "}}");
    }
    EXPECT_NE(told_.find(told), std::string::npos) << told_;
  }
};

TEST_F(OddFirstProcess, ALineThatIsNoJson) {
  expect_answers_after("echo hello; exec cat", "it wrote a line that is not JSON");
}

TEST_F(OddFirstProcess, LinesInAnotherOrder) {
  expect_answers_after("read -r a; read -r b; echo \"$b\"; echo \"$a\"; exec cat",
                       "it wrote a line without the custom_id");
}

TEST_F(OddFirstProcess, ALineTooMany) {
  expect_answers_after("read -r a; echo \"$a\"; echo {}; exec cat",
                       "it wrote a line without the custom_id");
}

TEST_F(OddFirstProcess, AnEndWithoutAnError) { expect_answers_after("exit 0", "exit code 0"); }

TEST_F(OddFirstProcess, NoAnswerInTime) {
  expect_answers_after("exec sleep 100", "no answer within 2000 ms", std::chrono::seconds(2));
}

TEST_F(OddFirstProcess, AnOutputThatIsClosed) {
  expect_answers_after("exec >&-; exec sleep 100", "no answer within 2000 ms",
                       std::chrono::seconds(2));
}

TEST_F(OddFirstProcess, ALineWithoutEnd) {
  expect_answers_after("head -c 34000000 /dev/zero; exec sleep 100",
                       "it wrote a line of more than 33554432 bytes");
}

TEST_F(StagedRowClientTest, LongRowsPassWhole) {
  auto model = std::make_unique<EchoClient>(loop_, asked_);
  StagedRowClient client(loop_, std::move(model),
                         {.before = {script("exec cat")}, .after = {script("exec cat")}},
                         {.folder = scratch_.path(), .logs = scratch_.path()},
                         [](const std::string& text) { ADD_FAILURE() << text; });
  const std::string body = "{\"prompt\":\"" + std::string(5'000'000, 'x') + "\"}";
  int ended = 0;
  for (uint64_t id = 1; id <= 6; ++id) {
    client.start({.id = {id}, .target = "/v1/completions", .body = body, .custom_id = "r"},
                 [&](AttemptId, const RowResult& result) {
                   EXPECT_EQ(result.body, "{\"echo\":" + body + "}");
                   if (++ended == 6) {
                     loop_.stop();
                   }
                 });
  }
  loop_.run();
  EXPECT_EQ(ended, 6);
}

TEST_F(StagedRowClientTest, AProcessKnowsItsStageAndNotTheKeyOfTheBatch) {
  setenv("PDJOB_API_KEY", "secret", 1);
  const auto results = ask(
      {.before = {shell(
           "clean",
           R"(echo "{\"custom_id\":\"$id\",\"is\":\"$PDJOB_STAGE $PDJOB_STAGE_WORKER $PDJOB_API_KEY $PWD\"}")")}},
      1);
  unsetenv("PDJOB_API_KEY");
  EXPECT_EQ(results.at(1).stages, R"({"clean":{"is":"clean 0  )" +
                                      std::filesystem::canonical(scratch_.path()).string() +
                                      R"("}})");
}

TEST_F(StagedRowClientTest, AFunctionOfPythonIsAStage) {
  scratch_.write("judge.py",
                 "import sys\n"
                 "def judge(row):\n"
                 "    print('noise')\n"
                 "    sys.stdin.read()\n"
                 "    number = row['request']['body']['prompt']\n"
                 "    if number == 1: raise KeyError('one')\n"
                 "    if number == 2: return 7\n"
                 "    if number == 3: return {'x': float('nan')}\n"
                 "    return {'double': 2 * number}\n");
  const auto results = ask({.after = {{.name = "judge", .python = "judge.py:judge"}}}, 4);
  EXPECT_EQ(results.at(1).cause, "failed_in_judge");
  EXPECT_EQ(results.at(1).message, "KeyError: 'one'");
  EXPECT_EQ(results.at(2).message, "the function returned int, not dict");
  EXPECT_NE(results.at(3).message.find("ValueError"), std::string::npos);
  EXPECT_EQ(results.at(4).stages, R"({"judge":{"double":8}})");
  EXPECT_EQ(told_, "") << "no process is started again";
  EXPECT_NE(scratch_.read("judge-0.log").find("noise"), std::string::npos);
}

TEST_F(StagedRowClientTest, AStageThatCannotWorkEndsTheBatchAndSaysWhy) {
  const auto results = ask(
      {.before = {{.name = "clean", .command = {"sh", "-c", "echo no module >&2; exit 3"}}}}, 2);
  for (const auto& [id, result] : results) {
    EXPECT_NE(result.hopeless.find("stage clean (sh -c"), std::string::npos) << result.hopeless;
    EXPECT_NE(result.hopeless.find("exit code 3: no module"), std::string::npos) << result.hopeless;
  }
}

TEST_F(StagedRowClientTest, TheEndCancelsAllAttempts) {
  StagedRowClient client(loop_, std::make_unique<EchoClient>(loop_, asked_),
                         {.before = {says("one", R"("n":1)")}, .after = {script("exec cat >&2")}},
                         {.folder = scratch_.path(), .logs = scratch_.path()},
                         [](const std::string& text) { ADD_FAILURE() << text; });
  for (uint64_t id = 1; id <= 20; ++id) {
    client.start({.id = {id}, .target = "/v1/completions", .body = "{}", .custom_id = "r"},
                 [&](AttemptId, const RowResult&) { ADD_FAILURE() << "the run is gone"; });
  }
  loop_.call_at(loop_.now() + std::chrono::milliseconds(20),
                [&] { client.finish([this] { loop_.stop(); }); });
  loop_.run();
}

TEST_F(StagedRowClientTest, ACancelledAttemptSaysNothingInAnyPhase) {
  StagedRowClient client(loop_, std::make_unique<EchoClient>(loop_, asked_),
                         {.before = {says("one", R"("n":1)")}, .after = {says("two", R"("n":2)")}},
                         {.folder = scratch_.path(), .logs = scratch_.path()},
                         [](const std::string&) {});
  // Each is cancelled some milliseconds later than the one before.
  int ended = 0;
  for (uint64_t id = 1; id <= 40; ++id) {
    const auto cancelled = std::make_shared<bool>(false);
    client.start({.id = {id}, .target = "/v1/completions", .body = "{}", .custom_id = "r"},
                 [&, cancelled](AttemptId, const RowResult&) {
                   EXPECT_FALSE(*cancelled);
                   ++ended;
                 });
    loop_.call_at(loop_.now() + std::chrono::milliseconds(id / 2), [&client, id, cancelled] {
      *cancelled = true;
      client.cancel({id});
    });
  }
  loop_.call_at(loop_.now() + std::chrono::milliseconds(100), [this] { loop_.stop(); });
  loop_.run();
  EXPECT_LE(ended, 40);
  for (const auto& stage : client.progress()) {
    EXPECT_EQ(stage.waiting, 0U);
  }
}

}  // namespace
}  // namespace pdjob::batch
