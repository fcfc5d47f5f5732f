#include "engine/llama_vocabulary.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/random.h"
#include "engine/sampler.h"
#include "engine/text_stream.h"
#include "tests/unit/engine/test_model.h"

namespace pdjob::engine {
namespace {

// Tokenizer, chat template and grammars of the real model, and sampling with them.
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
  static ErrorCode refusal(const SamplingParams& params) {
    const auto sampler = open_sampler(*engine_, params, {});
    return sampler.has_value() ? ErrorCode::kInternal : sampler.error().code;
  }

  // Generates after a short prompt until the end token; "FAILED: ..." if the sampler refuses.
  static std::string generate(const SamplingParams& params, int tokens_max, bool* ended = nullptr) {
    const ChatMessage message{"user", "Describe a person as JSON."};
    std::vector<Token> tokens =
        vocabulary().tokenize(vocabulary().apply_chat_template({&message, 1}).value(), true, true);
    auto sampler = open_sampler(*engine_, params, tokens).value();
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
  const std::string prompt = vocabulary().apply_chat_template(messages).value();
  EXPECT_EQ(prompt,
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\nYes?<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
            "<|im_start|>assistant\n");
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

// What the sampler chooses with a grammar is the most likely token of the masked vocabulary, though
// it rarely masks it.
TEST_F(LlamaVocabularyTest, GreedyWithAGrammarIsTheMaskedArgmax) {
  const std::string gbnf = "root ::= [0-9]+ [.] [0-9]+";
  auto sampler = open_sampler(*engine_, {.temperature = 0, .grammar = gbnf}, {}).value();
  Random random(5);
  std::string text;
  for (int i = 0; i < 6; ++i) {
    Token expected = -1;
    std::vector<float> row(engine_->facts().vocabulary);
    for (float& logit : row) {
      logit = static_cast<float>(random.unit());
    }
    for (Token token = 0; token < static_cast<Token>(row.size()); ++token) {
      // Allowed: digits, with one dot after the first digit and before the last.
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
  auto one = open_sampler(*engine_, params, {}).value();
  std::vector<Token> tokens;
  while (tokens.size() < 12 && !one->finished()) {
    tokens.push_back(one->sample(flat).value().token);
  }
  EXPECT_TRUE(one->finished());
  for (size_t k = 0; k < tokens.size(); ++k) {
    auto other = open_sampler(*engine_, params, {}).value();
    for (size_t i = 0; i < k; ++i) {
      other->accept(tokens[i]);
    }
    EXPECT_EQ(other->sample(flat).value().token, tokens[k]);
  }
}

TEST_F(LlamaVocabularyTest, OnlyAnEndMayFollowAFinishedGrammar) {
  auto sampler =
      open_sampler(*engine_, {.temperature = 0, .grammar = "root ::= \"7\""}, {}).value();
  EXPECT_FALSE(sampler->finished());
  const std::vector<float> flat(engine_->facts().vocabulary, 0.0F);
  EXPECT_EQ(vocabulary().piece(sampler->sample(flat).value().token, false), "7");
  EXPECT_TRUE(sampler->finished());
  EXPECT_TRUE(vocabulary().is_end(sampler->sample(flat).value().token));
  EXPECT_TRUE(sampler->finished());
  EXPECT_TRUE(vocabulary().is_end(sampler->sample(flat).value().token));
}

// A grammar that may end or go on goes on; one that must end, ends.
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
    const auto sampler = open_sampler(*engine_, params, {}, {.min_tokens = 2}).value();
    EXPECT_FALSE(vocabulary().is_end(sampler->sample(row).value().token));
    EXPECT_FALSE(vocabulary().is_end(sampler->sample(row).value().token));
    if (temperature == 0) {
      EXPECT_TRUE(vocabulary().is_end(sampler->sample(row).value().token));
    }
    const auto patient = open_sampler(*engine_, params, {}, {.min_tokens = 9}).value();
    for (int i = 0; i < 3; ++i) {
      EXPECT_FALSE(vocabulary().is_end(patient->sample(row).value().token));
    }
    EXPECT_TRUE(vocabulary().is_end(patient->sample(row).value().token));
  }
}

TEST_F(LlamaVocabularyTest, ReplayingWhatTheGrammarForbidsFailsTheChoice) {
  auto sampler = open_sampler(*engine_, {.grammar = "root ::= \"abc\""}, {}).value();
  sampler->accept(vocabulary().tokenize("7", false, false)[0]);
  sampler->accept(-5);
  const auto result = sampler->sample(std::vector<float>(engine_->facts().vocabulary, 0.0F));
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(LlamaVocabularyTest, WrongGrammarsAreRefused) {
  for (const std::string& grammar :
       {std::string("nonsense"), std::string("root ::= other"), std::string("start ::= \"a\""),
        std::string("root ::= \"a"), std::string("root ::= [a"), std::string("root ::= (\"a\""),
        std::string("root ::= root \"a\" | \"b\""),
        std::string("root ::= \"a\"{99999999999999999999}"),
        std::string("root ::= <[99999999999]>"), std::string("root ::= \"\\x"),
        std::string("\0root", 5), std::string("root ::= \"a\"{2001,}")}) {
    EXPECT_EQ(refusal({.grammar = grammar}), ErrorCode::kInvalidArgument) << grammar;
  }
}

TEST_F(LlamaVocabularyTest, GrammarBombsAreRefusedAtOnce) {
  // Nesting that would overflow the parser's stack.
  EXPECT_EQ(refusal({.grammar = "root ::= " + std::string(60000, '(')}),
            ErrorCode::kInvalidArgument);
  // Left recursion through rules that are empty only by way of others.
  EXPECT_EQ(refusal({.grammar = "root ::= a root \"x\" | \"y\"\na ::= b\nb ::= \"z\" | \"\""}),
            ErrorCode::kInvalidArgument);
  // 2^50 leftmost paths.
  std::string paths = "root ::= r0\n";
  std::string chain = "root ::= c0\n";
  for (int i = 0; i < 50; ++i) {
    const std::string next = "r" + std::to_string(i + 1);
    paths += "r" + std::to_string(i) + " ::= " + next + " | " + next + " \"x\"\n";
  }
  EXPECT_EQ(refusal({.grammar = paths + "r50 ::= \"a\"\n"}), ErrorCode::kInvalidArgument);
  for (int i = 0; i < 4500; ++i) {
    chain += "c" + std::to_string(i) + "::=c" + std::to_string(i + 1) + "\n";
  }
  chain.resize(std::min<size_t>(chain.size(), 60000));
  EXPECT_EQ(refusal({.grammar = chain}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refusal({.grammar = "root ::= ((\"a\"{2000}){2000}){2000}"}),
            ErrorCode::kInvalidArgument);
}

TEST_F(LlamaVocabularyTest, AGrammarThatBecomesTooAmbiguousFailsItsChoiceOnly) {
  const SamplingParams params{.temperature = 0,
                              .grammar = "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"d\""};
  auto sampler = open_sampler(*engine_, params, {}).value();
  const Token a = vocabulary().tokenize("a", false, false)[0];
  for (int i = 0; i < 64; ++i) {
    sampler->accept(a);
  }
  EXPECT_FALSE(sampler->sample(std::vector<float>(engine_->facts().vocabulary, 0.0F)).has_value());
}

TEST_F(LlamaVocabularyTest, WrongSchemasAreRefused) {
  std::string many = R"({"type":"object","properties":{)";
  for (int i = 0; i < 5000; ++i) {
    many += (i == 0 ? "\"p" : ",\"p") + std::to_string(i) + "\":{}";
  }
  for (const std::string& schema :
       {std::string("{"), std::string("\"text\""), std::string("[1]"),
        std::string(R"({"type":"nonsense"})"), std::string(R"({"$ref":"#/nowhere"})"),
        std::string(R"({"$ref":"http://127.0.0.1:1/x"})"),
        std::string(R"({"pattern":"^((((a$","type":"string"})"), std::string(30000, '['),
        many + "}}", std::string(R"({"type":"string","minLength":1000000000})")}) {
    EXPECT_EQ(refusal({.json_schema = schema}), ErrorCode::kInvalidArgument)
        << schema.substr(0, 60);
  }
}

TEST_F(LlamaVocabularyTest, RecursiveSchemasWork) {
  const std::string schema =
      R"({"$defs":{"t":{"type":"array","items":{"$ref":"#/$defs/t"},"maxItems":1}},"$ref":"#/$defs/t"})";
  const std::string text = generate({.temperature = 0, .json_schema = schema}, 40);
  EXPECT_EQ(text.find_first_not_of("[] \n\t"), std::string::npos) << text;
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
