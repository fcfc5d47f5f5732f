#include "launcher/compare/simulated_job.h"

#include <gtest/gtest.h>

#include "launcher/compare/quickstart_model.h"

namespace pdjob::launcher {
namespace {

JobConfig job(const std::string& text) {
  Places places;
  places.models_here = false;
  auto config = parse_job_config("job.yaml", "name: j\nmodel: m\n" + text, places);
  EXPECT_TRUE(config) << config.error().message;
  return *config;
}

SimulatedJob simulated(const std::string& text) {
  auto made = simulated_job(job(text), quickstart_model(), std::chrono::seconds(30));
  EXPECT_TRUE(made) << made.error().message;
  return *made;
}

std::string refused(const std::string& text) {
  const auto made = simulated_job(job(text), quickstart_model(), std::chrono::seconds(30));
  return made ? "" : made.error().message;
}

TEST(SimulatedJob, HasWhatAProcessOfTheJobWouldGet) {
  const simulation::TraceJob made =
      simulated(
          "prefill: {workers: 3, chunk_tokens: 128, engine: {sequences: 4}}\n"
          "decode: {workers: 2, requests_queued: 9}\n"
          "engine: {sequences: 32, tokens_per_sequence: 4096, batch_tokens: 1024}\n"
          "router: {bypass_tokens: 77, prefill_policy: prefix_aware}\n")
          .job;
  EXPECT_EQ(made.prefill, 3U);
  EXPECT_EQ(made.decode, 2U);
  EXPECT_EQ(made.both, 0U);
  EXPECT_EQ(made.engine.sequences, 32U);
  EXPECT_EQ(made.engine.rows_per_sequence, 4096U);
  EXPECT_EQ(made.engine.batch_tokens, 1024U);
  EXPECT_EQ(made.prefill_engine->sequences, 4U);
  EXPECT_EQ(made.prefill_config.chunk_tokens, 128U);
  EXPECT_EQ(made.decode_config.requests_queued, 9U);
  EXPECT_EQ(made.decode_config.local_chunk_tokens, decode::kShortChunk);  // Its CPU computes.
  EXPECT_EQ(made.router.bypass_tokens, 77U);
  EXPECT_EQ(made.router.prefill_policy, router::PolicyKind::kPrefixAware);
}

TEST(SimulatedJob, MayBeOfWorkersThatDoBoth) {
  const simulation::TraceJob made = simulated("prefill: {workers: 0}\ndecode: {workers: 3}\n").job;
  EXPECT_EQ(made.both, 3U);
  EXPECT_EQ(made.decode + made.prefill, 0U);
  EXPECT_FALSE(made.prefill_engine);
}

TEST(SimulatedJob, NotesWhatItLeavesOut) {
  const SimulatedJob made =
      simulated("prefill: {workers: 1, scaling: {max: 4}}\nrouter: {replicas: 2}\n");
  ASSERT_EQ(made.notes.size(), 2U);
  EXPECT_EQ(made.notes[0], "One router decides, not 2.");
  EXPECT_EQ(made.notes[1],
            "A new worker takes 30s to start (--start-time), and there is room for each one.");
}

TEST(SimulatedJob, IsLaunchedOnlyIfItScales) {
  EXPECT_EQ(simulated("prefill: {workers: 1}\n").job.launched, nullptr);
  const auto launched =
      simulated("prefill: {workers: 1, scaling: {max: 4}, labels: {disk: nvme}}\n").job.launched;
  ASSERT_NE(launched, nullptr);
  EXPECT_EQ(launched->start_time, std::chrono::seconds(30));
  EXPECT_EQ(launched->plan.rows.size(), 3U);  // A router and two workers; all have a place.
  EXPECT_EQ(colocated(simulated("prefill: {workers: 1, scaling: {max: 4}}\n").job, 64).launched,
            nullptr);
}

TEST(SimulatedJob, IsRefusedWithTheReason) {
  EXPECT_NE(refused("engine: {kind: vllm}\n").find("engines of other makes cannot be simulated"),
            std::string::npos);
  EXPECT_NE(refused("prefill: {workers: 1, scaling: {max: 4}}\n"
                    "launcher: {start_timeout: 20s}\n")
                .find("launcher.start_timeout (20s)"),
            std::string::npos);
}

TEST(Colocated, HasAsManyWorkersAndTheRouterOfPrompts) {
  const simulation::TraceJob made = simulated(
                                        "prefill: {workers: 3}\ndecode: {workers: 2}\n"
                                        "router: {prefill_policy: prefix_aware}\n")
                                        .job;
  const simulation::TraceJob both = colocated(made, 64);
  EXPECT_EQ(both.both, 5U);
  EXPECT_EQ(both.prefill + both.decode, 0U);
  EXPECT_EQ(both.decode_config.local_chunk_tokens, 64U);
  EXPECT_EQ(both.router.decode_policy, router::PolicyKind::kPrefixAware);
}

TEST(Colocated, TriesChunksThatFitInAStep) {
  EXPECT_EQ(chunks_to_try(simulated("").job), (std::vector<uint32_t>{32, 96, 128, 512}));
  EXPECT_EQ(chunks_to_try(simulated("engine: {batch_tokens: 64}\n").job).back(), 32U);
}

TEST(QuickstartModel, SaysWhereItsErrorsAre) {
  const std::string text = label(quickstart_model());
  EXPECT_NE(text.find("measured"), std::string::npos) << text;
  EXPECT_NE(text.find("prefill 2.4 %"), std::string::npos) << text;
}

}  // namespace
}  // namespace pdjob::launcher
