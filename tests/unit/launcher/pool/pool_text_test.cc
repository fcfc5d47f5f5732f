#include "launcher/pool/pool_text.h"

#include <string>

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

PoolView view() {
  const Node node{.name = "main/a", .host = "10.0.0.2", .cores = 4, .gpus = {"0", "1"}};
  Node free = node;
  free.cores = 1;
  free.gpu_parts = {{"0", 70}};
  PoolView view{.pool = "main", .nodes = {node}, .free = {free}};
  view.quotas = {{.queue = "research", .cores = 8}};
  view.jobs = {
      {.id = 1,
       .order = {.name = "online", .priority = 100, .listen = "0.0.0.0:8000", .door = 8000},
       .state = PoolJobState::kRunning,
       .launcher = {.node = "main/a"},
       .shares =
           {{.number = 1,
             .share = {.node = "main/a", .cores = 3, .gpus = {"0"}, .gpu_parts = {{"0", 30}}}}}},
      {.id = 2,
       .order = {.name = "night", .queue = "research", .batch = true},
       .why = "the job does not fit"}};
  return view;
}

TEST(PoolText, SaysWhatIsFreeAndWhatEachJobHasOrWaitsFor) {
  EXPECT_EQ(
      jobs_text(view()),
      "pool main: 1 node, 1 of 4 cores and 1.7 of 2 GPUs are free\n"
      "queue research: at most 8 cores, any number of GPUs\n"
      "JOB     STATE    QUEUE     PRIORITY  CORES  GPUS  NODES  LAUNCHER  CLIENTS        WHY\n"
      "online  running  default   100       3      0.3   1      main/a    10.0.0.2:8000\n"
      "night   queued   research  0         0      0     0      -         -              the job "
      "does not fit\n");
}

TEST(PoolText, AnEmptyPoolSaysHowToFillIt) {
  EXPECT_EQ(jobs_text({.pool = "lab"}),
            "pool lab: 0 nodes, 0 of 0 cores and 0 of 0 GPUs are free\n"
            "no jobs: `pdjob submit FILE` brings one\n");
}

TEST(PoolText, JsonHasSharesByNode) {
  const std::string json = jobs_json(view());
  EXPECT_NE(json.find(R"("shares":[{"number":1,"node":"main/a","cores":3,"memory_bytes":0,)"
                      R"("gpus":["0"],"gpu_parts":{"0":0.3}}])"),
            std::string::npos)
      << json;
  EXPECT_NE(json.find(R"("cores_free":1)"), std::string::npos);
  EXPECT_NE(json.find(R"("gpus":2,"gpus_free":1.7})"), std::string::npos) << json;
}

TEST(PoolText, MetricsCountJobsByState) {
  const std::string metrics = pool_metrics(view());
  EXPECT_NE(metrics.find("pdjob_pool_jobs{state=\"running\"} 1\n"), std::string::npos) << metrics;
  EXPECT_NE(metrics.find("pdjob_pool_cores{which=\"free\"} 1\n"), std::string::npos);
}

}  // namespace
}  // namespace pdjob::launcher
