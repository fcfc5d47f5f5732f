#include "launcher/pool/job_shares.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "launcher/pool/pool_specs.h"
#include "launcher/pool/room.h"

namespace pdjob::launcher {
namespace {

using Words = std::vector<std::string>;

constexpr uint64_t kGiB = uint64_t{1} << 30;

Node node(const std::string& name, uint32_t cores) {
  return {.name = "main/" + name,
          .host = "10.0.0.1",
          .cores = cores,
          .memory_bytes = 64 * kGiB,
          .cluster = "main",
          .labels = {{"zone", name}}};
}

Result<std::vector<Share>> shares(const std::string& text, const std::vector<Node>& free) {
  auto config = read_pool_job("/jobs/job.yaml", text, {});
  return config ? shares_of(*config, free) : Result<std::vector<Share>>(config.error());
}

TEST(JobShares, AJobGetsOneShareOfEachNodeOfItsPlan) {
  const auto found = shares(
      "name: one\nengine: {kind: fake, threads: 2}\nprefill: {workers: 2, labels: {zone: a}}\n"
      "decode: {workers: 1, labels: {zone: b}}\n",
      {node("a", 8), node("b", 8), node("c", 8)});
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ(found->size(), 2U);
  EXPECT_EQ(found->at(0).node, "main/a");
  EXPECT_EQ(found->at(0).cores, 4U);
  EXPECT_EQ(found->at(0).labels.at("zone"), "a");
  EXPECT_EQ(found->at(1).node, "main/b");
  EXPECT_EQ(found->at(1).cores, 2U);
}

TEST(JobShares, TheClustersOfTheFileAreReplaced) {
  const auto found = shares(
      "name: one\nengine: {kind: fake, threads: 1}\n"
      "clusters: {lab: {kind: agents, listen: '10.0.0.9:7700', key_file: lab.key}}\n",
      {node("a", 8)});
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->size(), 1U);
}

TEST(JobShares, WithoutRoomItSaysWhatIsShort) {
  const auto found = shares("name: one\nengine: {kind: fake, threads: 4}\n", {node("a", 4)});
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(found.error().message.find("it lacks 4 cores"), std::string::npos)
      << found.error().message;
}

TEST(JobShares, AModelThatIsNotHereGetsAsMuchMemoryAsCores) {
  const auto found =
      shares("name: one\nmodel: /none/there.gguf\nengine: {threads: 2}\n", {node("a", 16)});
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->front().cores, 4U);
  EXPECT_EQ(found->front().memory_bytes, 16 * kGiB);
}

TEST(JobShares, ABatchMayBeInterruptedAndHasNoDoor) {
  const auto config = read_pool_job(
      "/jobs/job.yaml",
      "name: night\nmode: batch\nengine: {kind: fake}\nrouter: {listen: '0.0.0.0:8000'}\n"
      "batch: {in: [rows.jsonl], out: results}\n",
      {});
  ASSERT_TRUE(config) << config.error().message;
  const auto order = order_of(*config);
  ASSERT_TRUE(order);
  EXPECT_TRUE(order->batch);
  EXPECT_EQ(order->priority, 0);
  EXPECT_EQ(order->door, 0);
  EXPECT_EQ(config->batch.inputs, (std::vector<std::string>{"/jobs/rows.jsonl"}));
}

TEST(JobShares, BatchesOfOneNameAndEqualWorkersCanFollowEachOtherWarm) {
  const auto order = [](const std::string& text) {
    const auto config =
        read_pool_job("/jobs/job.yaml", "name: night\nengine: {kind: fake}\n" + text, {});
    EXPECT_TRUE(config) << config.error().message;
    return *order_of(*config);
  };
  const std::string keep = "launcher: {keep: 10min}\n";
  const auto batch = [](const std::string& of) {
    return "mode: batch\nbatch: {in: [" + of + ".jsonl], out: " + of + "}\n";
  };
  const PoolJobOrder one = order(batch("one") + keep);
  EXPECT_EQ(one.keep, std::chrono::minutes(10));
  EXPECT_EQ(order(batch("two") + keep).workers, one.workers);
  EXPECT_NE(order(batch("two") + keep + "decode: {workers: 2}\n").workers, one.workers);
  EXPECT_EQ(order(keep).keep, Duration{}) << "a job that serves ends only if it is cancelled";
}

