#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "engine/fake_engine.h"
#include "engine/grammar/grammar.h"
#include "worker/grammar/grammar_store.h"
#include "worker/grammar/grammar_thread.h"

namespace pdjob::worker {
namespace {

using Compiled = GrammarThread::Compiled;

class GrammarProcessTest : public testing::Test {
 protected:
  GrammarProgram program(const std::string& mode) {
    return {.path = PDJOB_GRAMMAR_HELPER_DOUBLE, .arguments = {"double", mode}};
  }

  // Returns the result of each text, in order.
  std::vector<Result<Compiled>> ask(const GrammarProgram& with,
                                    const std::vector<std::string>& grammars) {
    GrammarThread thread(loop_, engine_->vocabulary(), with);
    std::vector<Result<Compiled>> results(grammars.size(), Error{});
    size_t left = grammars.size();
    for (size_t i = 0; i < grammars.size(); ++i) {
      thread.submit(engine::StructureKind::kGrammar, grammars[i], StructureDepth::kCompiled, "d",
                    [&, i](const Result<Compiled>& result) {
                      results[i] = result;
                      if (--left == 0) {
                        loop_.stop();
                      }
                    });
    }
    loop_.call_at(loop_.now() + std::chrono::seconds(60), [this] { loop_.stop(); });
    loop_.run();
    EXPECT_EQ(left, 0U) << "no answer";
    return results;
  }

  net::EventLoop loop_;
  std::unique_ptr<engine::Engine> engine_ = engine::open_fake_engine({}).value();
};

TEST_F(GrammarProcessTest, GrammarsAreCompiledAndRefused) {
  const auto results =
      ask(program("real"), {"root ::= \"a\"", "root ::= other", "root ::= .", "root ::= [b]"});
  ASSERT_TRUE(results[0].has_value());
  EXPECT_TRUE(engine::Grammar(results[0]->grammar).allows('a'));
  EXPECT_EQ(results[1].error().message,
            "EBNF parser error at line 1, column 10: Rule \"other\" is not defined");
  EXPECT_EQ(results[2].error().code, ErrorCode::kInvalidArgument);
  ASSERT_TRUE(results[3].has_value());
  EXPECT_TRUE(engine::Grammar(results[3]->grammar).allows('b'));
}

// One client's grammar fails, and so does the next one that does the same. The worker survives.
TEST_F(GrammarProcessTest, ACrashRefusesTheGrammarThatCausedIt) {
  for (const char* mode : {"crash", "unknown word", "no size", "huge size"}) {
    for (const auto& result : ask(program(mode), {"root ::= \"a\"", "root ::= \"b\""})) {
      ASSERT_FALSE(result.has_value()) << mode;
      EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument) << mode;
      EXPECT_EQ(result.error().message,
                "the grammar or JSON schema takes too much time or memory to compile")
          << mode;
    }
  }
}

// A child that somebody kills while it waits may die with the next grammar unread in its socket.
TEST_F(GrammarProcessTest, AGrammarIsBlamedOnlyForTheDeathOfAChildThatSawNoOther) {
  for (const auto& result :
       ask(program("crash later"), {"root ::= \"a\"", "root ::= \"b\"", "root ::= \"c\""})) {
    EXPECT_EQ(result.error().message, "seen");
  }
}

// Whoever kills the helper says nothing about the grammar, so a store must not keep a refusal.
TEST_F(GrammarProcessTest, AGrammarWhoseHelpersWereKilledIsNotRefused) {
  for (const auto& result : ask(program("killed"), {"root ::= \"a\"", "root ::= \"b\""})) {
    EXPECT_EQ(result.error().code, ErrorCode::kOverloaded);
  }
}

TEST_F(GrammarProcessTest, AHelperThatIsKilledOnceIsReplaced) {
  const std::string mark = testing::TempDir() + "killed_once_" + std::to_string(getpid());
  GrammarProgram once = program("killed once");
  once.arguments.push_back(mark);
  EXPECT_EQ(ask(once, {"root ::= \"a\""})[0].error().message, "seen");
  unlink(mark.c_str());
}

// The child dies of its CPU time right after an answer: the next grammar was never seen by it.
TEST_F(GrammarProcessTest, ADeathAfterAnAnswerDoesNotBlameTheNextGrammar) {
  for (const auto& result : ask(program("answer, then SIGXCPU"),
                                {"root ::= \"a\"", "root ::= \"b\"", "root ::= \"c\""})) {
    EXPECT_EQ(result.error().message, "seen");
  }
}

TEST_F(GrammarProcessTest, WhatAChildSaysBeyondItsAnswerDoesNotAnswerTheNextGrammar) {
  for (const char* mode : {"answer twice", "unknown word later"}) {
    for (const auto& result :
         ask(program(mode), {"root ::= \"a\"", "root ::= \"b\"", "root ::= \"c\""})) {
      EXPECT_EQ(result.error().message, "seen") << mode;
    }
  }
}

TEST_F(GrammarProcessTest, AnAnswerThatIsNoGrammarIsNotFollowed) {
  EXPECT_EQ(ask(program("lie"), {"root ::= \"a\""})[0].error().code, ErrorCode::kCorrupt);
  // Timing decides which limit trips first: the first frame's, or that of the bytes.
  EXPECT_FALSE(ask(program("endless"), {"root ::= \"a\""})[0].has_value());
}

TEST_F(GrammarProcessTest, AHelperThatHangsIsEndedAtItsDeadline) {
  GrammarProgram hanging = program("hang");
  hanging.deadline = std::chrono::milliseconds(300);
  for (const auto& result : ask(hanging, {"root ::= \"a\"", "root ::= \"b\""})) {
    EXPECT_EQ(result.error().code, ErrorCode::kOverloaded);
  }
}

TEST_F(GrammarProcessTest, AHelperThatCannotStartIsOurFault) {
  for (const GrammarProgram& broken :
       {program("never ready"), GrammarProgram{.path = "/nowhere"}}) {
    EXPECT_EQ(ask(broken, {"root ::= \"a\""})[0].error().code, ErrorCode::kInternal);
  }
}

class GrammarStoreTest : public testing::Test {
 protected:
  Result<Compiled> find(const std::string& text, StructureDepth depth = StructureDepth::kCompiled) {
    // Answers may come after this function has returned.
    const auto out = std::make_shared<Result<Compiled>>(Error{ErrorCode::kCancelled, "not yet"});
    store_.find(engine::StructureKind::kGrammar, text, depth,
                [out](const Result<Compiled>& result) { *out = result; });
    return *out;
  }

