#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "common/limits.h"
#include "common/random.h"
#include "engine/fake_engine.h"
#include "engine/grammar/grammar_compiler.h"

namespace pdjob::engine {
namespace {

class SamplerTest : public testing::Test {
 protected:
  SamplerTest() : engine_(open_engine({.kind = EngineKind::kFake, .shared_kv = false}).value()) {}

  std::unique_ptr<Sampler> open(const SamplingParams& params, std::vector<Token> prompt = {},
                                const StopParams& stop = {}) {
    return open_sampler(*engine_, params, prompt, stop).value();
  }
  // Returns logits of -10, except where given.
  static std::vector<float> logits(const std::map<Token, float>& given) {
    std::vector<float> out(kFakeVocabulary, -10.0F);
    for (const auto& [token, logit] : given) {
      out[token] = logit;
    }
    return out;
  }
  Token first(const SamplingParams& params, const std::vector<float>& row) {
    return open(params)->sample(row).value().token;
  }
  // Returns how often each token is drawn with `draws` seeds.
  std::map<Token, int> histogram(SamplingParams params, const std::vector<float>& row, int draws) {
    std::map<Token, int> counts;
    for (int seed = 0; seed < draws; ++seed) {
      params.seed = static_cast<uint64_t>(seed);
      ++counts[first(params, row)];
    }
    return counts;
  }

  std::unique_ptr<Engine> engine_;
};

TEST_F(SamplerTest, GreedyTakesTheLowestOfEquals) {
  EXPECT_EQ(first({.temperature = 0}, logits({{7, 3.0F}, {9, 3.0F}, {250, 2.0F}})), 7);
  EXPECT_EQ(first({.temperature = 0}, logits({{257, 3.0F}})), 257);
}

TEST_F(SamplerTest, TopPOfZeroIsTheMostLikelyToken) {
  const auto counts = histogram({.top_p = 0}, logits({{7, 1.0F}, {9, 1.1F}, {11, 1.0F}}), 50);
  EXPECT_EQ(counts, (std::map<Token, int>{{9, 50}}));
}

TEST_F(SamplerTest, ChoosesAmongTheAllowedTokensOnly) {
  const auto row = logits({{7, 5.0F}, {9, 1.0F}, {11, 1.0F}});
  const auto counts = histogram({.allowed_tokens = {9, 11}}, row, 100);
  EXPECT_EQ(counts.size(), 2U);
  EXPECT_TRUE(counts.contains(9) && counts.contains(11));
  EXPECT_EQ(first({.temperature = 0,
                   .repetition_penalty = 2,
                   .logit_bias = {{7, 100}, {11, 1}},
                   .allowed_tokens = {9, 11}},
                  row),
            11);
  EXPECT_FALSE(open_sampler(*engine_, {.allowed_tokens = {1 << 20}}, {}, {}).has_value());
}

TEST_F(SamplerTest, RefusesLogitsThatAreNotNumbers) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const float temperature : {0.0F, 1.0F}) {
      for (const Token token : {0, 100, 257}) {
        const auto result = open({.temperature = temperature})->sample(logits({{token, bad}}));
        ASSERT_FALSE(result.has_value());
        EXPECT_EQ(result.error().code, ErrorCode::kCorrupt);
      }
    }
  }
  const std::vector<float> none(kFakeVocabulary, -std::numeric_limits<float>::infinity());
  EXPECT_FALSE(open({})->sample(none).has_value());
}

TEST_F(SamplerTest, NeverDrawsWhatIsImpossible) {
  std::vector<float> row(kFakeVocabulary, -std::numeric_limits<float>::infinity());
  row[3] = 0;
  row[4] = 0;
  const auto counts = histogram({}, row, 200);
  EXPECT_EQ(counts.size(), 2U);
  EXPECT_GT(counts.at(3), 50);
  EXPECT_GT(counts.at(4), 50);
}

