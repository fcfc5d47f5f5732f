#include "engine/recipes/failure_cause.h"

#include <gtest/gtest.h>

namespace pdjob::engine {
namespace {

TEST(FailureCause, IsNamedWithTheLineThatShowsIt) {
  EXPECT_EQ(failure_cause({"INFO loading", "torch.OutOfMemoryError: CUDA out of memory."}),
            "it ran out of memory: torch.OutOfMemoryError: CUDA out of memory.");
  EXPECT_EQ(failure_cause({"vllm: error: unrecognized arguments: --max-modle-len 3"}),
            "it does not know a flag: vllm: error: unrecognized arguments: --max-modle-len 3");
  EXPECT_EQ(failure_cause({"OSError: [Errno 98] Address already in use"}),
            "a port is in use: OSError: [Errno 98] Address already in use");
  EXPECT_EQ(failure_cause({"ModuleNotFoundError: No module named 'nixl'"}),
            "a package is missing: ModuleNotFoundError: No module named 'nixl'");
}

TEST(FailureCause, IsTheLastOne) {
  EXPECT_EQ(failure_cause({"ImportError: libx is optional", "MemoryError"}),
            "it ran out of memory: MemoryError");
}

TEST(FailureCause, OfALogThatSaysNothingIsUnknown) {
  EXPECT_EQ(failure_cause({}), "");
  EXPECT_EQ(failure_cause({"INFO", "Traceback (most recent call last):"}), "");
}

TEST(FailureCause, ShowsNoMoreThanTheBeginningOfALongLine) {
  EXPECT_LT(failure_cause({"MemoryError" + std::string(100'000, 'x')}).size(), 300U);
}

}  // namespace
}  // namespace pdjob::engine
