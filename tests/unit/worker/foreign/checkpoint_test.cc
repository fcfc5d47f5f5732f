#include "worker/foreign/checkpoint.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace pdjob::worker {
namespace {

namespace fs = std::filesystem;

struct Checkpoints {
  Checkpoints() : path(fs::canonical(testing::TempDir()) / "pdjob_checkpoints") {
    fs::remove_all(path);
    for (const char* name : {"in/a", "in/twin", "in/b", "out"}) {
      fs::create_directories(path / name);
      write(std::string(name) + "/config.json", R"({"vocab_size": 10, "hidden_size": 4})");
      write(std::string(name) + "/model.safetensors", "one");
    }
    write("in/b/model.safetensors", "two");
  }
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;
  ~Checkpoints() { fs::remove_all(path); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path / name) << text;
  }
  std::string in(const std::string& name) const { return (path / "in" / name).string(); }
  Result<std::string> find(const std::string& name) const {
    return find_checkpoint((path / "in").string(), name);
  }
  const fs::path path;
};

TEST(FindCheckpoint, TakesAFolderBelowTheFolder) {
  const Checkpoints some;
  EXPECT_EQ(some.find("a").value(), some.in("a"));
  EXPECT_EQ(some.find(some.in("a")).value(), some.in("a"));
}

TEST(FindCheckpoint, RefusesWhatIsNotBelowIt) {
  const Checkpoints some;
  fs::create_directory_symlink(some.path / "out", some.path / "in" / "link");
  for (const std::string& path : {std::string("../out"), std::string("link"), std::string("."),
                                  (some.path / "out").string(), std::string("missing")}) {
    EXPECT_FALSE(some.find(path)) << path;
  }
  EXPECT_EQ(some.find("a/config.json").error().message,
            "a/config.json is no folder: this engine takes a folder of safetensors");
  EXPECT_FALSE(find_checkpoint("", some.in("a")));
}

TEST(ReadCheckpoint, HasADigestOfAllBytes) {
  const Checkpoints some;
  const Checkpoint a = read_checkpoint(some.in("a")).value();
  EXPECT_EQ(a.digest, read_checkpoint(some.in("twin")).value().digest);
  EXPECT_NE(a.digest, read_checkpoint(some.in("b")).value().digest);
  EXPECT_EQ(a.bytes, 39U);
  EXPECT_EQ(a.config, R"({"vocab_size": 10, "hidden_size": 4})");
  some.write("in/a/notes.txt", "not of the weights");
  EXPECT_EQ(read_checkpoint(some.in("a")).value().digest, a.digest);
  fs::rename(some.in("a/model.safetensors"), some.in("a/other.safetensors"));
  EXPECT_NE(read_checkpoint(some.in("a")).value().digest, a.digest);
  fs::remove(some.in("a/other.safetensors"));
  EXPECT_EQ(read_checkpoint(some.in("a")).error().message,
            some.in("a") + " holds no .safetensors file");
}

TEST(ReadCheckpoint, HasAStampThatTellsAChange) {
  const Checkpoints some;
  const std::string before = read_checkpoint(some.in("a")).value().stamp;
  EXPECT_EQ(stamp_of_checkpoint(some.in("a")).value(), before);
  some.write("in/a/model.safetensors", "longer");
  EXPECT_NE(stamp_of_checkpoint(some.in("a")).value(), before);
}

TEST(SameShape, ComparesWhatBothTell) {
  const std::string now = R"({"vocab_size": 10, "architectures": ["A"]})";
  EXPECT_TRUE(same_shape(now, now));
  EXPECT_TRUE(same_shape("", R"({"vocab_size": 11})"));
  EXPECT_TRUE(same_shape(now, R"({"hidden_size": 11})"));
  EXPECT_EQ(same_shape(now, R"({"vocab_size": 11})").error().message,
            "these are weights of another model: vocab_size is 11, must be 10");
  EXPECT_FALSE(same_shape(now, R"({"architectures": ["B"]})"));
  EXPECT_FALSE(same_shape(now, "no JSON"));
}

}  // namespace
}  // namespace pdjob::worker