TEST_F(SamplerTest, DrawsInProportion) {
  std::vector<float> row(kFakeVocabulary, -100.0F);
  row[1] = std::log(0.7F);
  row[2] = std::log(0.2F);
  row[3] = std::log(0.1F);
  const auto counts = histogram({}, row, 4000);
  EXPECT_NEAR(counts.at(1), 2800, 150);
  EXPECT_NEAR(counts.at(2), 800, 120);
  EXPECT_NEAR(counts.at(3), 400, 100);
}

TEST_F(SamplerTest, TemperatureSharpens) {
  std::vector<float> row(kFakeVocabulary, -100.0F);
  row[1] = 1.0F;
  row[2] = 0.0F;
  // e^(1/0.5) : 1 = 0.881 : 0.119.
  EXPECT_NEAR(histogram({.temperature = 0.5F}, row, 4000).at(1), 3523, 120);
}

TEST_F(SamplerTest, TopKKeepsTheMostLikely) {
  const auto row = logits({{5, 1.0F}, {6, 1.0F}, {7, 1.0F}, {8, 0.9F}});
  const auto counts = histogram({.top_k = 2}, row, 200);
  EXPECT_EQ(counts.size(), 2U);
  EXPECT_TRUE(counts.contains(5) && counts.contains(6));
  EXPECT_EQ(first({.temperature = 5.0F, .top_k = 1, .seed = 3}, row), 5);
}

TEST_F(SamplerTest, TopPKeepsTheFewestThatReachTheMass) {
  std::vector<float> row(kFakeVocabulary, -100.0F);
  row[10] = std::log(0.5F);
  row[11] = std::log(0.3F);
  row[12] = std::log(0.15F);
  row[13] = std::log(0.05F);
  EXPECT_EQ(histogram({.top_p = 0.4F}, row, 100).size(), 1U);
  EXPECT_EQ(histogram({.top_p = 0.7F}, row, 300).size(), 2U);
  EXPECT_EQ(histogram({.top_p = 0.9F}, row, 300).size(), 3U);
}

TEST_F(SamplerTest, TopPIsOfWhatTopKLeft) {
  std::vector<float> row(kFakeVocabulary, -100.0F);
  row[10] = std::log(0.4F);
  row[11] = std::log(0.3F);
  row[12] = std::log(0.3F);
  // Among the two tokens left, token 10 has 4/7 = 0.571.
  EXPECT_EQ(histogram({.top_k = 2, .top_p = 0.57F}, row, 200).size(), 1U);
  EXPECT_EQ(histogram({.top_k = 2, .top_p = 0.58F}, row, 200).size(), 2U);
}

// The fast search for the nucleus gives the same result as sorting everything.
TEST_F(SamplerTest, TopPEqualsTheSlowOracle) {
  Random random(7);
  for (int round = 0; round < 20; ++round) {
    std::vector<float> row(kFakeVocabulary);
    for (float& logit : row) {
      logit = static_cast<float>(random.unit() * 6);
    }
    const float top_p = 0.05F + 0.9F * static_cast<float>(random.unit());
    std::vector<Token> order(kFakeVocabulary);
    for (Token token = 0; token < static_cast<Token>(order.size()); ++token) {
      order[token] = token;
    }
    std::sort(order.begin(), order.end(), [&](Token a, Token b) { return row[a] > row[b]; });
    double total = 0;
    for (const float logit : row) {
      total += std::exp(logit);
    }
    std::set<Token> nucleus;
    double mass = 0;
    for (size_t i = 0; i < order.size() && mass < top_p * total; ++i) {
      nucleus.insert(order[i]);
      mass += std::exp(row[order[i]]);
    }
    for (const auto& [token, count] : histogram({.top_p = top_p}, row, 300)) {
      EXPECT_TRUE(nucleus.contains(token)) << token << " top_p " << top_p;
    }
  }
}

