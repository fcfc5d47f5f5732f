#include "engine/llama_vocabulary.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/random.h"
#include "engine/grammar/grammar_compiler.h"
#include "engine/sampler.h"
#include "engine/text_stream.h"
#include "tests/unit/engine/test_model.h"

namespace pdjob::engine {
namespace {

// Tests the tokenizer, chat template and grammars of the real model, and sampling with them.
class LlamaVocabularyTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!test_model().empty()) {
      engine_ = open_engine(test_config()).value().release();
    }
  }
  static void TearDownTestSuite() {
    delete engine_;
    engine_ = nullptr;
  }
  void SetUp() override {
    if (engine_ == nullptr) {
      GTEST_SKIP() << kNoTestModel;
    }
    engine_->clear(SequenceId{0});
  }

  static const Vocabulary& vocabulary() { return engine_->vocabulary(); }
  // Uses the grammar or the schema of `params`, if there is one.
  static Result<std::unique_ptr<Sampler>> open(const SamplingParams& params,
                                               std::span<const Token> prompt = {},
                                               const StopParams& stop = {}) {
    static const auto tokens = open_grammar_tokens(grammar_pieces(vocabulary()));
    const bool schema = !params.json_schema.empty();
    std::shared_ptr<const CompiledGrammar> grammar;
    if (schema || !params.grammar.empty()) {
      const auto kind = schema ? StructureKind::kSchema : StructureKind::kGrammar;
      PDJOB_TRY(const CheckedStructure checked,
                check_structure(kind, schema ? params.json_schema : params.grammar));
      PDJOB_TRY(const std::string compiled, GrammarCompiler(tokens).compile(kind, checked.text));
      PDJOB_TRY(grammar, CompiledGrammar::read(tokens, compiled));
    }
    return open_sampler(*engine_, params, prompt, stop, std::move(grammar));
  }

  // Generates after a short prompt until the end token. Returns "FAILED: ..." if the sampler
  // refuses.
  static std::string generate(const SamplingParams& params, int tokens_max, bool* ended = nullptr) {
    const ChatMessage message{"user", "Describe a person as JSON."};
    std::vector<Token> tokens = vocabulary().tokenize(
        vocabulary().apply_chat_template({&message, 1}, {}, {}).value(), true, true);
    auto sampler = open(params, tokens).value();
    engine_->clear(SequenceId{0});
    std::string text;
    for (int i = 0; i < tokens_max; ++i) {
      const StepItem item{SequenceId{0}, tokens, true};
      EXPECT_TRUE(engine_->step({&item, 1}).has_value());
      const auto next = sampler->sample(engine_->logits(SequenceId{0}));
      if (!next.has_value()) {
        return "FAILED: " + next.error().message;
      }
      if (vocabulary().is_end(next->token)) {
        if (ended != nullptr) {
          *ended = true;
        }
        break;
      }
      text += vocabulary().piece(next->token, false);
      tokens = {next->token};
    }
    return text;
  }

  static Engine* engine_;
};
Engine* LlamaVocabularyTest::engine_ = nullptr;

TEST_F(LlamaVocabularyTest, TextSurvivesItsTokens) {
  for (const std::string& text : std::vector<std::string>{
           "Hello, world!", " two  spaces\n\ttab", "na\xC3\xAFve \xE2\x82\xAC \xF0\x9F\x98\x80"}) {
    std::string back;
    TextStream stream({});
    for (const Token token : vocabulary().tokenize(text, false, false)) {
      stream.push(vocabulary().piece(token, false), back);
    }
    EXPECT_EQ(back, text);
  }
  EXPECT_TRUE(vocabulary().tokenize("", false, false).empty());
}

TEST_F(LlamaVocabularyTest, ControlTokensAreParsedOnlyIfAsked) {
  const auto parsed = vocabulary().tokenize("<|im_end|>", false, true);
  ASSERT_EQ(parsed.size(), 1U);
  EXPECT_TRUE(vocabulary().is_end(parsed[0]));
  EXPECT_TRUE(vocabulary().is_control(parsed[0]));
  EXPECT_EQ(vocabulary().piece(parsed[0], true), "<|im_end|>");
  EXPECT_EQ(vocabulary().piece(parsed[0], false), "");
  EXPECT_GT(vocabulary().tokenize("<|im_end|>", false, false).size(), 1U);
  EXPECT_FALSE(vocabulary().is_end(-1));
  EXPECT_FALSE(vocabulary().is_control(1 << 30));
  EXPECT_EQ(vocabulary().piece(1 << 30, true), "");
}

TEST_F(LlamaVocabularyTest, NoPieceIsLongerThanItSays) {
  size_t longest = 0;
  for (Token token = 0; token < static_cast<Token>(vocabulary().size()); ++token) {
    longest = std::max(longest, vocabulary().piece(token, true).size());
  }
  EXPECT_LE(longest, vocabulary().piece_bytes_max());
  EXPECT_LE(vocabulary().piece_bytes_max(), 3 * longest);
}

