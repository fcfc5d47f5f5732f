#include "router/prefix_index/prefix_index.h"

#include <deque>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "common/random.h"

namespace pdjob::router {
namespace {

constexpr WorkerId kA{1}, kB{2};

// Returns a chain whose first `shared` blocks are those of chain 0.
std::vector<uint64_t> chain(uint64_t number, size_t blocks, size_t shared = 0) {
  std::vector<uint64_t> made;
  for (size_t block = 0; block < blocks; ++block) {
    made.push_back(mix((block < shared ? 0 : number * 100 + shared) * 1000 + block));
  }
  return made;
}

TEST(PrefixIndex, MatchesTheCommonBeginningOfEachWorker) {
  PrefixIndex index(100);
  index.insert(chain(0, 10, 10), kA);
  index.insert(chain(0, 4, 4), kB);
  EXPECT_EQ(index.matched(chain(0, 10, 10), kA), 10U);
  EXPECT_EQ(index.matched(chain(0, 10, 10), kB), 4U);
  EXPECT_EQ(index.matched(chain(7, 10, 6), kA), 6U);
  EXPECT_EQ(index.matched(chain(7, 10), kA), 0U);
  EXPECT_EQ(index.matched({}, kA), 0U);
  EXPECT_EQ(index.held(kA), 10U);
}

TEST(PrefixIndex, ForgetsTheEndOfWhatWasUsedLongestAgo) {
  PrefixIndex index(12);
  index.insert(chain(1, 6), kA);
  index.insert(chain(2, 6), kA);
  index.insert(chain(1, 6), kA);  // Uses the chain again.
  index.insert(chain(3, 4), kB);
  EXPECT_EQ(index.matched(chain(1, 6), kA), 6U);
  EXPECT_EQ(index.matched(chain(2, 6), kA), 2U);
  EXPECT_EQ(index.matched(chain(3, 4), kB), 4U);
  EXPECT_EQ(index.held(kA), 8U);
  EXPECT_EQ(index.size(), 12U);
}

TEST(PrefixIndex, TakesOfAPromptThatIsTooLongItsBeginning) {
  PrefixIndex index(5);
  index.insert(chain(1, 9), kA);
  EXPECT_EQ(index.matched(chain(1, 9), kA), 5U);
}

// A simple oracle: a list of pairs by age.
class SlowIndex {
 public:
  explicit SlowIndex(size_t entries_max) : entries_max_(entries_max) {}
  uint32_t matched(const std::vector<uint64_t>& blocks, WorkerId worker) const {
    uint32_t count = 0;
    while (count < blocks.size() &&
           std::count(pairs_.begin(), pairs_.end(), std::pair(blocks[count], worker)) > 0) {
      ++count;
    }
    return count;
  }
  void insert(const std::vector<uint64_t>& blocks, WorkerId worker) {
    for (size_t at = std::min(blocks.size(), entries_max_); at-- > 0;) {
      std::erase(pairs_, std::pair(blocks[at], worker));
      pairs_.emplace_back(blocks[at], worker);
    }
    while (pairs_.size() > entries_max_) {
      pairs_.pop_front();
    }
  }
  uint32_t held(WorkerId worker) const {
    return static_cast<uint32_t>(std::count_if(
        pairs_.begin(), pairs_.end(), [&](const auto& pair) { return pair.second == worker; }));
  }

 private:
  const size_t entries_max_;
  std::deque<std::pair<uint64_t, WorkerId>> pairs_;
};

TEST(PrefixIndex, IsTheSlowOneWhateverIsPutIntoIt) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    const auto entries_max = static_cast<uint32_t>(1 + random.below(60));
    PrefixIndex index(entries_max);
    SlowIndex slow(entries_max);
    for (int step = 0; step < 300; ++step) {
      const auto blocks = chain(1 + random.below(4), random.below(20), random.below(10));
      const WorkerId worker{random.below(3)};
      ASSERT_EQ(index.matched(blocks, worker), slow.matched(blocks, worker)) << seed << ' ' << step;
      ASSERT_EQ(index.held(worker), slow.held(worker));
      if (random.chance(0.5)) {
        index.insert(blocks, worker);
        slow.insert(blocks, worker);
      }
    }
  }
}

}  // namespace
}  // namespace pdjob::router