TEST_F(SamplerTest, MinPIsRelativeToTheMostLikely) {
  std::vector<float> row(kFakeVocabulary, -100.0F);
  row[1] = 0;
  row[2] = std::log(0.3F);
  row[3] = std::log(0.1F);
  EXPECT_EQ(histogram({.min_p = 0.2F}, row, 300).size(), 2U);
  EXPECT_EQ(histogram({.min_p = 0.05F}, row, 300).size(), 3U);
}

TEST_F(SamplerTest, TheSameSeedAndPositionGiveTheSameToken) {
  std::vector<float> row(kFakeVocabulary, 0.0F);
  const SamplingParams params{.seed = 42};
  auto one = open(params, {1, 2, 3});
  std::vector<Token> tokens;
  for (int i = 0; i < 8; ++i) {
    tokens.push_back(one->sample(row).value().token);
  }
  EXPECT_GT(std::set<Token>(tokens.begin(), tokens.end()).size(), 3U);
  // Continues after k tokens by replay. The stream must be the same.
  for (size_t k = 0; k <= tokens.size(); ++k) {
    auto other = open(params, {1, 2, 3});
    for (size_t i = 0; i < k; ++i) {
      other->accept(tokens[i]);
    }
    for (size_t i = k; i < tokens.size(); ++i) {
      ASSERT_EQ(other->sample(row).value().token, tokens[i]);
    }
  }
  auto seeded_otherwise = open({.seed = 43}, {1, 2, 3});
  std::vector<Token> others;
  for (int i = 0; i < 8; ++i) {
    others.push_back(seeded_otherwise->sample(row).value().token);
  }
  EXPECT_NE(tokens, others);
}

TEST_F(SamplerTest, RepetitionPenaltyCoversPromptAndOutput) {
  const SamplingParams params{.temperature = 0, .repetition_penalty = 2.0F};
  // A prompt token: 4 / 2 = 2 < 3. A negative logit is multiplied.
  EXPECT_EQ(open(params, {5})->sample(logits({{5, 4.0F}, {6, 3.0F}})).value().token, 6);
  std::vector<float> negative(kFakeVocabulary, -9.0F);
  negative[5] = -2.0F;
  negative[6] = -3.0F;
  EXPECT_EQ(open(params, {5})->sample(negative).value().token, 6);
  auto sampler = open(params);
  EXPECT_EQ(sampler->sample(logits({{5, 4.0F}, {6, 3.0F}})).value().token, 5);
  EXPECT_EQ(sampler->sample(logits({{5, 4.0F}, {6, 3.0F}})).value().token, 6);
}

TEST_F(SamplerTest, PresenceAndFrequencyPenaltiesCoverOutputOnly) {
  const auto row = logits({{5, 4.0F}, {6, 3.0F}, {7, 2.2F}});
  EXPECT_EQ(open({.temperature = 0, .presence_penalty = 1.5F}, {5, 5})->sample(row).value().token,
            5);
  auto presence = open({.temperature = 0, .presence_penalty = 1.5F});
  EXPECT_EQ(presence->sample(row).value().token, 5);
  EXPECT_EQ(presence->sample(row).value().token, 6);  // Token 5 has 2.5 now.
  EXPECT_EQ(presence->sample(row).value().token, 5);  // Token 6 has 1.5.
  EXPECT_EQ(presence->sample(row).value().token, 5);  // The presence penalty does not add up.
  auto frequency = open({.temperature = 0, .frequency_penalty = 0.6F});
  std::vector<Token> tokens;
  for (int i = 0; i < 4; ++i) {
    tokens.push_back(frequency->sample(row).value().token);
  }
  EXPECT_EQ(tokens, (std::vector<Token>{5, 5, 6, 5}));
}

TEST_F(SamplerTest, LogitBiasComesFirst) {
  SamplingParams params{.temperature = 0};
  params.logit_bias = {{9, 100.0F}, {5, -100.0F}};
  EXPECT_EQ(first(params, logits({{5, 4.0F}, {6, 3.0F}})), 9);
}