TEST_F(LlamaVocabularyTest, HostileTextIsOnlyText) {
  Random random(1);
  std::string noise;
  for (int i = 0; i < 1024; ++i) {
    noise += static_cast<char>(random.below(256));
  }
  for (const std::string& text : {noise, std::string(10000, 'a'), std::string(10000, ' '),
                                  std::string(2000, '\xF0'), std::string(10000, '\0')}) {
    EXPECT_FALSE(vocabulary().tokenize(text, true, true).empty());
  }
}

TEST_F(LlamaVocabularyTest, ChatTemplateIsTheModels) {
  const ChatMessage messages[] = {
      {"system", "Be brief."}, {"user", "Hi"}, {"assistant", "Yes?"}, {"user", "Bye"}};
  const std::string prompt = vocabulary().apply_chat_template(messages, {}, {}).value();
  EXPECT_EQ(prompt,
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\nYes?<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
            "<|im_start|>assistant\n");
}

TEST_F(LlamaVocabularyTest, ChatMayStayClosedOrGoOnWithItsLastMessage) {
  const ChatMessage messages[] = {
      {"system", "Be brief."}, {"user", "Hi"}, {"assistant", "Yes, I "}};
  const std::string closed =
      vocabulary().apply_chat_template(messages, {}, {.opens_turn = false}).value();
  const std::string begin =
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
      "<|im_start|>assistant\nYes, I ";
  EXPECT_EQ(closed, begin + "<|im_end|>\n");
  const ChatFilling continued{.opens_turn = false, .continues_last = true};
  EXPECT_EQ(vocabulary().apply_chat_template(messages, {}, continued).value(), begin);
  const ChatFilling wrong{.values = {{"a", "{"}}};
  EXPECT_EQ(vocabulary().apply_chat_template(messages, {}, wrong).error().code,
            ErrorCode::kInvalidArgument);
}

TEST_F(LlamaVocabularyTest, JsonSchemaGivesJson) {
  const std::string schema =
      R"({"type":"object","properties":{"name":{"type":"string","maxLength":8},
      "age":{"type":"integer","minimum":0,"maximum":120},"tags":{"type":"array","items":{"enum":["a","b"]},"maxItems":2}},
      "required":["name","age","tags"],"additionalProperties":false})";
  for (const float temperature : {0.0F, 1.0F}) {
    for (const uint64_t seed : {1UL, 2UL}) {
      bool ended = false;
      const std::string text =
          generate({.temperature = temperature, .seed = seed, .json_schema = schema}, 120, &ended);
      ASSERT_TRUE(ended) << text;
      const auto json = nlohmann::json::parse(text, nullptr, false);
      ASSERT_TRUE(json.is_object()) << text;
      EXPECT_TRUE(json["name"].is_string()) << text;
      EXPECT_TRUE(json["age"].is_number_integer()) << text;
      EXPECT_TRUE(json["tags"].is_array()) << text;
    }
  }
}

TEST_F(LlamaVocabularyTest, GrammarForcesTheText) {
  const SamplingParams params{.temperature = 0,
                              .grammar = "root ::= \"yes, \" (\"sir\" | \"madam\")"};
  bool ended = false;
  const std::string text = generate(params, 20, &ended);
  EXPECT_TRUE(ended);
  EXPECT_TRUE(text == "yes, sir" || text == "yes, madam") << text;
}

// With a grammar the sampler chooses the most likely token of the masked vocabulary, although it
// rarely computes the mask.
TEST_F(LlamaVocabularyTest, GreedyWithAGrammarIsTheMaskedArgmax) {
  const std::string gbnf = "root ::= [0-9]+ [.] [0-9]+";
  auto sampler = open({.temperature = 0, .grammar = gbnf}, {}).value();
  Random random(5);
  std::string text;
  for (int i = 0; i < 6; ++i) {
    Token expected = -1;
    std::vector<float> row(engine_->facts().vocabulary);
    for (float& logit : row) {
      logit = static_cast<float>(random.unit());
    }
    for (Token token = 0; token < static_cast<Token>(row.size()); ++token) {
      // The grammar allows digits, with one dot after the first digit and before the last.
      const std::string whole = text + vocabulary().piece(token, true);
      const size_t dot = whole.find('.');
      const bool digits =
          !whole.empty() && whole.find_first_not_of("0123456789.") == std::string::npos &&
          whole[0] != '.' &&
          (dot == std::string::npos || whole.find('.', dot + 1) == std::string::npos);
      const bool end =
          vocabulary().is_end(token) && text.find('.') != std::string::npos && text.back() != '.';
      const bool empty = vocabulary().piece(token, true).empty();
      if (((digits && !vocabulary().is_end(token) && !empty) || end) &&
          (expected < 0 || row[token] > row[expected])) {
        expected = token;
      }
    }
    const Token token = sampler->sample(row).value().token;
    ASSERT_EQ(token, expected) << text << " + " << vocabulary().piece(token, true);
    if (vocabulary().is_end(token)) {
      break;
    }
    text += vocabulary().piece(token, true);
  }
}