TEST(Room, ATakenShareLeavesTheRestAndNeverLessThanNothing) {
  std::vector<Node> nodes = {node("a", 4)};
  nodes[0].gpus = {"0", "1", "2"};
  take_from(nodes, {.node = "main/a", .cores = 3, .memory_bytes = kGiB, .gpus = {"1"}});
  EXPECT_EQ(nodes[0].cores, 1U);
  EXPECT_EQ(nodes[0].memory_bytes, 63 * kGiB);
  EXPECT_EQ(nodes[0].gpus, (std::vector<std::string>{"0", "2"}));
  take_from(nodes, {.node = "main/a", .cores = 3});
  take_from(nodes, {.node = "main/b", .cores = 3});
  EXPECT_EQ(nodes[0].cores, 0U);
}

TEST(JobShares, AJobHoldsOnlyItsPartOfAGpu) {
  Node half = node("a", 8);
  half.gpus = {"0", "1"};
  half.gpu_parts = {{"0", 50}};
  const auto found =
      shares("name: one\nengine: {kind: fake, gpu: 0.25}\ndecode: {workers: 3}\n", {half});
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ(found->size(), 1U);
  EXPECT_EQ(percent_of_all(found->front().gpus, found->front().gpu_parts), 100U);
  EXPECT_EQ(found->front().gpu_parts, (GpuParts{{"0", 50}, {"1", 50}}));
  std::vector<Node> rest = {half};
  take_from(rest, found->front());
  EXPECT_EQ(rest[0].gpus, Words{"1"});
  EXPECT_EQ(rest[0].gpu_parts, (GpuParts{{"1", 50}}));
  EXPECT_FALSE(shares("name: two\nengine: {kind: fake, gpu: true}\n", rest))
      << "no whole one is left";
  const auto last = shares("name: two\nengine: {kind: fake, gpu: 0.25}\n", rest);
  ASSERT_TRUE(last) << last.error().message;
  take_from(rest, last->front());
  EXPECT_EQ(rest[0].gpus, Words{});
  EXPECT_EQ(rest[0].gpu_parts, GpuParts{});
}

TEST(Room, APartMovesToTheFullestGpuThatHasRoom) {
  Node there = node("a", 8);
  there.gpus = {"0", "1", "2"};
  there.gpu_parts = {{"1", 60}, {"2", 40}};
  const Share share{.node = "lost",
                    .cores = 1,
                    .gpus = {"7", "8"},
                    .gpu_parts = {{"7", 50}},
                    .labels = {{"zone", "a"}}};
  const auto place = place_of({there}, share);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->gpus, (Words{"0", "1"}));
  EXPECT_EQ(place->gpu_parts, (GpuParts{{"1", 50}}));
  there.gpus = {"1", "2"};
  EXPECT_FALSE(place_of({there}, share)) << "a whole one is missing";
}

TEST(Room, AShareMovesToTheTightestNodeWithItsLabels) {
  const std::vector<Node> nodes = {node("a", 8), node("b", 2), node("a", 4)};
  const auto place = place_of(nodes, {.node = "lost", .cores = 3, .labels = {{"zone", "a"}}});
  ASSERT_TRUE(place);
  EXPECT_EQ(place->node, "main/a");
  EXPECT_FALSE(place_of(nodes, {.node = "lost", .cores = 3, .labels = {{"zone", "b"}}}));
}

TEST(PoolSpecs, WhatTheKeeperTellsArrives) {
  const ShareSpec share{.job = "one",
                        .name = "a.1",
                        .join = "10.0.0.1:7800",
                        .key = "secret",
                        .cores = 3,
                        .memory_bytes = kGiB,
                        .gpu_parts = {{"0", 25}},
                        .labels = {{"zone", "a"}}};
  const auto read = decode_share_spec(encode(share));
  ASSERT_TRUE(read);
  EXPECT_EQ(encode(*read), encode(share));
  EXPECT_EQ(read->labels, share.labels);
  EXPECT_EQ(read->gpu_parts, share.gpu_parts);
  const LaunchSpec launch{.job = "one",
                          .text = "name: one\n",
                          .source = "/jobs/one.yaml",
                          .listen = "10.0.0.1:7800",
                          .key = "secret",
                          .nodes = 2};
  const auto launched = decode_launch_spec(encode(launch));
  ASSERT_TRUE(launched);
  EXPECT_EQ(encode(*launched), encode(launch));
  EXPECT_FALSE(decode_share_spec(encode(launch)));
  EXPECT_FALSE(decode_launch_spec(encode(launch).substr(1)));
}

}  // namespace
}  // namespace pdjob::launcher
