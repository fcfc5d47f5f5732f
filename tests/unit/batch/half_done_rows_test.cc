#include "batch/half_done_rows.h"

#include <gtest/gtest.h>

namespace pdjob::batch {
namespace {

using End = HalfDoneRows::End;

constexpr const char* kBody = R"({"prompt":"a"})";
constexpr const char* kGoesOn =
    R"({"prompt":"a","pdjob_resume":[[5,6]],)"
    R"("pdjob_resume_weights":[[{"version":"61","start":0,"end":2}]],"pdjob_resume_model":"ab"})";

TEST(HalfDoneRows, TheNextAttemptGoesOnWithWhatTheLastOneTold) {
  HalfDoneRows rows;
  EXPECT_EQ(rows.begin({1}, {1}, kBody).body, kBody);
  EXPECT_EQ(rows.take({1}, "0@0.5.6;w=61;m=ab"), RowId{1});
  EXPECT_FALSE(rows.ended({1}, End::kOther));
  const auto next = rows.begin({1}, {2}, kBody);
  EXPECT_TRUE(next.tells);
  EXPECT_EQ(next.body, kGoesOn);
  EXPECT_EQ(rows.went_on(), 1U);
  EXPECT_EQ(rows.begin({2}, {3}, kBody).body, kBody) << "another row";
}

TEST(HalfDoneRows, AreThoseOfProcessesBefore) {
  HalfDoneRows rows;
  rows.restore({1}, {"0@0.5;w=61;m=ab", "0@1.6;w=61;m=ab"});
  EXPECT_EQ(rows.begin({1}, {1}, kBody).body, kGoesOn);
}

TEST(HalfDoneRows, OnlyOneOfTwoAttemptsTells) {
  HalfDoneRows rows;
  EXPECT_TRUE(rows.begin({1}, {1}, kBody).tells);
  EXPECT_FALSE(rows.begin({1}, {2}, kBody).tells);
  EXPECT_EQ(rows.take({2}, "0@0.9;m=ab"), RowId{});
  EXPECT_EQ(rows.take({1}, "0@0.5;m=ab"), RowId{1});
  rows.ended({1}, End::kOther);
  EXPECT_EQ(rows.take({1}, "0@1.6;m=ab"), RowId{}) << "it has ended";
  EXPECT_TRUE(rows.begin({1}, {3}, kBody).tells);
}

TEST(HalfDoneRows, ToldTwiceAreKeptOnce) {
  HalfDoneRows rows;
  rows.begin({1}, {1}, kBody);
  EXPECT_EQ(rows.take({1}, "0@0.5;m=ab"), RowId{1});
  EXPECT_EQ(rows.take({1}, "0@0.5;m=ab"), RowId{});
}

TEST(HalfDoneRows, ThatTheServerRefusesBeginAnew) {
  HalfDoneRows rows;
  rows.restore({1}, {"0@0.5;m=ab"});
  rows.begin({1}, {1}, kBody);
  EXPECT_TRUE(rows.ended({1}, End::kRefused));
  EXPECT_EQ(rows.begin({1}, {2}, kBody).body, kBody);
  EXPECT_FALSE(rows.ended({2}, End::kRefused)) << "then the row is wrong";
}

TEST(HalfDoneRows, AreForgottenWithTheirRow) {
  HalfDoneRows rows;
  rows.restore({1}, {"0@0.5;m=ab"});
  rows.begin({1}, {1}, kBody);
  rows.forget({1});
  EXPECT_FALSE(rows.ended({1}, End::kRefused));
  EXPECT_EQ(rows.take({1}, "0@1.5;m=ab"), RowId{});
}

}  // namespace
}  // namespace pdjob::batch
