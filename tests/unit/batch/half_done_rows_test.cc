#include "batch/half_done_rows.h"

#include <gtest/gtest.h>

namespace pdjob::batch {
namespace {

using End = HalfDoneRows::End;

TEST(HalfDoneRows, TheNextAttemptGoesOnWithWhatTheLastOneTold) {
  HalfDoneRows rows;
  EXPECT_EQ(rows.begin({1}, {1}).goes_on.tokens, "");
  EXPECT_EQ(rows.take({1}, "0@0.5.6;w=61;m=ab"), RowId{1});
  EXPECT_FALSE(rows.ended({1}, End::kOther));
  const auto next = rows.begin({1}, {2});
  EXPECT_TRUE(next.tells);
  EXPECT_EQ(next.goes_on.tokens, "[[5,6]]");
  EXPECT_EQ(next.goes_on.weights, R"([[{"version":"61","start":0,"end":2}]])");
  EXPECT_EQ(next.goes_on.model, R"("ab")");
  EXPECT_EQ(rows.went_on(), 1U);
  EXPECT_EQ(rows.begin({2}, {3}).goes_on.tokens, "") << "another row";
}

TEST(HalfDoneRows, AreThoseOfProcessesBefore) {
  HalfDoneRows rows;
  rows.restore({1}, {"0@0.5;w=61;m=ab", "0@1.6;w=61;m=ab"});
  EXPECT_EQ(rows.begin({1}, {1}).goes_on.tokens, "[[5,6]]");
}

TEST(HalfDoneRows, OnlyOneOfTwoAttemptsTells) {
  HalfDoneRows rows;
  EXPECT_TRUE(rows.begin({1}, {1}).tells);
  EXPECT_FALSE(rows.begin({1}, {2}).tells);
  EXPECT_EQ(rows.take({2}, "0@0.9;m=ab"), RowId{});
  EXPECT_EQ(rows.take({1}, "0@0.5;m=ab"), RowId{1});
  rows.ended({1}, End::kOther);
  EXPECT_EQ(rows.take({1}, "0@1.6;m=ab"), RowId{}) << "it has ended";
  EXPECT_TRUE(rows.begin({1}, {3}).tells);
}

TEST(HalfDoneRows, ToldTwiceAreKeptOnce) {
  HalfDoneRows rows;
  rows.begin({1}, {1});
  EXPECT_EQ(rows.take({1}, "0@0.5;m=ab"), RowId{1});
  EXPECT_EQ(rows.take({1}, "0@0.5;m=ab"), RowId{});
}

TEST(HalfDoneRows, ThatTheServerRefusesBeginAnew) {
  HalfDoneRows rows;
  rows.restore({1}, {"0@0.5;m=ab"});
  rows.begin({1}, {1});
  EXPECT_TRUE(rows.ended({1}, End::kRefused));
  EXPECT_EQ(rows.begin({1}, {2}).goes_on.tokens, "");
  EXPECT_FALSE(rows.ended({2}, End::kRefused)) << "then the row is wrong";
}

TEST(HalfDoneRows, AreForgottenWithTheirRow) {
  HalfDoneRows rows;
  rows.restore({1}, {"0@0.5;m=ab"});
  rows.begin({1}, {1});
  rows.forget({1});
  EXPECT_FALSE(rows.ended({1}, End::kRefused));
  EXPECT_EQ(rows.take({1}, "0@1.5;m=ab"), RowId{});
}

}  // namespace
}  // namespace pdjob::batch
