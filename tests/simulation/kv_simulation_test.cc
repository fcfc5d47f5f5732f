// Tests the simulator of KV transfers: the seed alone decides a run. The mutants in CMakeLists.txt
// prove that it finds bugs.
#include <gtest/gtest.h>

#include "tests/simulation/kv_world.h"

namespace pdjob::simulation {
namespace {

TEST(KvSimulation, IsDecidedByItsSeedAlone) {
  const KvRunResult first = simulate_kv({.seed = 7});
  EXPECT_EQ(first.trace_hash, simulate_kv({.seed = 7}).trace_hash);
  EXPECT_NE(first.trace_hash, simulate_kv({.seed = 8}).trace_hash);
}

TEST(KvSimulation, MovesEverythingWhenNothingFails) {
  const KvRunResult result = simulate_kv({.seed = 8});
  EXPECT_EQ(result.violation, "");
  EXPECT_EQ(result.done, 15);
  EXPECT_EQ(result.failed, 0);
  EXPECT_GT(result.blocks_loaded, 0);
  EXPECT_EQ(result.blocks_missing, 0);
  EXPECT_EQ(result.blocks_failed, 0);
}

TEST(KvSimulation, AStoreThatFailsCostsBlocksOnly) {
  uint64_t blocks_failed = 0;
  for (uint64_t seed = 4; seed < 84; seed += 8) {
    const KvRunResult result = simulate_kv({.seed = seed});
    EXPECT_EQ(result.violation, "");
    EXPECT_EQ(result.done, 15);
    EXPECT_EQ(result.failed, 0);
    blocks_failed += result.blocks_failed;
  }
  EXPECT_GT(blocks_failed, 0);
}

}  // namespace
}  // namespace pdjob::simulation