  std::vector<GrammarThread::Then> made_;
  GrammarStore store_{[this](engine::StructureKind, const std::string&, StructureDepth,
                             const std::string& digest, GrammarThread::Then then) {
    EXPECT_EQ(digest.size(), 64U);
    made_.push_back(std::move(then));
  }};
};

TEST_F(GrammarStoreTest, RequestsForTheSameGrammarShareOneCompilation) {
  int answers = 0;
  for (int i = 0; i < 5; ++i) {
    store_.find(engine::StructureKind::kGrammar, "a", StructureDepth::kCompiled,
                [&answers](const Result<Compiled>&) { ++answers; });
  }
  store_.find(engine::StructureKind::kSchema, "a", StructureDepth::kCompiled,
              [&answers](const Result<Compiled>&) { answers += 100; });
  ASSERT_EQ(made_.size(), 2U);
  made_[0](Compiled());
  EXPECT_EQ(answers, 5);
  EXPECT_TRUE(find("a").has_value());
  EXPECT_EQ(made_.size(), 2U);
}

TEST_F(GrammarStoreTest, RefusalsAreKeptAndMishapsAreNot) {
  EXPECT_EQ(find("bad").error().code, ErrorCode::kCancelled);
  made_[0](Error{ErrorCode::kInvalidArgument, "bad"});
  EXPECT_EQ(find("bad").error().message, "bad");
  EXPECT_EQ(find("late").error().code, ErrorCode::kCancelled);
  made_[1](Error{ErrorCode::kOverloaded, "late"});
  EXPECT_EQ(find("late").error().code, ErrorCode::kCancelled);
  EXPECT_EQ(made_.size(), 3U);
}

TEST_F(GrammarStoreTest, WhatWaitsAndWhatIsKeptIsBounded) {
  for (size_t i = 0; i < limits::kGrammarsQueuedMax; ++i) {
    EXPECT_EQ(find(std::to_string(i)).error().code, ErrorCode::kCancelled);
  }
  EXPECT_EQ(find("one more").error().code, ErrorCode::kOverloaded);
  for (size_t i = 0; i < 2 * limits::kGrammarsKeptMax; ++i) {
    const size_t before = made_.size();
    if (i >= limits::kGrammarsQueuedMax) {
      EXPECT_EQ(find(std::to_string(i)).error().code, ErrorCode::kCancelled);
      ASSERT_EQ(made_.size(), before + 1);
    }
    made_[i](Compiled());
  }
  EXPECT_EQ(store_.kept(), limits::kGrammarsKeptMax);
}

}  // namespace
}  // namespace pdjob::worker
