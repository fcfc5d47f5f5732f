#include "launcher/agents/agent_wire.h"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

Result<AgentFrame> decode(const std::string& bytes) {
  return decode_agent_frame(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

// One of each kind.
std::vector<AgentMessage> samples() {
  return {
      AgentHello{.name = "n1",
                 .instance = 3,
                 .session = 4,
                 .sign = 6,
                 .build = "0.1.0",
                 .cores = 8,
                 .cores_bound = "affinity",
                 .memory_bytes = 1U << 30U,
                 .memory_bound = "memory.max of cgroup /x",
                 .gpus = {"0", "GPU-8a1"},
                 .gpu_parts = {{"0", 40}},
                 .labels = {{"rack", "7"}, {"fast", ""}},
                 .topology = {.gpus = {{.numa = 1, .island = 0, .nics = {"mlx5_0", "mlx5_1"}}, {}},
                              .numa = {{0, "0-3"}, {1, "4-7"}},
                              .gpu_memory_bytes = uint64_t{80} << 30}},
      NodeReady{"10.0.0.1", {{{5}, 4711}}, {{"router-0", 8000}}},
      NodeLeaving{"no such interface"},
      LogAnswered{.ticket = 1, .found = true, .from = 2, .text = "line\n"},
      Welcome{.job = "j",
              .host = "eth0",
              .lease_ms = 5000,
              .orphan_timeout_ms = 60000,
              .owner = "run",
              .launcher = 2},
      Refused{"no"},
      Goodbye{},
      OpenDoor{.name = "router-0", .host = "10.0.0.1", .port = 8000, .shared = true},
      CloseDoor{"router-0"},
      StartProcess{.incarnation = 5, .spec = "{}"},
      SignalProcess{.incarnation = 5, .signal = Signal::kDumpStacks},
      ReadLog{.ticket = 1, .process = "prefill-0", .from = kLogEnd},
      Beat{},
      DoorOpened{"router-0", 8000},
      DoorFailed{"router-0", "in use"},
      Spawned{{5}, 1234},
      SpawnFailed{{5}, "no memory"},
      ProcessExited{{5}, "signal 9 (Killed)", true},
      LookAtProcess{5},
      ProcessSeen{{5},
                  {.asleep = true,
                   .stopped = true,
                   .runnable = true,
                   .turns = 9,
                   .at_ms = 4000,
                   .ran_us = 4,
                   .waited_us = 5,
                   .any_runnable = true,
                   .all_ran_us = 6,
                   .all_waited_us = 7}},
      SignAsked{6}};
}

TEST(AgentWire, EachMessageComesBackAsItWas) {
  for (const AgentMessage& message : samples()) {
    const std::string bytes = encode({7, 8, message});
    const auto frame = decode(bytes);
    ASSERT_TRUE(frame.has_value()) << message.index();
    EXPECT_EQ(frame->session, 7U);
    EXPECT_EQ(frame->number, 8U);
    EXPECT_EQ(frame->message.index(), message.index());
    EXPECT_EQ(encode(*frame), bytes);
  }
}

TEST(AgentWire, SamplesAreOfAllKinds) {
  EXPECT_EQ(samples().size(), std::variant_size_v<AgentMessage>);
  for (size_t i = 0; i < samples().size(); ++i) {
    EXPECT_EQ(samples()[i].index(), i);
  }
}

TEST(AgentWire, EveryCutMessageIsRefused) {
  for (const AgentMessage& message : samples()) {
    const std::string bytes = encode({7, 8, message});
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(decode(bytes.substr(0, size)).has_value());
    }
    EXPECT_FALSE(decode(bytes + '\0').has_value());
  }
}

TEST(AgentWire, AnotherVersionIsNamed) {
  std::string bytes = encode({.message = Beat{}});
  bytes[4] = 99;
  const auto frame = decode(bytes);
  ASSERT_FALSE(frame.has_value());
  EXPECT_EQ(frame.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(frame.error().message.find("version 99"), std::string::npos);
}

TEST(AgentWire, WhatIsKnownOfOtherGpusThanThoseOfTheNodeIsRefused) {
  std::string hello = encode({.message = AgentHello{.gpus = {"0"}, .topology = {.gpus = {{}}}}});
  ASSERT_TRUE(decode(hello).has_value());
  // The memory and an empty list of NUMA nodes, before them one GPU without NICs.
  constexpr size_t kOneGpu = 3 * sizeof(uint32_t);
  hello.erase(hello.size() - sizeof(uint64_t) - sizeof(uint32_t) - kOneGpu, kOneGpu);
  EXPECT_FALSE(decode(hello).has_value());
}

TEST(AgentWire, FalseCountsAndWordsAreRefused) {
  const std::string hello = encode({.message = AgentHello{}});
  for (const size_t list : {12U, 16U, 20U, 24U}) {  // NUMA nodes, facts of GPUs, labels, GPUs.
    std::string changed = hello;
    changed.replace(hello.size() - list, 4, "\xff\xff\xff\x7f", 4);
    EXPECT_FALSE(decode(changed).has_value()) << list;
  }
  std::string signal = encode({.message = SignalProcess{}});
  signal.back() = 3;
  EXPECT_FALSE(decode(signal).has_value());
}

}  // namespace
}  // namespace pdjob::launcher
