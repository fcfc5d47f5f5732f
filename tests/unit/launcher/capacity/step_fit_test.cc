#include "launcher/capacity/step_fit.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/random.h"

namespace pdjob::launcher {
namespace {

using Time = EngineModel::Time;
using simulation::StepTime;

const StepTime kKnown{.fixed = Time(3'000'000),
                      .per_prompt_token = Time(2'000'000),
                      .per_sequence = Time(4'000'000),
                      .per_prompt_read = Time(6'000),
                      .per_context_read = Time(7'000)};
constexpr double kPerRequest = 0.002;

double seconds_of(const StepTime& time, const StepWork& work) {
  return 1e-9 *
             (work.steps * time.fixed.count() + work.prompt_tokens * time.per_prompt_token.count() +
              work.sequences * time.per_sequence.count() +
              work.prompt_reads * time.per_prompt_read.count() +
              work.context_reads * time.per_context_read.count()) +
         kPerRequest * work.requests;
}

// `noise`: how far off each repetition may be.
std::vector<StepProbe> probes_of(const StepTime& time, double noise, Random& random) {
  std::vector<StepProbe> probes;
  const auto add = [&](ProbeKind kind, const std::string& name, const StepWork& work) {
    StepProbe& probe = probes.emplace_back(StepProbe{.kind = kind, .name = name, .work = work});
    for (int repeat = 0; repeat < 5; ++repeat) {
      probe.seconds.push_back(seconds_of(time, work) * (1 + noise * (2 * random.unit() - 1)));
    }
  };
  for (const uint32_t tokens : {32U, 64U, 128U, 256U, 512U, 1024U, 2048U}) {
    StepWork work{.steps = 1, .requests = 1};
    work.add(0, tokens);
    add(ProbeKind::kPrefill, "prompt " + std::to_string(tokens), work);
  }
  for (const uint32_t sequences : {1U, 2U, 4U, 8U, 16U}) {
    for (const uint32_t rows : {64U, 512U, 2048U}) {
      StepWork work{.steps = 1};
      for (uint32_t i = 0; i < sequences; ++i) {
        work.add(rows, 1);
      }
      add(ProbeKind::kDecode, "decode " + std::to_string(sequences) + " at " + std::to_string(rows),
          work);
    }
  }
  return probes;
}

void expect_near(Time found, Time known, double share) {
  EXPECT_NEAR(found.count(), known.count(), share * known.count());
}

TEST(StepFit, FindsAKnownModel) {
  Random random(1);
  const auto fit = fit_steps(probes_of(kKnown, 0, random));
  ASSERT_TRUE(fit);
  expect_near(fit->step.fixed, kKnown.fixed, 1e-6);
  expect_near(fit->step.per_prompt_token, kKnown.per_prompt_token, 1e-6);
  expect_near(fit->step.per_sequence, kKnown.per_sequence, 1e-6);
  expect_near(fit->step.per_prompt_read, kKnown.per_prompt_read, 1e-6);
  expect_near(fit->step.per_context_read, kKnown.per_context_read, 1e-6);
  expect_near(fit->per_request, Time(kPerRequest * 1e9), 1e-6);
  EXPECT_TRUE(fit->unmeasured.empty());
  EXPECT_LT(fit->decode.largest, 1e-6);
  EXPECT_EQ(fit->decode.probes, 15U);
}

TEST(StepFit, FindsAKnownModelInNoise) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    const auto fit = fit_steps(probes_of(kKnown, 0.1, random));
    ASSERT_TRUE(fit);
    expect_near(fit->step.per_prompt_token, kKnown.per_prompt_token, 0.1);
    expect_near(fit->step.per_sequence, kKnown.per_sequence, 0.15);
    expect_near(fit->step.per_prompt_read, kKnown.per_prompt_read, 0.15);
    expect_near(fit->step.per_context_read, kKnown.per_context_read, 0.1);
    EXPECT_LT(fit->prefill.largest, 0.1);
    EXPECT_LT(fit->decode.largest, 0.12);
  }
}

TEST(StepFit, TakesTheMedianOfRepetitions) {
  Random random(1);
  std::vector<StepProbe> probes = probes_of(kKnown, 0, random);
  for (StepProbe& probe : probes) {
    probe.seconds[0] *= 10;  // Something else ran on the machine.
    probe.seconds[3] *= 4;
  }
  const auto fit = fit_steps(probes);
  ASSERT_TRUE(fit);
  expect_near(fit->step.per_prompt_token, kKnown.per_prompt_token, 1e-6);
  expect_near(fit->step.per_context_read, kKnown.per_context_read, 1e-6);
}

TEST(StepFit, SurvivesAProbeThatWasSlowEachTime) {
  Random random(1);
  std::vector<StepProbe> probes = probes_of(kKnown, 0, random);
  for (double& seconds : probes[4].seconds) {
    seconds *= 5;
  }
  const auto fit = fit_steps(probes);
  ASSERT_TRUE(fit);
  EXPECT_GT(fit->prefill.largest, 0.5);
  EXPECT_LT(fit->prefill.median, 0.15);
  EXPECT_LT(fit->decode.median, 0.15);
}

TEST(StepFit, HasNoNegativeTimes) {
  StepTime without_fixed = kKnown;
  without_fixed.fixed = Time(0);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    const auto fit = fit_steps(probes_of(without_fixed, 0.2, random));
    ASSERT_TRUE(fit);
    EXPECT_GE(fit->step.fixed.count(), 0);
    EXPECT_GE(fit->per_request.count(), 0);
    EXPECT_LT(fit->decode.median, 0.2);
  }
}

TEST(StepFit, FindsFractionsOfNanoseconds) {
  const StepTime large_gpu{.fixed = Time(5e6),
                           .per_prompt_token = Time(32'000),
                           .per_sequence = Time(20'000),
                           .per_prompt_read = Time(0.7),
                           .per_context_read = Time(39)};
  Random random(1);
  const auto fit = fit_steps(probes_of(large_gpu, 0, random));
  ASSERT_TRUE(fit);
  expect_near(fit->step.per_prompt_read, large_gpu.per_prompt_read, 1e-3);
}

TEST(StepFit, SaysWhichTimesNoMeasurementTells) {
  Random random(1);
  std::vector<StepProbe> probes = probes_of(kKnown, 0, random);
  // Prompts of one length, and one batch at one context.
  std::erase_if(probes, [](const StepProbe& probe) {
    return probe.name != "prompt 512" && probe.name != "decode 4 at 512";
  });
  const auto fit = fit_steps(probes);
  ASSERT_TRUE(fit);
  EXPECT_EQ(fit->unmeasured.size(), 4U);
  EXPECT_LT(fit->prefill.largest, 1e-6);
  EXPECT_LT(fit->decode.largest, 1e-6);
}

TEST(StepFit, IsNotFittedToMixedSteps) {
  Random random(1);
  std::vector<StepProbe> probes = probes_of(kKnown, 0, random);
  StepWork work{.steps = 1};
  work.add(512, 1);
  work.add(0, 64);
  probes.push_back({.kind = ProbeKind::kMixed,
                    .name = "mixed",
                    .work = work,
                    .seconds = {2 * seconds_of(kKnown, work)}});
  const auto fit = fit_steps(probes);
  ASSERT_TRUE(fit);
  expect_near(fit->step.fixed, kKnown.fixed, 1e-6);
  EXPECT_NEAR(fit->mixed.median, 0.5, 1e-6);
}

TEST(StepFit, RefusesTimesThatAreNone) {
  Random random(1);
  std::vector<StepProbe> probes = probes_of(kKnown, 0, random);
  probes[2].seconds = {0.0};
  const auto zero = fit_steps(probes);
  ASSERT_FALSE(zero);
  EXPECT_EQ(zero.error().message, "prompt 128: its time is not above zero");
  probes[2].seconds = {};
  EXPECT_FALSE(fit_steps(probes));
  EXPECT_FALSE(fit_steps({}));
}

TEST(TransferFit, FindsWhatATransferAndATokenTake) {
  std::vector<TransferProbe> probes;
  for (const uint32_t tokens : {64U, 256U, 1024U, 4096U}) {
    probes.push_back({tokens, {0.001 + 5e-6 * tokens, 9.0, 0.001 + 5e-6 * tokens}});
  }
  const auto fit = fit_transfers(probes);
  ASSERT_TRUE(fit);
  expect_near(fit->per_transfer, Time(1e6), 1e-6);
  expect_near(fit->per_token, Time(5000), 1e-6);
  EXPECT_LT(fit->error.largest, 1e-6);
  EXPECT_FALSE(fit_transfers({}));
}

}  // namespace
}  // namespace pdjob::launcher