TEST_F(LlamaVocabularyTest, GrammarStateIsRebuiltByReplay) {
  const SamplingParams params{
      .temperature = 1, .seed = 9, .grammar = "root ::= [a-z]{4,9} \" \" [0-9]{3}"};
  const std::vector<float> flat(engine_->facts().vocabulary, 0.0F);
  auto one = open(params, {}).value();
  std::vector<Token> tokens;
  while (tokens.size() < 12 && !one->finished()) {
    tokens.push_back(one->sample(flat).value().token);
  }
  EXPECT_TRUE(one->finished());
  for (size_t k = 0; k < tokens.size(); ++k) {
    auto other = open(params, {}).value();
    for (size_t i = 0; i < k; ++i) {
      other->accept(tokens[i]);
    }
    EXPECT_EQ(other->sample(flat).value().token, tokens[k]);
  }
}

TEST_F(LlamaVocabularyTest, OnlyAnEndMayFollowAFinishedGrammar) {
  auto sampler = open({.temperature = 0, .grammar = "root ::= \"7\""}, {}).value();
  EXPECT_FALSE(sampler->finished());
  const std::vector<float> flat(engine_->facts().vocabulary, 0.0F);
  EXPECT_EQ(vocabulary().piece(sampler->sample(flat).value().token, false), "7");
  EXPECT_TRUE(sampler->finished());
  EXPECT_TRUE(vocabulary().is_end(sampler->sample(flat).value().token));
  EXPECT_TRUE(sampler->finished());
  EXPECT_TRUE(vocabulary().is_end(sampler->sample(flat).value().token));
}

// A grammar that may end or continue must continue. A grammar that must end does end.
TEST_F(LlamaVocabularyTest, AGrammarGoesOnUntilMinTokensIfItCan) {
  std::vector<float> row(engine_->facts().vocabulary, 0.0F);
  for (const Token end : vocabulary().end_tokens()) {
    EXPECT_TRUE(vocabulary().is_end(end));
    row[end] = 9.0F;
  }
  ASSERT_FALSE(vocabulary().end_tokens().empty());
  for (const float temperature : {0.0F, 1.0F}) {
    const SamplingParams params{.temperature = temperature,
                                .grammar = "root ::= [0-9] [0-9]? [0-9]?"};
    const auto sampler = open(params, {}, {.min_tokens = 2}).value();
    EXPECT_FALSE(vocabulary().is_end(sampler->sample(row).value().token));
    EXPECT_FALSE(vocabulary().is_end(sampler->sample(row).value().token));
    if (temperature == 0) {
      EXPECT_TRUE(vocabulary().is_end(sampler->sample(row).value().token));
    }
    const auto patient = open(params, {}, {.min_tokens = 9}).value();
    for (int i = 0; i < 3; ++i) {
      EXPECT_FALSE(vocabulary().is_end(patient->sample(row).value().token));
    }
    EXPECT_TRUE(vocabulary().is_end(patient->sample(row).value().token));
  }
}

TEST_F(LlamaVocabularyTest, ReplayingWhatTheGrammarForbidsFailsTheChoice) {
  auto sampler = open({.grammar = "root ::= \"abc\""}, {}).value();
  sampler->accept(vocabulary().tokenize("7", false, false)[0]);
  sampler->accept(-5);
  const auto result = sampler->sample(std::vector<float>(engine_->facts().vocabulary, 0.0F));
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(LlamaVocabularyTest, RecursiveSchemasWork) {
  const std::string schema =
      R"({"$defs":{"t":{"type":"array","items":{"$ref":"#/$defs/t"},"maxItems":1}},"$ref":"#/$defs/t"})";
  const std::string text = generate({.temperature = 0, .json_schema = schema}, 40);
  EXPECT_EQ(text.find_first_not_of("[] \n\r\t"), std::string::npos) << text;
}

TEST_F(LlamaVocabularyTest, LogprobsOfTheRealModelAddUp) {
  SamplingParams params{.temperature = 0, .logprobs = 20};
  const auto tokens = vocabulary().tokenize("The capital of France is", true, false);
  const StepItem item{SequenceId{0}, tokens, true};
  ASSERT_TRUE(engine_->step({&item, 1}).has_value());
  const GeneratedToken token = open_sampler(*engine_, params, tokens)
                                   .value()
                                   ->sample(engine_->logits(SequenceId{0}))
                                   .value();
  ASSERT_EQ(token.top.size(), 20U);
  EXPECT_EQ(token.top[0].token, token.token);
  EXPECT_FLOAT_EQ(token.top[0].logprob, token.logprob);
  double sum = 0;
  for (size_t i = 0; i < token.top.size(); ++i) {
    sum += std::exp(token.top[i].logprob);
    EXPECT_TRUE(i == 0 || token.top[i].logprob <= token.top[i - 1].logprob);
  }
  EXPECT_GT(sum, 0.3);
  EXPECT_LT(sum, 1.0 + 1e-5);
}

}  // namespace
}  // namespace pdjob::engine
