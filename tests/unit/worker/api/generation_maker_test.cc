#include "worker/api/generation_maker.h"

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/limits.h"
#include "tests/unit/worker/watched_engine.h"

namespace pdjob::worker {
namespace {

constexpr uint32_t kRoom = 128;

struct GenerationMakerTest : testing::Test {
  // Returns the error of a request for these prompts; empty if it is valid.
  std::string wrong_with(openai::ApiRequest request) {
    if (const auto checked = maker.check(request); !checked) {
      return checked.error().message;
    }
    for (size_t index = 0; index < GenerationMaker::prompts(request); ++index) {
      if (const auto made = maker.make(request, index, 1); !made) {
        return made.error().message;
      }
    }
    return "";
  }
  static bool says(const std::string& message, const std::string& words) {
    return message.find(words) != std::string::npos;
  }

  WatchedEngine engine{*engine::open_engine({.kind = engine::EngineKind::kFake,
                                             .sequences = 2,
                                             .tokens_per_sequence = kRoom,
                                             .batch_tokens = 32})};
  GenerationMaker maker{engine, net::Role::kBoth};
};

TEST_F(GenerationMakerTest, ATextThatIsMuchTooLongIsRefusedByItsBeginning) {
  const std::string text(1500, 'a');  // Judged by its bytes alone, it could fit.
  EXPECT_TRUE(says(wrong_with({.prompts = {text}}), "but the first 512 of 1500 bytes have 512"));
  EXPECT_EQ(engine.watched().bytes_tokenized(), 512U);
}

TEST_F(GenerationMakerTest, ATextOfLongTokensFitsHoweverLongItIs) {
  std::string text;
  for (int i = 0; i < 100; ++i) {
    text += "<|im_start|>";
  }
  EXPECT_EQ(wrong_with({.prompts = {text}, .stop = {.max_tokens = 5}}), "");
}

TEST_F(GenerationMakerTest, ACutBetweenBytesOfACharacterIsMoved) {
  std::string text = "a";
  while (text.size() < 1500) {
    text += "\xe2\x82\xac";  // Three bytes, so byte 512 is inside one.
  }
  EXPECT_TRUE(says(wrong_with({.prompts = {text}}), "but the first 511 of"));
}

TEST_F(GenerationMakerTest, LengthsAreLookedAtBeforeAnythingIsTokenized) {
  openai::ApiRequest request{.prompts = std::vector<std::string>(3, "abc")};
  request.prompts.emplace_back(1537, 'a');
  EXPECT_TRUE(says(wrong_with(request), "the text has 1537 bytes"));
  EXPECT_TRUE(says(wrong_with({.token_prompts = {{1, 2}, std::vector<Token>(kRoom, 1)}}),
                   "the prompt has 128"));
  openai::ApiRequest chat{.kind = openai::ApiKind::kChat};
  chat.messages.assign(4, {.role = "user", .content = std::string(400, 'a')});
  EXPECT_TRUE(says(wrong_with(chat), "the messages and tools have 1600 bytes"));
  EXPECT_EQ(engine.watched().bytes_tokenized(), 0U);
}

TEST_F(GenerationMakerTest, AReplyDoesNotRepeatMorePromptsThanItMay) {
  openai::ApiRequest request{.prompts = std::vector<std::string>(256, std::string(100, 'a')),
                             .stop = {.max_tokens = 1},
                             .choices = 16,
                             .echo = true};
  EXPECT_EQ(wrong_with(request), "");
  const size_t prompts = limits::kRepeatedPromptBytesMax / 100 / 16 + 1;
  request.prompts.assign(prompts, std::string(100, 'a'));
  EXPECT_TRUE(says(wrong_with(request), "would repeat"));
}

TEST_F(GenerationMakerTest, AReplyHasNoMoreLogprobsOfPromptsThanItMay) {
  openai::ApiRequest request{.token_prompts = std::vector<std::vector<Token>>(
                                 limits::kPromptLogprobsMax / 128, std::vector<Token>(64, 1)),
                             .stop = {.max_tokens = 1},
                             .echo = true};
  request.sampling.logprobs = 1;
  EXPECT_EQ(wrong_with(request), "") << "two for each token";
  request.stream = true;
  EXPECT_TRUE(says(wrong_with(request), "at most 32768 logprobs of prompts"));
  request.stream = false;
  request.token_prompts.push_back({1});
  EXPECT_TRUE(says(wrong_with(request), "but this one would have 262146: 131073 tokens"));
  request.echo = false;
  EXPECT_EQ(wrong_with(request), "");
}

TEST_F(GenerationMakerTest, OneWorkerReadsAllOfAPromptWhoseLogprobsAreAsked) {
  openai::ApiRequest request{.token_prompts = {{1, 2}}, .stop = {.max_tokens = 0}, .echo = true};
  request.sampling.logprobs = 3;
  request.choices = 2;
  const auto made = maker.make(request, 0, 7);
  const auto& generation = *made;
  EXPECT_EQ(generation.reading, PromptReading::kLogprobs);
  EXPECT_EQ(generation.prompt_alternatives, 3U);
  EXPECT_TRUE(generation.prompt_only);
  EXPECT_EQ(generation.samplers.size(), 2U);
  request.token_prompts = {{1, 2}};
  request.kv_transfer = openai::KvTransferParams{.do_remote_decode = true};
  EXPECT_TRUE(says(wrong_with(request), "is computed by one worker"));
}

TEST_F(GenerationMakerTest, EachChoiceHasTheSameSeedWhereverItsPromptIsMade) {
  openai::ApiRequest request{.token_prompts = {{1, 2}, {3}}, .choices = 2};
  EXPECT_EQ(GenerationMaker::prompts(request), 2U);
  const auto second = maker.make(request, 1, 7);
  const auto first = maker.make(request, 0, 5);
  EXPECT_EQ(first->prompt, (std::vector<Token>{1, 2}));
  EXPECT_EQ(second->prompt, (std::vector<Token>{3}));
  EXPECT_EQ(second->samplers.size(), 2U);
}

TEST_F(GenerationMakerTest, ATextThatIsOnlyTokenizedMayBeLongerThanTheContext) {
  const auto tokens = maker.tokenize(std::string(5000, 'a'), /*add_special=*/true);
  EXPECT_EQ(tokens->size(), 5000U);
  EXPECT_FALSE(
      maker.tokenize(std::string(limits::kTokenizeBytesMax + 1, 'a'), /*add_special=*/true));
}

size_t memory_used() {
  std::ifstream pages("/proc/self/statm");
  size_t all = 0;
  size_t resident = 0;
  pages >> all >> resident;
  return resident * 4096;
}

// Regression: the largest request held 4096 tables of the vocabulary, gigabytes, before its first
// token.
TEST_F(GenerationMakerTest, ChoicesThatWaitHoldNoTableOfTheVocabulary) {
  const WatchedEngine large(engine::open_engine({.kind = engine::EngineKind::kFake}).value(),
                            200'000);
  const GenerationMaker of_large(large, net::Role::kBoth);
  openai::ApiRequest request{.prompts = std::vector<std::string>(limits::kPromptsMax, "abc"),
                             .sampling = {.repetition_penalty = 1.2F},
                             .choices = limits::kRequestChoicesMax / limits::kPromptsMax};
  const size_t before = memory_used();
  std::vector<GenerationRequest> made;
  for (size_t index = 0; index < limits::kPromptsMax; ++index) {
    made.push_back(*of_large.make(request, index, 1));
  }
  EXPECT_LT(memory_used(), before + 200 * limits::kMiB);
}

}  // namespace
}  // namespace pdjob::worker
