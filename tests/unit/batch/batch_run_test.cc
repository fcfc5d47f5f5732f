#include "batch/batch_run.h"

#include <algorithm>
#include <functional>
#include <set>

#include <gtest/gtest.h>

#include "batch/batch_folder.h"
#include "batch/input_scan.h"
#include "net/loop/event_loop.h"
#include "tests/unit/batch/scratch_folder.h"

namespace pdjob::batch {
namespace {

// Answers at the end of the turn, as `answer` says.
class FakeClient final : public RowClient {
 public:
  explicit FakeClient(net::Loop& loop) : loop_(loop) {}

  void start(Attempt attempt, const Then& then) override {
    started_.push_back(attempt);
    cancelled_.erase(attempt.id);  // Of a run before.
    loop_.post([this, attempt, then] {
      if (cancelled_.contains(attempt.id)) {
        return;
      }
      then(attempt.id, answer(attempt));
    });
  }
  void cancel(AttemptId attempt) override { cancelled_.insert(attempt); }
  void on_told(OnTold then) override { told = std::move(then); }
  void count_workers(std::function<void(size_t)> then) override {
    loop_.post([then = std::move(then)] { then(3); });
  }

  std::function<RowResult(const Attempt&)> answer = [](const Attempt&) {
    return RowResult{.outcome = Outcome::kAnswered,
                     .status = 200,
                     .body = R"({"usage":{"prompt_tokens":1,"completion_tokens":2}})"};
  };
  std::vector<Attempt> started_;
  OnTold told;

 private:
  net::Loop& loop_;
  std::set<AttemptId> cancelled_;
};

std::string row(const std::string& id) {
  return R"({"custom_id":")" + id + R"(","url":"/v1/completions","body":{"prompt":")" + id +
         "\"}}\n";
}

class BatchRunTest : public testing::Test {
 protected:
  explicit BatchRunTest() : folder_(BatchFolder::claim(scratch_.path() + "/out").value()) {}

  BatchOptions options(const std::string& input, Again again = Again::kGoOn) const {
    return {
        .inputs = {scratch_.write("in.jsonl", input)}, .folder = folder_.path(), .again = again};
  }

  // One life of the process.
  BatchRun::End run(const BatchOptions& options) {
    const RowReader reader = row_reader_of(options).value();
    auto ledger = LedgerFile::open(folder_.ledger()).value();
    const Status scanned = scan_input(options, folder_, *ledger, reader, [](uint64_t) {});
    EXPECT_TRUE(scanned) << scanned.error().message;
    const auto disk = real_disk();
    auto records = Records::open(*disk, *ledger, folder_.path()).value();
    BatchRun::End end;
    {
      BatchRun run(loop_, {*ledger, *records, client_, reader}, options, ledger->files().value(),
                   ledger->counts().value(), "nonce");
      run.start([&](const BatchRun::End& how) {
        end = how;
        loop_.stop();
      });
      run_ = &run;
      loop_.run();
      progress_ = run.progress();
    }
    if (end.complete) {
      EXPECT_TRUE(records->merge(LedgerFile::Order::kInput));
    }
    return end;
  }
  std::string output() const { return scratch_.read("out/output.jsonl"); }
  std::string errors() const { return scratch_.read("out/errors.jsonl"); }

