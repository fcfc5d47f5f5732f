#include "router/streams/pdjob_stream.h"

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

std::string taken(PdjobStream& record, std::string_view raw) {
  std::string out;
  record.take(raw, out);
  return out;
}

TEST(PdjobStream, TakesExtensionsOffAndKeepsWhatTheyTell) {
  PdjobStream record;
  EXPECT_EQ(taken(record, "3;t=0.17.4\r\nabc\r\n2;t=1.9\r\nde\r\n2;t=0.5\r\nfg\r\n"),
            "3\r\nabc\r\n2\r\nde\r\n2\r\nfg\r\n");
  EXPECT_TRUE(record.resumable());
  EXPECT_EQ(record.resumption().tokens, "[[17,4,5],[9]]");
}

TEST(PdjobStream, KeepsWhichWeightsMadeTheTokens) {
  PdjobStream record;
  EXPECT_EQ(taken(record, "1;t=0.17.4;w=61\r\na\r\n1;t=1.9;w=62\r\nb\r\n1;t=0.5\r\nc\r\n"),
            "1\r\na\r\n1\r\nb\r\n1\r\nc\r\n");
  taken(record, "1;t=0.6;w=62\r\nd\r\n");
  record.change_worker();
  taken(record, "1;t=0.7;w=62\r\ne\r\n");
  EXPECT_EQ(record.resumption().tokens, "[[17,4,5,6,7],[9]]");
  EXPECT_EQ(
      record.resumption().weights,
      R"([[{"version":"61","start":0,"end":3},{"version":"62","start":3,"end":5}],[{"version":"62","start":0,"end":1}]])");
}

TEST(PdjobStream, KnowsNoWeightsThatNobodyTold) {
  PdjobStream record;
  taken(record, "1;t=0.1\r\na\r\n");
  EXPECT_EQ(record.resumption().weights, "");
  taken(record, "1;t=0.2;w=61\r\na\r\n");
  EXPECT_EQ(record.resumption().weights, "") << "those of the first token are missing";
  PdjobStream odd;
  taken(odd, "1;t=0.1;w=6Z\"\r\na\r\n");
  EXPECT_EQ(odd.resumption().weights, "");
  EXPECT_EQ(odd.resumption().tokens, "[[1]]");
}

TEST(PdjobStream, LetsWholeChunksThroughHoweverTheyCome) {
  const std::string raw = "3;t=0.17\r\nabc\r\n2;t=0.9\r\nde\r\n";
  for (size_t cut = 0; cut < raw.size(); ++cut) {
    PdjobStream record;
    const std::string first = taken(record, std::string_view(raw).substr(0, cut));
    EXPECT_EQ(record.resumption().tokens, first.empty() ? "[]" : "[[17]]") << cut;
    EXPECT_EQ(first + taken(record, std::string_view(raw).substr(cut)), "3\r\nabc\r\n2\r\nde\r\n")
        << cut;
    EXPECT_EQ(record.resumption().tokens, "[[17,9]]");
  }
}

TEST(PdjobStream, ForgetsAPartOfAChunkWhenTheWorkerChanges) {
  PdjobStream record;
  EXPECT_EQ(taken(record, "1;t=0.1\r\na\r\n1;t=0.2\r\n"), "1\r\na\r\n");
  record.change_worker();
  EXPECT_EQ(taken(record, "1;t=0.2\r\nb\r\n"), "1\r\nb\r\n");
  EXPECT_EQ(record.resumption().tokens, "[[1,2]]");
}

TEST(PdjobStream, EndsWithItsLastEvent) {
  PdjobStream record;
  taken(record, "1;t=0.1\r\na\r\n");
  EXPECT_FALSE(record.complete());
  EXPECT_EQ(taken(record, "1;t=end\r\nz\r\n0\r\n"), "1\r\nz\r\n0\r\n\r\n");
  EXPECT_TRUE(record.complete());
  EXPECT_EQ(taken(record, "\r\n"), "");
}

TEST(PdjobStream, LetsPassWhatTellsNothing) {
  for (const std::string raw : {"1\r\na\r\n0\r\n\r\n", "1;x=y\r\na\r\n", "1;t=x\r\na\r\n",
                                "1;t=0.-5\r\na\r\n", "nonsense\r\n", "0\r\n\r\n"}) {
    PdjobStream record;
    EXPECT_EQ(taken(record, raw), raw);
    EXPECT_FALSE(record.resumable()) << raw;
    EXPECT_EQ(taken(record, "more"), "more");
  }
}

TEST(PdjobStream, HoldsNoMoreThanAnEvent) {
  PdjobStream record;
  const std::string size_line = "ffffff;t=0.1\r\n";
  EXPECT_EQ(taken(record, size_line), size_line) << "larger than any event";
  PdjobStream endless;
  std::string out;
  for (int i = 0; i < 4096 && out.empty(); ++i) {
    endless.take(std::string(4096, '1'), out);
  }
  EXPECT_FALSE(out.empty());
}

TEST(PdjobStream, HasNothingToGoOnWithBeforeTheFirstToken) {
  PdjobStream record;
  EXPECT_FALSE(record.resumable());
  EXPECT_EQ(record.resumption().tokens, "[]");
}

}  // namespace
}  // namespace pdjob::router
