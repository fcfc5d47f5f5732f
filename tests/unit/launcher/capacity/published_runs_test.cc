#include "launcher/capacity/published_runs.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

// A run of an engine whose times are known: 5 ms a step, 0.1 ms a token, 0.2 ms a sequence, 1 us a
// row that a sequence reads.
double itl_of(double sequences, double input, double output) {
  return 0.005 + sequences * (0.0002 + 1e-6 * (input + output / 2));
}

std::string vllm_run(double concurrency, double input, double output) {
  const double itl = itl_of(concurrency, input, output);
  const double ttft = 0.005 + 0.0001 * input;
  const double rate = concurrency / (itl * (output - 1));
  const auto ms = [](double seconds) { return std::to_string(1e3 * seconds); };
  return R"({"date": "20261128-133000", "endpoint_type": "vllm", "model_id": "m/8b", )"
         R"("request_rate": "inf", "max_concurrency": )" +
         std::to_string(static_cast<int>(concurrency)) +
         R"(, "completed": 10, "total_input_tokens": )" + std::to_string(10 * input) +
         R"(, "total_output_tokens": )" + std::to_string(10 * output) +
         R"(, "request_throughput": )" + std::to_string(rate) + R"(, "median_ttft_ms": )" +
         ms(ttft) + R"(, "mean_tpot_ms": )" + ms(itl) + R"(, "median_itl_ms": )" + ms(itl) + "}";
}

std::vector<PublishedRun> vllm_runs(const std::vector<double>& concurrencies) {
  std::vector<PublishedRun> runs;
  for (const double concurrency : concurrencies) {
    for (const double input : {500.0, 2000.0}) {
      const auto run = read_run(RunKind::kVllmBench, "c" + std::to_string(runs.size()) + ".json",
                                vllm_run(concurrency, input, 100));
      EXPECT_TRUE(run) << run.error().message;
      runs.push_back(*run);
    }
  }
  return runs;
}

TEST(PublishedRuns, OfVllmBenchGiveTheTimesOfTheirEngine) {
  const auto model = model_of_runs(RunKind::kVllmBench, vllm_runs({1, 4, 16}));
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->source, ModelSource::kRead);
  EXPECT_EQ(model->name, "m/8b");
  EXPECT_EQ(model->date, "2026-11-28");
  EXPECT_EQ(model->read_from, "c0.json, c1.json, c2.json, c3.json, c4.json, c5.json (vllm-bench)");
  EXPECT_NEAR(model->step.fixed.count(), 5e6, 1e5);
  EXPECT_NEAR(model->step.per_prompt_token.count(), 1e5, 2e3);
  EXPECT_NEAR(model->step.per_sequence.count(), 2e5, 1e4);
  EXPECT_NEAR(model->step.per_context_read.count(), 1e3, 20);
  EXPECT_LT(model->decode.largest, 0.01);
  EXPECT_TRUE(std::ranges::count(model->unmeasured, "kv.per_token_us") == 1);
}

TEST(PublishedRuns, SurviveTheirModelFile) {
  const auto model = model_of_runs(RunKind::kVllmBench, vllm_runs({1, 4}));
  ASSERT_TRUE(model);
  const auto read = parse_engine_model("m.json", engine_model_json(*model));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, *model);
}

TEST(PublishedRuns, OfOneLengthSayWhatTheyCannotTell) {
  std::vector<PublishedRun> runs;
  for (const double concurrency : {1.0, 8.0}) {
    runs.push_back(*read_run(RunKind::kVllmBench, "a", vllm_run(concurrency, 500, 100)));
  }
  const auto model = model_of_runs(RunKind::kVllmBench, runs);
  ASSERT_TRUE(model);
  EXPECT_EQ(std::ranges::count(model->unmeasured, "step.per_prompt_read_us"), 1);
  EXPECT_LT(model->prefill.largest, 0.01);
}

TEST(PublishedRuns, WithoutALoneRequestAreRefused) {
  const auto model = model_of_runs(RunKind::kVllmBench, vllm_runs({4, 16}));
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().message,
            "no run has one request at a time (concurrency 1): in the others, the time to the "
            "first token is mostly waiting");
}

