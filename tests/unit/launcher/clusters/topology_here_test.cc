#include "launcher/clusters/topology_here.h"

#include <gtest/gtest.h>

#include "common/os/real_clock.h"

namespace pdjob::launcher {
namespace {

std::string printed(const std::string& script, Duration at_most = std::chrono::seconds(60)) {
  return printed_by("sh", {"-c", script}, at_most);
}

TEST(TopologyHere, KeepsWhatAProgramPrints) {
  EXPECT_EQ(printed("echo one; sleep 0.05; echo two"), "one\ntwo\n");
  EXPECT_EQ(printed("head -c 200000 /dev/zero").size(), 200'000U) << "more than a pipe holds";
}

TEST(TopologyHere, KeepsNothingOfAProgramThatFailsOrIsNotThere) {
  EXPECT_EQ(printed("echo one; exit 1"), "");
  EXPECT_EQ(printed("echo one; kill -9 $$"), "");
  EXPECT_EQ(printed_by("no-such-program", {}, std::chrono::seconds(60)), "");
}

TEST(TopologyHere, KeepsNothingOfAProgramThatPrintsTooMuch) {
  EXPECT_EQ(printed("head -c 300000 /dev/zero"), "");
}

TEST(TopologyHere, EndsAProgramThatHangs) {
  const Instant begun = real_now();
  EXPECT_EQ(printed("echo one; sleep 1000", std::chrono::milliseconds(100)), "");
  EXPECT_LT(real_now() - begun, std::chrono::seconds(500));
}

TEST(TopologyHere, AMachineWithoutAGpuKnowsNothing) {
  EXPECT_EQ(topology_here({}), NodeTopology());
}

}  // namespace
}  // namespace pdjob::launcher
