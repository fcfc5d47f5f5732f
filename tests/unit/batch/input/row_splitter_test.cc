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

std::vector<Found> split(RowFormat format, const std::string& text, size_t piece) {
  std::vector<Found> rows;
  RowSplitter splitter(format, [&](const RawRow& row) -> Status {
    rows.push_back({row.line, row.offset, row.length, *row.text});
    return ok();
  });
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

TEST(RowSplitter, KeepsNothingOfARowThatIsTooLong) {
  std::vector<Found> rows;
  RowSplitter splitter(RowFormat::kText, [&](const RawRow& row) -> Status {
    rows.push_back({row.line, row.offset, row.length, *row.text});
    return ok();
  });
  const std::string piece(1 << 20, 'x');
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(splitter.feed(piece));
  }
  ASSERT_TRUE(splitter.feed("\nshort\n"));
  const uint64_t length = 200ULL << 20;
  EXPECT_EQ(rows, (std::vector<Found>{{1, 0, length, ""}, {2, length + 1, 5, "short"}}));
}

}  // namespace
}  // namespace pdjob::batch