TEST(PublishedRuns, OfTwoModelsAreRefused) {
  std::vector<PublishedRun> runs = vllm_runs({1});
  runs.back().model = "other";
  const auto model = model_of_runs(RunKind::kVllmBench, runs);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().message, "c1.json: it is of other, but c0.json is of m/8b");
}

TEST(PublishedRuns, TakeEachPromptOfARunWithDetails) {
  std::string text = vllm_run(1, 500, 100);
  text.insert(text.size() - 1,
              R"(, "input_lens": [100, 400,100, 7], "ttfts": [0.02, 0.05 , 0.04, 0.0])");
  const auto run = read_run(RunKind::kVllmBench, "a", text);
  ASSERT_TRUE(run);
  const std::vector<std::pair<double, double>> expected{{100, 0.02}, {400, 0.05}, {100, 0.04}};
  EXPECT_EQ(run->prompts, expected);
  const auto model = model_of_runs(RunKind::kVllmBench, {*run});
  ASSERT_TRUE(model);
  EXPECT_EQ(model->prefill.probes, 2U);
}

// The shape of aiperf 0.1's and 0.13's profile_export_aiperf.json, with figures of our own.
std::string aiperf_metrics(const std::string& ttft) {
  return R"("request_throughput": {"unit": "requests/sec", "avg": 0.5},)"
         "\"" +
         ttft +
         R"(": {"unit": "ms", "avg": 60.0, "p50": 55.0},)"
         R"("inter_token_latency": {"unit": "ms", "avg": 12.0, "p50": 10.0},)"
         R"("input_sequence_length": {"unit": "tokens", "avg": 550.0, "p50": 550.0},)"
         R"("output_sequence_length": {"unit": "tokens", "avg": 101.0})";
}
const std::string kAiperfConfig =
    R"("input_config": {"endpoint": {"model_names": ["m/20b"]}, "loadgen": {"concurrency": 1}},)"
    R"("start_time": "2026-10-03T13:13:39.146443")";

TEST(PublishedRuns, OfAiperfHaveTheirMetricsInTwoPlaces) {
  const std::vector<std::string> texts{
      "{\"records\": {" + aiperf_metrics("ttft") + "}, " + kAiperfConfig + "}",
      "{" + aiperf_metrics("time_to_first_token") + ", " + kAiperfConfig + "}"};
  for (const std::string& text : texts) {
    const auto run = read_run(RunKind::kAiperf, "a.json", text);
    ASSERT_TRUE(run) << run.error().message;
    EXPECT_EQ(run->model, "m/20b");
    EXPECT_EQ(run->concurrency, 1);
    EXPECT_DOUBLE_EQ(run->ttft, 0.055);
    EXPECT_DOUBLE_EQ(run->itl, 0.010);
    EXPECT_DOUBLE_EQ(run->decoding, 0.5 * 0.012 * 100);
    const auto model = model_of_runs(RunKind::kAiperf, {*run});
    ASSERT_TRUE(model);
    EXPECT_EQ(model->date, "2026-10-03");
  }
}

TEST(PublishedRuns, ThatAreSomethingElseAreRefusedByName) {
  const auto error = [](RunKind kind, const std::string& text) {
    const auto run = read_run(kind, "f.json", text);
    return run ? std::string("none") : run.error().message;
  };
  EXPECT_EQ(error(RunKind::kVllmBench, "no JSON"), "f.json: it is not one JSON object");
  EXPECT_EQ(error(RunKind::kVllmBench, "{}"), "f.json: completed has no number");
  EXPECT_EQ(error(RunKind::kVllmBench, R"({"completed": 0})"),
            "f.json: completed is not above zero");
  EXPECT_EQ(error(RunKind::kVllmBench, R"({"completed": "x"})"), "f.json: completed has no number");
  EXPECT_EQ(error(RunKind::kVllmBench, R"({"completed": 1e999})"),
            "f.json: completed has no number");
  EXPECT_EQ(error(RunKind::kAiperf, "{}"), "f.json: input_sequence_length is missing");
  EXPECT_EQ(error(RunKind::kAiperf, R"({"records": []})"), "f.json: it is not one JSON object");
  EXPECT_EQ(error(RunKind::kAiperf, std::string(100'000, '[')),
            "f.json: it is not one JSON object");
}

}  // namespace
}  // namespace pdjob::launcher
