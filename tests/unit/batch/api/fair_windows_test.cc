#include "batch/api/fair_windows.h"

#include <gtest/gtest.h>

namespace pdjob::batch {
namespace {

using Windows = std::vector<size_t>;

TEST(FairWindows, TenantsGetEqualPartsWhateverTheNumberOfTheirRuns) {
  EXPECT_EQ(fair_windows({{"a", 100, 100}, {"a", 100, 100}, {"a", 100, 100}, {"b", 100, 100}}),
            (Windows{66, 66, 66, 200}));
  EXPECT_EQ(fair_windows({{"a", 190, 190}, {"b", 10, 10}}), (Windows{100, 100}));
}

TEST(FairWindows, ATenantAloneKeepsWhatItHas) {
  EXPECT_EQ(fair_windows({{"a", 500, 500}, {"a", 3, 3}}), (Windows{500, 3}));
  EXPECT_EQ(fair_windows({}), Windows{});
}

TEST(FairWindows, WhoDoesNotUseItsWindowTakesNothingFromOthers) {
  EXPECT_EQ(fair_windows({{"a", 500, 500}, {"b", 2, 32}}), (Windows{500, 32}));
}

TEST(FairWindows, SmallDifferencesStay) {
  EXPECT_EQ(fair_windows({{"a", 20, 20}, {"b", 10, 10}}), (Windows{20, 10}));
  EXPECT_EQ(fair_windows({{"a", 5, 5}, {"b", 1, 1}}), (Windows{5, 1}));
}

TEST(FairWindows, NobodyIsLeftWithoutARow) {
  EXPECT_EQ(fair_windows({{"a", 7, 7}, {"b", 1, 1}, {"c", 1, 1}, {"a", 0, 0}}),
            (Windows{3, 3, 3, 0}));
  Windows many = fair_windows({{"a", 1, 1},
                               {"a", 1, 1},
                               {"a", 1, 1},
                               {"a", 1, 1},
                               {"a", 1, 1},
                               {"a", 1, 1},
                               {"a", 1, 1},
                               {"a", 1, 1},
                               {"b", 1, 1}});
  EXPECT_EQ(many.front(), 1U);
  EXPECT_EQ(many.back(), 4U);
}

}  // namespace
}  // namespace pdjob::batch