TEST_F(SamplerTest, NothingThatEndsIsChosenBeforeMinTokens) {
  const StopParams stop{.min_tokens = 2, .token_ids = {6, 6, -1, 1'000'000}};
  const auto row = logits({{kFakeEnd, 9.0F}, {6, 8.0F}, {7, 7.0F}});
  for (const bool ignore_eos : {false, true}) {
    const auto sampler = open({.temperature = 0, .ignore_eos = ignore_eos}, {1, 2, 3}, stop);
    EXPECT_EQ(sampler->sample(row).value().token, 7);
    EXPECT_EQ(sampler->sample(row).value().token, 7);
    EXPECT_EQ(sampler->sample(row).value().token, kFakeEnd);
  }
}

TEST_F(SamplerTest, DrawsAsIfWhatEndsWereImpossibleBeforeMinTokens) {
  std::vector<float> row(kFakeVocabulary, -100.0F);
  row[kFakeEnd] = std::log(0.6F);
  row[1] = std::log(0.3F);
  row[2] = std::log(0.1F);
  std::map<Token, int> counts;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    ++counts[open({.top_p = 0.99F, .seed = seed}, {}, {.min_tokens = 1})->sample(row)->token];
  }
  EXPECT_EQ(counts.size(), 2U);
  EXPECT_NEAR(counts[1], 1500, 100);
}

TEST_F(SamplerTest, ReplayedTokensCountForMinTokens) {
  const auto row = logits({{kFakeEnd, 9.0F}, {7, 7.0F}});
  const auto sampler = open({.temperature = 0}, {1}, {.min_tokens = 2});
  sampler->accept(7);
  EXPECT_EQ(sampler->sample(row).value().token, 7);
  EXPECT_EQ(sampler->sample(row).value().token, kFakeEnd);
}

TEST_F(SamplerTest, MinTokensWorkTogetherWithPenaltiesAndBias) {
  SamplingParams params{.temperature = 0, .repetition_penalty = 2.0F};
  params.logit_bias = {{kFakeEnd, 100.0F}};
  const auto row = logits({{5, 8.0F}, {6, 5.0F}});
  const auto sampler = open(params, {5}, {.min_tokens = 2});
  EXPECT_EQ(sampler->sample(row).value().token, 6);  // Token 5 is halved.
  EXPECT_EQ(sampler->sample(row).value().token, 5);
  EXPECT_EQ(sampler->sample(row).value().token, kFakeEnd);
}

