#include "batch/input/row_splitter.h"

#include <vector>

#include <gtest/gtest.h>

namespace pdjob::batch {
namespace {

struct Found {
  uint64_t line = 0, offset = 0, length = 0;
  std::string text;
  friend bool operator==(const Found&, const Found&) = default;
};
std::ostream& operator<<(std::ostream& out, const Found& row) {
  return out << row.line << '@' << row.offset << '+' << row.length << ' ' << row.text;
}

std::vector<Found> split(RowFormat format, const std::string& text, size_t piece,
                         size_t row_bytes_max = kRowBytesMax) {
  std::vector<Found> rows;
  const auto take = [&](const RawRow& row) -> Status {
    rows.push_back({row.line, row.offset, row.length, *row.text});
    return ok();
  };
  RowSplitter splitter(format, take, row_bytes_max);
  for (size_t at = 0; at < text.size(); at += piece) {
    EXPECT_TRUE(splitter.feed(std::string_view(text).substr(at, piece)));
  }
  EXPECT_TRUE(splitter.finish());
  return rows;
}

TEST(RowSplitter, CutsLinesHoweverTheyArrive) {
  const std::string text = "one\r\n\n  \ntwo\nlast";
  const std::vector<Found> expected = {{1, 0, 3, "one"}, {4, 9, 3, "two"}, {5, 13, 4, "last"}};
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    EXPECT_EQ(split(RowFormat::kText, text, piece), expected) << piece;
  }
}

TEST(RowSplitter, ARowsTextIsWhereItSaysItIs) {
  const std::string text =
      "\xef\xbb\xbf"
      "first\r\nsecond\n";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    for (const Found& row : split(RowFormat::kText, text, piece)) {
      EXPECT_EQ(text.substr(row.offset, row.length), row.text);
    }
  }
  EXPECT_EQ(split(RowFormat::kText, text, 100).front().text, "first");
}

TEST(RowSplitter, ARecordOfCsvMayHaveLineBreaksInQuotes) {
  const std::string text = "a,\"x\ny\"\"\nz\"\nb,c\n";
  const std::vector<Found> expected = {{1, 0, 11, "a,\"x\ny\"\"\nz\""}, {4, 12, 3, "b,c"}};
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    EXPECT_EQ(split(RowFormat::kCsv, text, piece), expected) << piece;
  }
}

TEST(RowSplitter, ALineMayEndInACarriageReturnAlone) {
  const std::string text = "one\r\rtwo\r\nthree\r";
  const std::vector<Found> expected = {{1, 0, 3, "one"}, {3, 5, 3, "two"}, {4, 10, 5, "three"}};
  const std::string csv = "a\r\"b\rc\r\nd\"\re\r";
  const std::vector<Found> records = {{1, 0, 1, "a"}, {2, 2, 8, "\"b\rc\r\nd\""}, {5, 11, 1, "e"}};
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    EXPECT_EQ(split(RowFormat::kText, text, piece), expected) << piece;
    EXPECT_EQ(split(RowFormat::kCsv, csv, piece), records) << piece;
  }
}

TEST(RowSplitter, AQuoteInsideAFieldMergesNoRows) {
  const std::string text = "a 5\" nail\nplain\nb,6\"\n\"x\\\" y\"\nlast\n";
  const std::vector<Found> expected = {{1, 0, 9, "a 5\" nail"},
                                       {2, 10, 5, "plain"},
                                       {3, 16, 4, "b,6\""},
                                       {4, 21, 7, "\"x\\\" y\""},
                                       {5, 29, 4, "last"}};
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    EXPECT_EQ(split(RowFormat::kCsv, text, piece), expected) << piece;
  }
}

TEST(RowSplitter, AQuotedFieldThatNeverEndsFailsItsRowAlone) {
  const std::string text = "1,\"a\nb\",\"c\n2,\"\"d\r\n\n3,e";
  const std::vector<Found> expected = {
      {1, 0, 10, "1,\"a\nb\",\"c"}, {3, 11, 5, "2,\"\"d"}, {5, 19, 3, "3,e"}};
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    EXPECT_EQ(split(RowFormat::kCsv, text, piece), expected) << piece;
  }
}

TEST(RowSplitter, AQuotedFieldThatIsTooLongFailsItsRowAlone) {
  const std::string text = "1,\"open\n2,x\r\n3,y\n4,\"b\"\nlast\n";
  const std::vector<Found> expected = {{1, 0, 7, "1,\"open"},
                                       {2, 8, 3, "2,x"},
                                       {3, 13, 3, "3,y"},
                                       {4, 17, 5, "4,\"b\""},
                                       {5, 23, 4, "last"}};
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    EXPECT_EQ(split(RowFormat::kCsv, text, piece, 16), expected) << piece;
  }
}

TEST(RowSplitter, ARecordOfOneLineThatIsTooLongEndsWithIt) {
  const std::string text = "1,xxxxxxxx,\"y\n2,\"b\"\n";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    EXPECT_EQ(split(RowFormat::kCsv, text, piece, 10),
              (std::vector<Found>{{1, 0, 13, ""}, {2, 14, 5, "2,\"b\""}}));
  }
}

TEST(RowSplitter, ARecordOfBlanksIsARow) {
  EXPECT_EQ(split(RowFormat::kTsv, "a\tb\n\t\n\n", 100).size(), 2U);
  EXPECT_EQ(split(RowFormat::kText, "a\n \t\n", 100).size(), 1U);
}

TEST(RowSplitter, AByteOrderMarkDoesNotHideAQuote) {
  const std::string text = "\xef\xbb\xbf\"a\nb\"\nc\n";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    EXPECT_EQ(split(RowFormat::kCsv, text, piece),
              (std::vector<Found>{{1, 3, 5, "\"a\nb\""}, {3, 9, 1, "c"}}));
  }
}

TEST(RowSplitter, KeepsNothingOfARowThatIsTooLong) {
  std::vector<Found> rows;
  RowSplitter splitter(RowFormat::kText, [&](const RawRow& row) -> Status {
    rows.push_back({row.line, row.offset, row.length, *row.text});
    return ok();
  });
  const std::string piece(1 << 20, 'x');
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(splitter.feed(piece));
  }
  ASSERT_TRUE(splitter.feed("\nshort\n"));
  const uint64_t length = 40ULL << 20;
  EXPECT_EQ(rows, (std::vector<Found>{{1, 0, length, ""}, {2, length + 1, 5, "short"}}));
}

}  // namespace
}  // namespace pdjob::batch
