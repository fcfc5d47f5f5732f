#include "worker/foreign/weight_calls.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace pdjob::worker {
namespace {

// All calls, if each succeeds.
std::vector<std::string> all_of(WeightCalls calls) {
  std::vector<std::string> all;
  while (const WeightCall* const call = calls.due()) {
    all.push_back(call->path + (call->body.empty() ? "" : " " + call->body));
    calls.answered(200, "");
  }
  return all;
}

WeightCalls vllm(const std::string& folder) {
  return {engine::shipped_engine_recipe("vllm").weights, folder, "v2"};
}

TEST(WeightCalls, AreVllmsOwn) {
  EXPECT_EQ(
      all_of(vllm("/w/step \"7\"")),
      (std::vector<std::string>{
          "/pause?mode=abort", "/reset_prefix_cache?reset_external=true",
          R"(/collective_rpc {"method":"reload_weights","kwargs":{"weights_path":"/w/step \"7\""}})",
          "/resume"}));
}

TEST(WeightCalls, AreSglangsOwn) {
  EXPECT_EQ(
      all_of({engine::shipped_engine_recipe("sglang").weights, "/w/7", "v2"}),
      (std::vector<std::string>{
          R"(/pause_generation {"mode":"abort"})", "/flush_cache",
          R"(/update_weights_from_disk {"model_path":"/w/7","weight_version":"v2","flush_cache":true})",
          "/continue_generation {}"}));
}

TEST(WeightCalls, LoadNothingWhereTheWeightsStay) {
  EXPECT_EQ(all_of(vllm("")),
            (std::vector<std::string>{"/pause?mode=abort",
                                      "/reset_prefix_cache?reset_external=true", "/resume"}));
}

TEST(WeightCalls, RepeatOnlyTheFlush) {
  WeightCalls calls = vllm("/w");
  calls.answered(200, R"({"status":"paused"})");
  for (int i = 0; i < 3; ++i) {
    ASSERT_NE(calls.due(), nullptr);
    EXPECT_EQ(calls.due()->path, "/reset_prefix_cache?reset_external=true");
    calls.answered(i == 1 ? 400 : 200, R"({"success":false})");
  }
  calls.answered(200, R"({"success":true})");
  ASSERT_NE(calls.due(), nullptr);
  EXPECT_EQ(calls.due()->path, "/collective_rpc");
  calls.answered(500, "no such tensor");
  EXPECT_EQ(calls.due(), nullptr) << "an engine with half of its weights is not asked to go on";
  EXPECT_EQ(calls.error(), "POST /collective_rpc: status 500: no such tensor");
}

TEST(WeightCalls, FailWhereAnAnswerSaysSo) {
  WeightCalls calls(engine::shipped_engine_recipe("sglang").weights, "/w", "v");
  calls.answered(200, "{}");
  calls.answered(200, "Cache flushed.");
  calls.answered(200, R"({"success": false, "message": "shape"})");
  EXPECT_EQ(
      calls.error(),
      R"(POST /update_weights_from_disk: status 200: {"success": false, "message": "shape"})");
}

TEST(WeightCalls, FailWhereTheEngineIsGoneOrLacksTheCall) {
  for (const int status : {0, 404}) {
    WeightCalls calls = vllm("/w");
    calls.answered(200, "");
    calls.answered(status, "");
    EXPECT_EQ(calls.due(), nullptr) << status;
    EXPECT_FALSE(calls.error().empty());
  }
}

}  // namespace
}  // namespace pdjob::worker