TEST_F(SamplerTest, EndsBeforeMinTokensWhereNothingElseCanFollow) {
  std::vector<float> row(kFakeVocabulary, -std::numeric_limits<float>::infinity());
  row[kFakeEnd] = 1.0F;
  for (const float temperature : {0.0F, 1.0F}) {
    const auto sampler = open({.temperature = temperature}, {}, {.min_tokens = 5});
    EXPECT_EQ(sampler->sample(row).value().token, kFakeEnd);
  }
  row[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(open({}, {}, {.min_tokens = 5})->sample(row).error().code, ErrorCode::kCorrupt);
}

TEST_F(SamplerTest, LogprobsAreOfTheRawLogits) {
  SamplingParams params{.temperature = 0, .top_k = 1, .presence_penalty = 1.0F, .logprobs = 3};
  params.logit_bias = {{6, 50.0F}};
  std::vector<float> row(kFakeVocabulary, -INFINITY);
  row[5] = std::log(0.5F);
  row[6] = std::log(0.25F);
  row[7] = std::log(0.25F);
  const GeneratedToken token = open(params)->sample(row).value();
  EXPECT_EQ(token.token, 6);
  EXPECT_NEAR(token.logprob, std::log(0.25), 1e-5);
  ASSERT_EQ(token.top.size(), 3U);
  EXPECT_EQ(token.top[0].token, 5);
  EXPECT_EQ(token.top[1].token, 6);
  EXPECT_EQ(token.top[2].token, 7);
  EXPECT_NEAR(token.top[0].logprob, std::log(0.5), 1e-5);
}

TEST_F(SamplerTest, LogprobsOfAllTokensAddUpToOne) {
  Random random(3);
  std::vector<float> row(kFakeVocabulary);
  for (float& logit : row) {
    logit = static_cast<float>(random.unit() * 10);
  }
  double sum = 0;
  for (Token token = 0; token < static_cast<Token>(kFakeVocabulary); ++token) {
    SamplingParams params{.temperature = 0, .logprobs = 0};
    params.logit_bias = {{token, 1000.0F}};
    const GeneratedToken generated = open(params)->sample(row).value();
    ASSERT_EQ(generated.token, token);
    EXPECT_TRUE(generated.top.empty());
    sum += std::exp(generated.logprob);
  }
  EXPECT_NEAR(sum, 1.0, 1e-4);
}

TEST_F(SamplerTest, LogprobsAtTemperatureAreOfTheDistributionBeforeTopK) {
  std::vector<float> row(kFakeVocabulary, -INFINITY);
  row[5] = std::log(0.5F);
  row[6] = std::log(0.3F);
  row[7] = std::log(0.2F);
  SamplingParams params{.temperature = 0.5F,
                        .top_k = 2,
                        .top_p = 0.9F,
                        .logprobs = 3,
                        .logprobs_at_temperature = true};
  const GeneratedToken token = open(params)->sample(row).value();
  const double total = 0.25 + 0.09 + 0.04;  // p^(1/T)
  ASSERT_EQ(token.top.size(), 3U);
  EXPECT_NEAR(token.top[0].logprob, std::log(0.25 / total), 1e-6);
  EXPECT_NEAR(token.top[1].logprob, std::log(0.09 / total), 1e-6);
  EXPECT_NEAR(token.top[2].logprob, std::log(0.04 / total), 1e-6);
  EXPECT_EQ(token.logprob, token.top[token.token == 5 ? 0 : 1].logprob);
}

TEST_F(SamplerTest, GreedyLogprobsHaveNoTemperature) {
  std::vector<float> row(kFakeVocabulary, -INFINITY);
  row[5] = std::log(0.75F);
  row[6] = std::log(0.25F);
  const GeneratedToken token =
      open({.temperature = 0, .logprobs = 0, .logprobs_at_temperature = true})->sample(row).value();
  EXPECT_NEAR(token.logprob, std::log(0.75), 1e-6);
}

TEST_F(SamplerTest, LogprobsAtTemperatureFollowBiasAndPenalties) {
  std::vector<float> row(kFakeVocabulary, -INFINITY);
  row[5] = 1.0F;
  row[6] = 1.0F;
  SamplingParams params{
      .temperature = 0, .presence_penalty = 1.0F, .logprobs = 0, .logprobs_at_temperature = true};
  params.logit_bias = {{5, 2.0F}};
  const auto sampler = open(params);
  EXPECT_NEAR(sampler->sample(row).value().logprob, 2 - std::log(std::exp(2.0) + 1), 1e-5);
  EXPECT_NEAR(sampler->sample(row).value().logprob, 1 - std::log(std::exp(1.0) + 1), 1e-5);
}

TEST_F(SamplerTest, LogprobsAtTemperatureLeaveOutTokensThatMayNotEndItYet) {
  std::vector<float> row(kFakeVocabulary, -INFINITY);
  row[kFakeEnd] = 5.0F;
  row[6] = 1.0F;
  const GeneratedToken token =
      open({.temperature = 1, .logprobs = 0, .logprobs_at_temperature = true}, {},
           {.max_tokens = 4, .min_tokens = 2})
          ->sample(row)
          .value();
  EXPECT_EQ(token.token, 6);
  EXPECT_NEAR(token.logprob, 0.0, 1e-6);
}

TEST_F(SamplerTest, RefusesParametersOutOfRange) {
  const auto refused = [&](SamplingParams params) {
    const auto result = open_sampler(*engine_, params, {});
    return !result.has_value() && result.error().code == ErrorCode::kInvalidArgument;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(refused({.temperature = -1}));
  EXPECT_TRUE(refused({.temperature = nan}));
  EXPECT_TRUE(refused({.top_k = -2}));
  EXPECT_TRUE(refused({.top_p = -0.1F}));
  EXPECT_TRUE(refused({.top_p = 1.5F}));
  EXPECT_TRUE(refused({.min_p = nan}));
  EXPECT_TRUE(refused({.repetition_penalty = 0}));
  EXPECT_TRUE(refused({.presence_penalty = nan}));
  EXPECT_TRUE(refused({.logit_bias = {{-1, 0.0F}}}));
  EXPECT_TRUE(refused({.logit_bias = {{static_cast<Token>(kFakeVocabulary), 0.0F}}}));
  EXPECT_TRUE(refused({.logit_bias = {{1, nan}}}));
  EXPECT_TRUE(refused({.logprobs = static_cast<int32_t>(limits::kLogprobsMax) + 1}));
  EXPECT_FALSE(refused({}));
}

TEST_F(SamplerTest, ChoicesThatShareAGrammarFollowItApart) {
  const auto tokens = open_grammar_tokens(grammar_pieces(engine_->vocabulary()));
  const auto compiled = CompiledGrammar::read(tokens, GrammarCompiler(tokens)
                                                          .compile(StructureKind::kGrammar,
                                                                   "root ::= \"ab\" | \"cd\"")
                                                          .value())
                            .value();
  const auto row = logits({{'a', 4.0F}, {'d', 3.0F}});
  const auto one = open_sampler(*engine_, {.temperature = 0}, {}, {}, compiled).value();
  const auto other = open_sampler(*engine_, {.temperature = 0}, {}, {}, compiled).value();
  EXPECT_EQ(one->sample(row).value().token, 'a');
  EXPECT_EQ(one->sample(row).value().token, 'b');
  other->accept('c');
  EXPECT_EQ(other->sample(row).value().token, 'd');
  EXPECT_EQ(one->sample(row).value().token, kFakeEnd);
  EXPECT_TRUE(other->finished());
}

TEST_F(SamplerTest, LogprobsAtTemperatureAreOfTheTokensThatTheGrammarAllows) {
  const auto tokens = open_grammar_tokens(grammar_pieces(engine_->vocabulary()));
  const auto compiled =
      CompiledGrammar::read(tokens, GrammarCompiler(tokens)
                                        .compile(StructureKind::kGrammar, "root ::= \"a\" | \"c\"")
                                        .value())
          .value();
  std::vector<float> row(kFakeVocabulary, -INFINITY);
  row['a'] = 2.0F;
  row['b'] = 2.0F;
  row['c'] = 1.0F;
  // Whether the first draw was allowed makes no difference.
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const SamplingParams params{.seed = seed, .logprobs = 0, .logprobs_at_temperature = true};
    const auto sampler = open_sampler(*engine_, params, {}, {}, compiled).value();
    const GeneratedToken token = sampler->sample(row).value();
    const double logit = token.token == 'a' ? 2.0 : 1.0;
    EXPECT_NEAR(token.logprob, logit - std::log(std::exp(2.0) + std::exp(1.0)), 1e-5);
  }
}

TEST_F(SamplerTest, ExtremeButValidParametersStayFinite) {
  const auto row = logits({{5, 4.0F}});
  EXPECT_EQ(first({.temperature = 1e-4F}, row), 5);
  EXPECT_TRUE(open({.temperature = 1e30F})->sample(row).has_value());
  EXPECT_TRUE(open({.top_k = std::numeric_limits<int32_t>::max()})->sample(row).has_value());
  EXPECT_EQ(first({.top_p = 1e-30F}, row), 5);
  EXPECT_EQ(first({.min_p = 1.0F}, row), 5);
}

}  // namespace
}  // namespace pdjob::engine
