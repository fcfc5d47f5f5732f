#include "launcher/played/load_words.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace pdjob::simulation {
namespace {

using std::chrono::seconds;

LoadWords words(const std::string& rate, const std::string& prompt = "10",
                const std::string& output = "2") {
  LoadWords made{.duration = seconds(100)};
  made.rate = *parse_rate("--rate", rate);
  made.prompt = *parse_length("--prompt", prompt);
  made.output = *parse_length("--output", output);
  return made;
}

TEST(LoadWords, ReadsLengths) {
  EXPECT_EQ(parse_length("--prompt", "3000")->tokens, 3000U);
  const LengthWords uniform = *parse_length("--prompt", "100..500");
  EXPECT_EQ(uniform.kind, LengthWords::Kind::kUniform);
  EXPECT_EQ(uniform.tokens, 100U);
  EXPECT_EQ(uniform.longest, 500U);
  const LengthWords lognormal = *parse_length("--prompt", "3000~0.5");
  EXPECT_EQ(lognormal.kind, LengthWords::Kind::kLognormal);
  EXPECT_DOUBLE_EQ(lognormal.spread, 0.5);
}

TEST(LoadWords, RefusesOtherLengthsAndSaysWhatIsRight) {
  for (const char* text : {"", "0", "-1", "1.5", "1e9", "nan", "inf", "500..100", "1..", "..5",
                           "10~", "10~4", "10~-1", "10~nan", "3000 ", "3k", "1..2..3"}) {
    const auto read = parse_length("--prompt", text);
    ASSERT_FALSE(read) << text;
    EXPECT_NE(read.error().message.find("--prompt: expected tokens from 1 to 1000000"),
              std::string::npos)
        << read.error().message;
  }
}

TEST(LoadWords, ReadsRates) {
  EXPECT_DOUBLE_EQ(parse_rate("--rate", "20")->front().from, 20);
  const auto ramp = *parse_rate("--rate", "5..40@10min");
  EXPECT_DOUBLE_EQ(ramp.front().to, 40);
  EXPECT_EQ(ramp.front().lasts, std::chrono::minutes(10));
  EXPECT_EQ(parse_rate("--rate", "5@50s,50@10s")->size(), 2U);
}

TEST(LoadWords, RefusesOtherRates) {
  for (const char* text : {"", "0", "-1", "5..40", "5,6", "5@0s", "5@", "@5s", "5@5", "1e6",
                           "5@1s,", ",5@1s", "0@5s,0@1s", "nan", "5@1e300h"}) {
    const auto read = parse_rate("--rate", text);
    ASSERT_FALSE(read) << text;
    EXPECT_NE(read.error().message.find("--rate: expected requests per second"), std::string::npos);
  }
  std::string many = "1@1s";
  for (int i = 0; i < 100; ++i) {
    many += ",1@1s";
  }
  EXPECT_FALSE(parse_rate("--rate", many));
}

TEST(LoadWords, RefusesTimesThatAreNone) {
  EXPECT_EQ(*parse_time("--duration", "1.5h"), std::chrono::minutes(90));
  for (const char* text : {"", "5", "0s", "-1s", "s", "400000h", "nans"}) {
    EXPECT_FALSE(parse_time("--duration", text)) << text;
  }
}

TEST(MakeLoad, GivesEqualLoadsForEqualSeeds) {
  const RequestTrace one = *make_load(words("20", "100~1"), 7);
  const RequestTrace two = *make_load(words("20", "100~1"), 7);
  const RequestTrace other = *make_load(words("20", "100~1"), 8);
  ASSERT_EQ(one.size(), two.size());
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].at, two[i].at);
    EXPECT_EQ(one[i].prompt_tokens, two[i].prompt_tokens);
  }
  EXPECT_NE(one[0].at, other[0].at);
}

TEST(MakeLoad, ComesAtItsRate) {
  const RequestTrace load = *make_load(words("20"), 1);
  EXPECT_NEAR(static_cast<double>(load.size()), 2000, 150);
  EXPECT_TRUE(std::ranges::is_sorted(load, {}, &TraceRequest::at));
  EXPECT_LT(load.back().at, seconds(100));
}

TEST(MakeLoad, IsEvenIfAsked) {
  LoadWords even = words("4");
  even.arrivals = Arrivals::kEven;
  const RequestTrace load = *make_load(even, 1);
  ASSERT_EQ(load.size(), 399U);
  EXPECT_EQ(load[0].at, std::chrono::milliseconds(250));
  EXPECT_EQ(load[398].at - load[397].at, std::chrono::milliseconds(250));
}

// From 0 to 40 in 100 s: a quarter of all come in the first half.
TEST(MakeLoad, RampsUp) {
  LoadWords ramp = words("0..40@100s");
  ramp.arrivals = Arrivals::kEven;
  const RequestTrace load = *make_load(ramp, 1);
  const auto early = std::ranges::count_if(
      load, [](const TraceRequest& request) { return request.at < seconds(50); });
  EXPECT_NEAR(static_cast<double>(load.size()), 2000, 2);
  EXPECT_NEAR(static_cast<double>(early), 500, 2);
}

TEST(MakeLoad, RampsDown) {
  LoadWords ramp = words("40..0@100s");
  ramp.arrivals = Arrivals::kEven;
  const RequestTrace load = *make_load(ramp, 1);
  const auto early = std::ranges::count_if(
      load, [](const TraceRequest& request) { return request.at < seconds(50); });
  EXPECT_NEAR(static_cast<double>(early), 1500, 2);
}

TEST(MakeLoad, RepeatsItsPhases) {
  const RequestTrace load = *make_load(words("0@9s,100@1s"), 1);
  for (const TraceRequest& request : load) {
    EXPECT_GE(request.at.count() % 10'000'000'000, 9'000'000'000 - 1000);
  }
  EXPECT_NEAR(static_cast<double>(load.size()), 1000, 120);
}

TEST(MakeLoad, DrawsLengthsOfItsDistributions) {
  const RequestTrace load = *make_load(words("100", "3000~0.5", "100..500"), 3);
  double prompts = 0;
  double outputs = 0;
  for (const TraceRequest& request : load) {
    prompts += request.prompt_tokens;
    outputs += request.output_tokens;
    EXPECT_GE(request.output_tokens, 100U);
    EXPECT_LE(request.output_tokens, 500U);
  }
  const auto count = static_cast<double>(load.size());
  EXPECT_NEAR(prompts / count, 3000, 100);
  EXPECT_NEAR(outputs / count, 300, 10);
}

TEST(MakeLoad, EndsWithItsRequests) {
  LoadWords few = words("20");
  few.requests = 5;
  EXPECT_EQ(make_load(few, 1)->size(), 5U);
}

TEST(MakeLoad, RefusesLoadsBeyondItsBounds) {
  LoadWords many = words("90000");
  EXPECT_NE(make_load(many, 1).error().message.find("more than 1000000 requests"),
            std::string::npos);
  EXPECT_NE(make_load(words("100", "1000000"), 1).error().message.find("tokens: give a shorter"),
            std::string::npos);
  LoadWords none = words("0.001");
  none.duration = std::chrono::milliseconds(1);
  EXPECT_NE(make_load(none, 1).error().message.find("no request comes"), std::string::npos);
}

}  // namespace
}  // namespace pdjob::simulation
