#include "launcher/played/load_file.h"

#include <cstdio>
#include <fstream>

#include <gtest/gtest.h>

#include "common/random.h"
#include "launcher/played/load_words.h"

namespace pdjob::simulation {
namespace {

using std::chrono::milliseconds;

class LoadFileTest : public testing::Test {
 protected:
  ~LoadFileTest() override { std::remove(path_.c_str()); }
  Result<LoadFile> read(const std::string& text, const LoadPart& part = {}) {
    std::ofstream(path_, std::ios::binary) << text;
    return read_load_file(path_, part);
  }
  std::string error(const std::string& text) {
    const auto loaded = read(text);
    return loaded ? "" : loaded.error().message;
  }
  const std::string path_ = testing::TempDir() + "/load";
};

constexpr const char* kMooncake =
    R"({"timestamp": 5000, "input_length": 600, "output_length": 3, "hash_ids": [1, 2]})"
    "\n"
    R"({"timestamp": 2000, "input_length": 5, "output_length": 7, "hash_ids": [4]})"
    "\n";

TEST_F(LoadFileTest, ReadsMooncakeByTimeFromZero) {
  const auto load = read(kMooncake);
  ASSERT_TRUE(load) << load.error().message;
  EXPECT_EQ(load->format, "Mooncake");
  ASSERT_EQ(load->requests.size(), 2U);
  EXPECT_EQ(load->requests[0].prompt_tokens, 5U);
  EXPECT_EQ(load->requests[0].at, Duration::zero());
  EXPECT_EQ(load->requests[1].at, milliseconds(3000));
  EXPECT_EQ(load->requests[1].blocks, (std::vector<uint64_t>{1, 2}));
}

TEST_F(LoadFileTest, ReadsAzure) {
  const auto load = read(
      "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
      "2023-11-16 18:15:46.6805900,374,44\r\n"
      "2023-11-16 18:15:50.9951690,396,109\r\n"
      "2024-05-10 00:00:00.009930+00:00,10,20\r\n");
  ASSERT_TRUE(load) << load.error().message;
  EXPECT_EQ(load->format, "Azure");
  ASSERT_EQ(load->requests.size(), 3U);
  EXPECT_EQ(load->requests[1].at, Duration(4'314'579'000));
  EXPECT_EQ(load->requests[1].prompt_tokens, 396U);
  EXPECT_EQ(load->requests[1].output_tokens, 109U);
}

TEST_F(LoadFileTest, ReadsBurstGptWithoutFailedRows) {
  const auto load = read(
      "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log "
      "Type\n"
      "5,1,2.5,ChatGPT,472,18,490,Conversation log\n"
      "45.5,2,1,GPT-4,1087,0,1087,API log\n"
      "118,3,9,ChatGPT,417,276,693,Conversation log\n");
  ASSERT_TRUE(load) << load.error().message;
  EXPECT_EQ(load->format, "BurstGPT");
  EXPECT_EQ(load->left_out, 1U);
  ASSERT_EQ(load->requests.size(), 2U);
  EXPECT_EQ(load->requests[1].at, std::chrono::seconds(113));
}

TEST_F(LoadFileTest, TakesAPart) {
  const std::string table =
      "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
      "1,m,1,1,2,x\n2,m,2,1,3,x\n3,m,3,1,4,x\n4,m,4,1,5,x\n";
  const auto load = read(table, {.skip = 1, .requests = 2});
  ASSERT_TRUE(load);
  ASSERT_EQ(load->requests.size(), 2U);
  EXPECT_EQ(load->requests[0].prompt_tokens, 2U);
  EXPECT_EQ(load->requests[1].prompt_tokens, 3U);
}

TEST_F(LoadFileTest, NamesTheLineOfAnError) {
  EXPECT_EQ(error(std::string(kMooncake) + "{}\n"), path_ + ":3: timestamp must be milliseconds");
  EXPECT_NE(error(R"({"timestamp": 0, "input_length": 513, "output_length": 1, "hash_ids": [1]})")
                .find(":1: hash_ids must have one id for each 512"),
            std::string::npos);
  EXPECT_NE(error(R"({"timestamp": 0, "input_length": 0, "output_length": 1, "hash_ids": []})")
                .find("input_length must be a number of tokens from 1 to 1000000"),
            std::string::npos);
  EXPECT_NE(error("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,1\n")
                .find(":2: expected a time such as"),
            std::string::npos);
  EXPECT_NE(error("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1\n")
                .find("fewer columns"),
            std::string::npos);
  EXPECT_NE(error("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-13-16 18:15:46,1,1\n")
                .find(":2: expected a time"),
            std::string::npos);
  EXPECT_NE(error("Timestamp,Model,Request tokens,Response tokens\n1,m,-5,1\n")
                .find("expected tokens from 0"),
            std::string::npos);
  EXPECT_NE(error("Timestamp,Model,Request tokens,Response tokens\n1e300,m,5,1\n")
                .find("expected seconds"),
            std::string::npos);
}

TEST_F(LoadFileTest, RefusesOtherFilesByName) {
  EXPECT_NE(error("a,b,c\n1,2,3\n").find("the format is not known"), std::string::npos);
  EXPECT_NE(error(R"({"resourceSpans": []})").find("OpenTelemetry cannot be read yet"),
            std::string::npos);
  EXPECT_NE(error("").find("it has no requests"), std::string::npos);
  EXPECT_NE(error("TIMESTAMP,ContextTokens,GeneratedTokens\n").find("it has no requests"),
            std::string::npos);
  EXPECT_NE(read_load_file("/no/such/file", {}).error().message.find("No such file"),
            std::string::npos);
  EXPECT_NE(read_load_file("/", {}).error().message.find("not a regular file"), std::string::npos);
  EXPECT_NE(read_load_file("/dev/zero", {}).error().message.find("not a regular file"),
            std::string::npos);
}

TEST_F(LoadFileTest, RefusesAnEndlessLine) {
  EXPECT_NE(error(std::string(size_t{2} << 20, 'x')).find(":1: the line has more than 1048576"),
            std::string::npos);
}

// Whatever stands in a file, it is read or refused.
TEST_F(LoadFileTest, SurvivesDamagedFiles) {
  Random random(1);
  const std::string table =
      "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n";
  for (int i = 0; i < 300; ++i) {
    std::string text = i % 2 == 0 ? kMooncake : table;
    for (uint64_t changes = 1 + random.below(4); changes > 0; --changes) {
      text[random.below(text.size())] = static_cast<char>(random.below(256));
    }
    const auto load = read(text.substr(0, random.below(text.size() + 1)));
    if (load) {
      for (const TraceRequest& request : load->requests) {
        EXPECT_GE(request.at, Duration::zero());
        EXPECT_GE(request.prompt_tokens, 1U);
        EXPECT_LE(request.prompt_tokens, kLoadTokensMax);
        EXPECT_FALSE(request.blocks.empty());
      }
    }
  }
}

}  // namespace
}  // namespace pdjob::simulation