  ScratchFolder scratch_;
  BatchFolder folder_;
  net::EventLoop loop_;
  FakeClient client_{loop_};
  Progress progress_;
  BatchRun* run_ = nullptr;  // While it lives.
};

TEST_F(BatchRunTest, AnswersEachRowOnce) {
  EXPECT_TRUE(run(options(row("a") + row("b") + row("c"))).complete);
  EXPECT_EQ(client_.started_.size(), 3U);
  const std::string lines = output();
  EXPECT_EQ(std::ranges::count(lines, '\n'), 3);
  EXPECT_TRUE(lines.starts_with(R"({"id":"batch_req_nonce_1","custom_id":"a",)")) << lines;
  EXPECT_EQ(progress_.rows.answered, 3U);
  EXPECT_EQ(progress_.rows.completion_tokens, 6U);
  EXPECT_EQ(errors(), "");
}

TEST_F(BatchRunTest, ABadRowIsAnErrorAndStopsNoOther) {
  EXPECT_TRUE(run(options(row("a") + "nonsense\n\xff\n" + row("b") + row("a"))).complete);
  EXPECT_EQ(std::ranges::count(output(), '\n'), 2);
  const std::string file = scratch_.path() + "/in.jsonl";
  const std::string found = errors();
  EXPECT_NE(found.find(file + ":2: it is not a JSON object"), std::string::npos) << found;
  EXPECT_NE(found.find(file + ":3: it is not valid UTF-8"), std::string::npos) << found;
  EXPECT_NE(found.find(file + ":5: its custom_id is that of " + file + ":1"), std::string::npos)
      << found;
}

TEST_F(BatchRunTest, ARowThatIsTooLongIsAnError) {
  EXPECT_TRUE(run(options(row("a") + std::string((32 << 20) + 1, 'x') + "\n" + row("b"))).complete);
  EXPECT_EQ(std::ranges::count(output(), '\n'), 2);
  EXPECT_NE(errors().find("row_too_long"), std::string::npos);
}

TEST_F(BatchRunTest, AStoppedRunGoesOnWithoutAskingTwice) {
  std::string rows;
  for (int i = 0; i < 100; ++i) {
    rows += row("r" + std::to_string(i));
  }
  client_.answer = [&, n = 0](const FakeClient::Attempt&) mutable {
    if (n == 40) {
      run_->stop("");
    }
    return RowResult{.outcome = ++n < 40 ? Outcome::kAnswered : Outcome::kLost,
                     .status = 200,
                     .body = "{}",
                     .cause = "connection"};
  };
  EXPECT_FALSE(run(options(rows)).complete);
  client_.answer = FakeClient(loop_).answer;
  EXPECT_TRUE(run(options(rows)).complete);
  EXPECT_EQ(std::ranges::count(output(), '\n'), 100);
}

TEST_F(BatchRunTest, ARowGoesOnAtItsTokenAfterALossAndInTheNextProcess) {
  int asked = 0;
  client_.answer = [&](const FakeClient::Attempt& attempt) {
    ++asked;
    if (asked <= 2) {
      client_.told(attempt.id, "0@0.5.6;w=61;m=ab");
      client_.told(attempt.id, asked == 1 ? "0@2.7;w=61;m=ab" : "0@3.8;w=61;m=ab");
    }
    if (asked == 2) {
      run_->stop("");
    }
    return RowResult{.outcome = Outcome::kLost, .cause = "connection"};
  };
  EXPECT_FALSE(run(options(row("a"))).complete);
  client_.answer = FakeClient(loop_).answer;
  EXPECT_TRUE(run(options(row("a"))).complete);
  ASSERT_EQ(client_.started_.size(), 3U);
  EXPECT_EQ(client_.started_[0].goes_on.tokens, "");
  EXPECT_EQ(client_.started_[1].goes_on.tokens, "[[5,6,7]]");
  EXPECT_EQ(client_.started_[2].goes_on.tokens, "[[5,6,7,8]]");
  EXPECT_EQ(progress_.went_on, 1U);
}

TEST_F(BatchRunTest, ARowWhoseTokensTheServerRefusesIsAskedFromItsFirst) {
  client_.answer = [&](const FakeClient::Attempt& attempt) {
    switch (client_.started_.size()) {
      case 1:
        client_.told(attempt.id, "0@0.5;m=ab");
        return RowResult{.outcome = Outcome::kLost, .cause = "connection"};
      case 2:
        return RowResult{.outcome = Outcome::kRefused, .status = 400, .cause = "http_400"};
      default:
        return RowResult{.outcome = Outcome::kAnswered, .status = 200, .body = "{}"};
    }
  };
  EXPECT_TRUE(run(options(row("a"))).complete);
  ASSERT_EQ(client_.started_.size(), 3U);
  EXPECT_NE(client_.started_[1].goes_on.tokens, "");
  EXPECT_EQ(client_.started_[2].goes_on.tokens, "");
  EXPECT_EQ(progress_.rows.answered, 1U);
}

TEST_F(BatchRunTest, OtherInputIsRefused) {
  EXPECT_TRUE(run(options(row("a"))).complete);
  auto ledger = LedgerFile::open(folder_.ledger()).value();
  const auto check = [&](const BatchOptions& changed) {
    return scan_input(changed, folder_, *ledger, row_reader_of(changed).value(), [](uint64_t) {});
  };
  EXPECT_TRUE(check(options(row("a"))));
  EXPECT_EQ(check(options(row("b"))).error().code, ErrorCode::kInvalidArgument);
  BatchOptions other_job = options(row("a"));
  other_job.job = "another";
  EXPECT_NE(check(other_job).error().message.find("the job file"), std::string::npos);
  BatchOptions other_stages = options(row("a"));
  other_stages.stages.before.push_back({.name = "clean", .command = {"cat"}});
  EXPECT_NE(check(other_stages).error().message.find("its stages are others"), std::string::npos);
  EXPECT_TRUE(check(options(row("b"), Again::kRestart)));
  EXPECT_EQ(ledger->counts().value().answered, 0U);
}

TEST_F(BatchRunTest, AnInputThatChangesMeanwhileEndsTheRun) {
  std::string rows;
  for (int i = 0; i < 100; ++i) {
    rows += row("r" + std::to_string(i));
  }
  const BatchOptions chosen = options(rows);
  client_.answer = [&](const FakeClient::Attempt&) {
    std::filesystem::resize_file(chosen.inputs[0], 10);
    return RowResult{.outcome = Outcome::kAnswered, .status = 200, .body = "{}"};
  };
  const BatchRun::End end = run(chosen);
  EXPECT_TRUE(end.broken);
  EXPECT_NE(end.reason.find("is not what it was"), std::string::npos) << end.reason;
}

TEST_F(BatchRunTest, AHopelessServerEndsTheRun) {
  client_.answer = [](const FakeClient::Attempt&) {
    return RowResult{.outcome = Outcome::kRefused, .status = 401, .hopeless = "the key is refused"};
  };
  const BatchRun::End end = run(options(row("a") + row("b")));
  EXPECT_TRUE(end.broken);
  EXPECT_TRUE(end.hopeless);
  EXPECT_TRUE(end.refuses_key);
  EXPECT_EQ(end.reason, "the key is refused");
}

TEST_F(BatchRunTest, OneProcessHasAFolder) {
  EXPECT_TRUE(BatchFolder::is_claimed(folder_.path()));
  EXPECT_FALSE(BatchFolder::claim(folder_.path()));
  EXPECT_FALSE(BatchFolder::is_claimed(scratch_.path()));
}

}  // namespace
}  // namespace pdjob::batch
