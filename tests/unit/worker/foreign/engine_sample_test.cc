#include "worker/foreign/engine_sample.h"

#include <gtest/gtest.h>

namespace pdjob::worker {
namespace {

TEST(EngineSample, ReadsWhatVllmSays) {
  const std::string text = R"(# HELP vllm:num_requests_running Number of requests.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a b"} 2.0
vllm:num_requests_running{engine="1",model_name="a b"} 1.0
vllm:num_requests_waiting{engine="0"} 4.0
vllm:kv_cache_usage_perc{engine="0"} 0.5
vllm:kv_cache_usage_perc{engine="1"} 0.25
vllm:generation_tokens_total{engine="0"} 100.0
vllm:prompt_tokens_total{engine="0"} 1e3 1395066363000
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1"} 5.0
vllm:time_to_first_token_seconds_count{engine="0"} 8.0
vllm:time_to_first_token_seconds_count{engine="1"} 2.0
vllm:time_to_first_token_seconds_sum{engine="0"} 1.25
vllm:inter_token_latency_seconds_count{engine="0"} 4.0
vllm:inter_token_latency_seconds_sum{engine="0"} 0.5
vllm:request_queue_time_seconds_count{engine="0"} 9.0
vllm:request_queue_time_seconds_sum{engine="0"} 0.125
vllm:request_prefill_time_seconds_count{engine="0"} 9.0
vllm:request_prefill_time_seconds_sum{engine="0"} 2.0
vllm:nixl_xfer_time_seconds_count{engine="0"} 6.0
vllm:nixl_xfer_time_seconds_sum{engine="0"} 0.75
vllm:prompt_tokens_by_source_total{engine="0",source="local_compute"} 7.0
vllm:prompt_tokens_by_source_total{engine="0",source="external_kv_transfer"} 2345.0
)";
  const EngineSample expected = {.running = 3,
                                 .queued = 4,
                                 .kv_used = 3750,
                                 .kv_max = 10000,
                                 .progress = 1100,
                                 .kv_received = 2345,
                                 .ttft = {1.25, 10},
                                 .itl = {0.5, 4},
                                 .queue_time = {0.125, 9},
                                 .prefill_time = {2, 9},
                                 .kv_time = {0.75, 6}};
  EXPECT_EQ(read_sample(engine::shipped_engine_recipe("vllm").metrics, text), expected);
}

TEST(EngineSample, ReadsWhatSglangSays) {
  const std::string text =
      "sglang:num_running_reqs{tp_rank=\"0\"} 1\nsglang:num_queue_reqs 2\n"
      "sglang:num_used_tokens 30\nsglang:max_total_num_tokens 40\n"
      "sglang:prompt_tokens_total 5\nsglang:generation_tokens_total 6";
  const EngineSample expected = {
      .running = 1, .queued = 2, .kv_used = 30, .kv_max = 40, .progress = 11, .kv_received = 5};
  EXPECT_EQ(read_sample(engine::shipped_engine_recipe("sglang").metrics, text), expected);
}

TEST(EngineSample, TakesOnlyTheStagesOfSglangThatItNames) {
  const EngineSample sample = read_sample(engine::shipped_engine_recipe("sglang").metrics, R"(
sglang:queue_time_seconds_sum{tp_rank="0"} 0.5
sglang:queue_time_seconds_count{tp_rank="0"} 4
sglang:per_stage_req_latency_seconds_sum{stage="prefill_bootstrap",tp_rank="0"} 7
sglang:per_stage_req_latency_seconds_count{stage="prefill_bootstrap",tp_rank="0"} 4
sglang:per_stage_req_latency_seconds_sum{stage="prefill_forward",tp_rank="0"} 2
sglang:per_stage_req_latency_seconds_count{stage="prefill_forward",tp_rank="0"} 4
sglang:per_stage_req_latency_seconds_bucket{le="0.1",stage="prefill_transfer_kv_cache",tp_rank="0"} 1
sglang:per_stage_req_latency_seconds_sum{stage="prefill_transfer_kv_cache",tp_rank="0"} 0.25
sglang:per_stage_req_latency_seconds_count{stage="prefill_transfer_kv_cache",tp_rank="0"} 3
)");
  const EngineSample expected = {
      .queue_time = {0.5, 4}, .prefill_time = {2, 4}, .kv_time = {0.25, 3}};
  EXPECT_EQ(sample, expected);
}

TEST(EngineSample, OfGarbageIsEmpty) {
  const engine::RecipeMetrics metrics = {.running = "r", .progress = {"p"}};
  for (const char* text : {"", "\n\n", "r", "r{", "r}1", "r{a=\"b\" 1", "r nan", "r -1", "r inf",
                           "r 1x", "{r} 1", "r{} ", "rr 1", "# r 1", "r\t1"}) {
    EXPECT_EQ(read_sample(metrics, text), EngineSample{}) << text;
  }
  EXPECT_EQ(read_sample(metrics, "r 1e300").running, 1ULL << 53);
}

TEST(EngineSample, OfAnEngineWithoutMetricsIsEmpty) {
  EXPECT_EQ(read_sample({}, "a 1\n 2\n"), EngineSample{});
}

}  // namespace
}  // namespace pdjob::worker
