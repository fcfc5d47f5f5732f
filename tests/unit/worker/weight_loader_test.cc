#include "worker/weight_loader.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "net/loop/event_loop.h"

namespace pdjob::worker {
namespace {

namespace fs = std::filesystem;

struct Folder {
  Folder() : path(fs::canonical(testing::TempDir()) / "pdjob_weights") {
    fs::remove_all(path);
    fs::create_directories(path / "in" / "step");
    for (const char* name : {"in/a.gguf", "in/b.gguf", "in/step/model.gguf", "out.gguf"}) {
      std::ofstream(path / name) << name;
    }
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path); }
  std::string in(const char* name) const { return (path / "in" / name).string(); }
  Result<std::string> find(const std::string& name) const {
    return find_weights((path / "in").string(), name);
  }
  const fs::path path;
};

TEST(FindWeights, TakesAFileBelowTheFolder) {
  const Folder folder;
  EXPECT_EQ(folder.find(folder.in("a.gguf")).value(), folder.in("a.gguf"));
  EXPECT_EQ(folder.find("a.gguf").value(), folder.in("a.gguf"));
  EXPECT_EQ(folder.find("step").value(), folder.in("step/model.gguf"));
}

TEST(FindWeights, RefusesWhatIsNotBelowTheFolder) {
  const Folder folder;
  fs::create_symlink(folder.path / "out.gguf", folder.path / "in" / "link.gguf");
  fs::create_directory_symlink(folder.path, folder.path / "in" / "up");
  for (const char* name : {"../out.gguf", "link.gguf", "up", "/etc/passwd", "missing.gguf", "."}) {
    const auto found = folder.find(name);
    ASSERT_FALSE(found) << name;
    EXPECT_EQ(found.error().code, ErrorCode::kInvalidArgument) << name;
  }
  EXPECT_FALSE(find_weights("", folder.in("a.gguf")));
}

TEST(FindWeights, FollowsALinkThatStaysInside) {
  const Folder folder;
  fs::create_symlink(folder.in("b.gguf"), folder.path / "in" / "latest.gguf");
  EXPECT_EQ(folder.find("latest.gguf").value(), folder.in("b.gguf"));
}

TEST(FindWeights, SaysWhyAFolderOfSafetensorsIsRefused) {
  const Folder folder;
  fs::remove(folder.in("step/model.gguf"));
  std::ofstream(folder.in("step/model-00001-of-00002.safetensors")) << "x";
  EXPECT_NE(folder.find("step").error().message.find("safetensors"), std::string::npos);
  std::ofstream(folder.in("x.bin")) << "x";
  EXPECT_NE(folder.find("x.bin").error().message.find("not a .gguf file"), std::string::npos);
}

TEST(FindWeights, RefusesOnePartOfSeveral) {
  const Folder folder;
  std::ofstream(folder.in("m-00001-of-00003.gguf")) << "x";
  std::ofstream(folder.in("m-0001-of-00003.gguf")) << "x";
  EXPECT_NE(folder.find("m-00001-of-00003.gguf").error().message.find("merge the parts"),
            std::string::npos);
  EXPECT_TRUE(folder.find("m-0001-of-00003.gguf"));
}

TEST(SameModel, NamesTheFirstFactThatDiffers) {
  const engine::ModelFacts now{.digest = "a", .layers = 2, .vocabulary = 10, .rope = "r"};
  engine::ModelFacts next = now;
  next.digest = "b";
  EXPECT_TRUE(same_model(now, next));
  next.vocabulary = 11;
  EXPECT_EQ(same_model(now, next).error().message,
            "these are weights of another model: vocabulary is 11, must be 10");
}

// With the fake engine, whose weights are any file.
struct WeightLoaderTest : testing::Test {
  WeightLoaderTest() {
    engine::EngineConfig config{.kind = engine::EngineKind::kFake, .sequences = 1};
    config.own_weights = true;
    serving = *engine::open_engine(config);
  }
  void run_until_answers(size_t count) {
    const net::TimerId limit =
        loop.call_at(loop.now() + std::chrono::seconds(20), [this] { loop.stop(); });
    wanted = count;
    if (answers.size() < wanted) {
      loop.run();
    }
    loop.cancel(limit);
    ASSERT_GE(answers.size(), count);
  }

  Folder folder;
  net::EventLoop loop;
  std::unique_ptr<engine::Engine> serving;
  std::vector<net::WeightsPrepared> answers;
  size_t wanted = 0;
  WeightLoader loader{loop, (folder.path / "in").string(),
                      [this](const net::WeightsPrepared& answer) {
                        answers.push_back(answer);
                        if (answers.size() >= wanted) {
                          loop.stop();
                        }
                      }};
};

TEST_F(WeightLoaderTest, ARepeatedOrderIsAnsweredAgainAndTakenOnce) {
  loader.prepare({.order = 1, .path = "a.gguf"}, *serving);
  run_until_answers(1);
  EXPECT_EQ(answers[0].error, "");
  EXPECT_EQ(answers[0].path, folder.in("a.gguf"));
  loader.prepare({.order = 1, .path = "a.gguf"}, *serving);
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[1], answers[0]);
  EXPECT_EQ(loader.take(2), nullptr);
  const auto engine = loader.take(1);
  ASSERT_NE(engine, nullptr);
  EXPECT_NE(engine->facts().digest, serving->facts().digest);
  EXPECT_EQ(engine->facts().name, serving->facts().name) << "clients see no other model";
  EXPECT_EQ(loader.take(1), nullptr);
}

TEST_F(WeightLoaderTest, AFileThatIsNotThereIsRefusedAndLeavesNothing) {
  loader.prepare({.order = 1, .path = "c.gguf"}, *serving);
  run_until_answers(1);
  EXPECT_TRUE(answers[0].refused);
  EXPECT_NE(answers[0].error, "");
  EXPECT_EQ(loader.take(1), nullptr);
}

TEST_F(WeightLoaderTest, OnlyTheNewestOfSeveralOrdersIsAnswered) {
  for (uint64_t order = 1; order <= 20; ++order) {
    loader.prepare({.order = order, .path = order % 2 == 0 ? "a.gguf" : "b.gguf"}, *serving);
  }
  run_until_answers(1);
  EXPECT_EQ(answers[0].order, 20U);
  EXPECT_EQ(answers[0].path, folder.in("a.gguf"));
  EXPECT_NE(loader.take(20), nullptr);
}

TEST_F(WeightLoaderTest, AnEmptyOrderDropsWhatWasPrepared) {
  loader.prepare({.order = 1, .path = "a.gguf"}, *serving);
  run_until_answers(1);
  loader.prepare({.order = 2, .path = ""}, *serving);
  EXPECT_EQ(loader.take(1), nullptr);
  loader.prepare({.order = 1, .path = "a.gguf"}, *serving);
  EXPECT_EQ(answers.size(), 1U) << "a stale order";
}

}  // namespace
}  // namespace pdjob::worker
