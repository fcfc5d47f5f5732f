#include "openai/replies/told_tokens.h"

#include <gtest/gtest.h>

namespace pdjob::openai {
namespace {

using Taken = ToldTokens::Taken;

TEST(ToldTokens, AreWhatNotesSaidOneAfterAnother) {
  ToldTokens told;
  EXPECT_EQ(told.tokens_json(), "[]");
  EXPECT_EQ(told.take("0@0.5.6;w=61;m=ab"), Taken::kNew);
  EXPECT_EQ(told.take("1@0.9;w=61;m=ab"), Taken::kNew);
  EXPECT_EQ(told.take("0@2.7;w=62;m=ab"), Taken::kNew);
  EXPECT_EQ(told.count(), 4U);
  EXPECT_EQ(told.tokens_json(), "[[5,6,7],[9]]");
  EXPECT_EQ(told.model_json(), R"("ab")");
  EXPECT_EQ(told.weights_json(),
            R"([[{"version":"61","start":0,"end":2},{"version":"62","start":2,"end":3}],)"
            R"([{"version":"61","start":0,"end":1}]])");
}

TEST(ToldTokens, SaidAgainChangeNothing) {
  ToldTokens told;
  told.take("0@0.5.6.7;w=61;m=ab");
  EXPECT_EQ(told.take("0@0.5.6;w=61;m=ab"), Taken::kKnown);
  EXPECT_EQ(told.take("0@1.6.7.8;w=61;m=ab"), Taken::kNew);
  EXPECT_EQ(told.tokens_json(), "[[5,6,7,8]]");
}

TEST(ToldTokens, OfAnotherGenerationReplaceAllFromTheFirstDifference) {
  ToldTokens told;
  told.take("0@0.5.6;w=61");
  told.take("0@2.7.8;w=62");
  EXPECT_EQ(told.take("0@1.6.9;w=63"), Taken::kNew);
  EXPECT_EQ(told.tokens_json(), "[[5,6,9]]");
  EXPECT_EQ(told.count(), 3U);
  EXPECT_EQ(told.weights_json(),
            R"([[{"version":"61","start":0,"end":2},{"version":"63","start":2,"end":3}]])");
}

TEST(ToldTokens, OfAnotherModelReplaceAll) {
  ToldTokens told;
  told.take("0@0.5.6;m=ab");
  told.take("1@0.9;m=ab");
  EXPECT_EQ(told.take("0@0.5;m=cd"), Taken::kNew);
  EXPECT_EQ(told.tokens_json(), "[[5]]");
}

TEST(ToldTokens, BehindAGapAreNotTaken) {
  ToldTokens told;
  told.take("0@0.5");
  EXPECT_EQ(told.take("0@2.7"), Taken::kGap);
  EXPECT_EQ(told.tokens_json(), "[[5]]");
}

TEST(ToldTokens, AreNoneInWhatIsNoNote) {
  for (const char* text : {"", "x", "0.", "0.-5", "0.x", "0@", "0@x.1", "4096.1", "0 .1", "-1.4",
                           "0.99999999999", "0.1;m=\"x\""}) {
    ToldTokens told;
    EXPECT_EQ(told.take(text), Taken::kBad) << text;
    EXPECT_EQ(told.count(), 0U) << text;
  }
}

}  // namespace
}  // namespace pdjob::openai
