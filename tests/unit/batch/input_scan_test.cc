#include "batch/input_scan.h"

#include <gtest/gtest.h>
#include <zstd.h>

#include "batch/input/row_files.h"
#include "tests/unit/batch/scratch_folder.h"

namespace pdjob::batch {
namespace {

std::string row(const std::string& id, int tokens) {
  return R"({"custom_id":")" + id + R"(","url":"/v1/completions","body":{"max_tokens":)" +
         std::to_string(tokens) + "}}\n";
}

class InputScanTest : public testing::Test {
 protected:
  Status scan(const BatchOptions& options) {
    PDJOB_TRY(const RowReader reader, row_reader_of(options));
    return scan_input(options, folder_, *ledger_, reader, [](uint64_t) {});
  }

  ScratchFolder scratch_;
  BatchFolder folder_ = BatchFolder::claim(scratch_.path() + "/out").value();
  std::unique_ptr<LedgerFile> ledger_ = LedgerFile::open(folder_.ledger()).value();
};

TEST_F(InputScanTest, RowsOfAllFilesFollowEachOther) {
  const std::string second = row("c", 9);
  std::string packed(ZSTD_compressBound(second.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), second.data(), second.size(), 1));
  const BatchOptions options{.inputs = {scratch_.write("1.jsonl", row("a", 1) + row("b", 2)),
                                        scratch_.write("2.jsonl.zst", packed)},
                             .folder = folder_.path()};
  ASSERT_TRUE(scan(options));
  const auto rows = ledger_->pending({}, 10).value();
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[1].line, 2U);
  EXPECT_EQ(rows[1].weight, 2U);
  EXPECT_EQ(rows[2].file, 1U);
  const auto files = ledger_->files().value();
  EXPECT_EQ(files[0].path, options.inputs[0]);
  RowFiles reader({files[0].path, files[1].path});
  std::string text;
  ASSERT_TRUE(reader.read(rows[2].file, rows[2].offset, rows[2].length, rows[2].digest, text));
  EXPECT_EQ(text + "\n", second);
  EXPECT_FALSE(reader.read(0, rows[0].offset, rows[0].length, rows[0].digest + 1, text));
  EXPECT_TRUE(scan(options)) << "the same input again";
}

TEST_F(InputScanTest, DuplicatesAreFoundAcrossFiles) {
  ASSERT_TRUE(scan({.inputs = {scratch_.write("1.jsonl", row("a", 1) + row("b", 2)),
                               scratch_.write("2.jsonl", row("c", 1) + row("a", 2))},
                    .folder = folder_.path()}));
  const auto rows = ledger_->pending({}, 10).value();
  EXPECT_EQ(rows[3].duplicate_of, RowId{1});
  EXPECT_EQ(rows[2].duplicate_of, RowId{});
}

TEST_F(InputScanTest, TheFirstRecordOfCsvIsItsHeader) {
  ASSERT_TRUE(scan({.inputs = {scratch_.write("1.csv", "id,word\n7,x\n8,y\n7,z\n")},
                    .folder = folder_.path(),
                    .body_template = R"({"prompt": "{{word}}"})",
                    .id_column = "id"}));
  EXPECT_EQ(ledger_->files().value()[0].header, "id,word");
  const auto rows = ledger_->pending({}, 10).value();
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].line, 2U);
  EXPECT_EQ(rows[2].duplicate_of, RowId{1});
}

TEST_F(InputScanTest, AFileWithoutRowsIsRefusedByName) {
  const std::string some = scratch_.write("1.csv", "id,word\n7,x\n");
  for (const char* text : {"", "\n\r\n", "id,word\n", "id,word\r"}) {
    const Status scanned = scan({.inputs = {some, scratch_.write("2.csv", text)},
                                 .folder = folder_.path(),
                                 .body_template = R"({"prompt": "{{word}}"})"});
    ASSERT_FALSE(scanned) << text;
    ledger_.reset();
    ledger_ = LedgerFile::open(folder_.ledger()).value();
    EXPECT_EQ(scanned.error().message, scratch_.path() + "/2.csv has no rows");
  }
}

TEST_F(InputScanTest, SaysWhenATemplateIsMissing) {
  const Status scanned = scan({.inputs = {"rows.csv"}, .folder = folder_.path()});
  ASSERT_FALSE(scanned);
  EXPECT_NE(scanned.error().message.find("need a template"), std::string::npos);
  EXPECT_FALSE(scan({.inputs = {scratch_.path() + "/nothing.jsonl"}, .folder = folder_.path()}));
}

}  // namespace
}  // namespace pdjob::batch
