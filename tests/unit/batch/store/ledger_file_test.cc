#include "batch/store/ledger_file.h"

#include <gtest/gtest.h>

#include "batch/store/records.h"
#include "tests/unit/batch/scratch_folder.h"

namespace pdjob::batch {
namespace {

using Pair = std::pair<uint64_t, uint64_t>;

// The real disk, until its next sync of a file fails.
class FailingDisk final : public Disk {
 public:
  Result<std::unique_ptr<AppendFile>> open(const std::string& name, uint64_t size) override {
    PDJOB_TRY(auto file, disk_->open(name, size));
    return std::unique_ptr<AppendFile>(std::make_unique<File>(*this, std::move(file)));
  }
  Status copy(const std::string& from, uint64_t offset, uint64_t size, AppendFile& out) override {
    return disk_->copy(from, offset, size, out);
  }
  Status rename(const std::string& from, const std::string& to) override {
    return disk_->rename(from, to);
  }

  bool fails_once = false;

 private:
  class File final : public AppendFile {
   public:
    File(FailingDisk& disk, std::unique_ptr<AppendFile> file)
        : disk_(disk), file_(std::move(file)) {}
    Status append(std::string_view bytes) override { return file_->append(bytes); }
    Status sync() override {
      return std::exchange(disk_.fails_once, false) ? Error{ErrorCode::kUnavailable, "EIO"}
                                                    : file_->sync();
    }

   private:
    FailingDisk& disk_;
    const std::unique_ptr<AppendFile> file_;
  };

  const std::unique_ptr<Disk> disk_ = real_disk();
};

class LedgerFileTest : public testing::Test {
 protected:
  LedgerFileTest() { reopen(); }
  void reopen() {
    ledger_.reset();
    ledger_ = LedgerFile::open(folder_.path() + "/ledger.sqlite").value();
  }
  void scan(const std::vector<std::optional<uint64_t>>& keys) {
    ASSERT_TRUE(ledger_->begin_scan());
    ASSERT_TRUE(ledger_->add_file({.name = "a", .path = "/a", .format = 2, .header = "x"}));
    uint64_t id = 0;
    for (const auto& key : keys) {
      ++id;
      ASSERT_TRUE(ledger_->add_row(
          {.id = {id}, .line = id, .offset = 10 * id, .length = 9, .weight = 3, .key = key}));
    }
    ASSERT_TRUE(ledger_->end_scan());
  }
  std::vector<uint64_t> pending(uint64_t after, size_t count) {
    std::vector<uint64_t> ids;
    const std::vector<InputRow> rows = ledger_->pending({after}, count).value();
    for (const InputRow& row : rows) {
      ids.push_back(row.id.value);
    }
    return ids;
  }

  ScratchFolder folder_;
  std::unique_ptr<LedgerFile> ledger_;
};

TEST_F(LedgerFileTest, HalfDoneRowsAreThereUntilTheyAreNoted) {
  scan({{}, {}, {}});
  ASSERT_TRUE(ledger_->note_half_done({{{2}, "0@0.5"}, {{3}, "0@0.9"}}));
  ASSERT_TRUE(ledger_->note_half_done({{{2}, "0@1.6"}}));
  reopen();
  using Notes = std::map<RowId, std::vector<std::string>>;
  EXPECT_EQ(ledger_->half_done({1}, {3}).value(),
            (Notes{{{2}, {"0@0.5", "0@1.6"}}, {{3}, {"0@0.9"}}}));
  EXPECT_EQ(ledger_->half_done({3}, {3}).value(), (Notes{{{3}, {"0@0.9"}}}));
  ASSERT_TRUE(ledger_->note({{.id = {2}}}, {}));
  EXPECT_EQ(ledger_->half_done({1}, {3}).value(), (Notes{{{3}, {"0@0.9"}}}));
  scan({{}, {}, {}});
  EXPECT_EQ(ledger_->half_done({1}, {3}).value(), Notes{}) << "another input";
}

TEST_F(LedgerFileTest, RowsArePendingUntilTheyAreNoted) {
  scan({{}, {}, {}, {}});
  EXPECT_EQ(pending(0, 3), (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(pending(3, 3), (std::vector<uint64_t>{4}));
  ASSERT_TRUE(ledger_->note(
      {{.id = {2}, .stats = {.completion_tokens = 7}}, {.id = {3}, .kind = RecordKind::kError}},
      {}));
  reopen();
  EXPECT_EQ(pending(0, 10), (std::vector<uint64_t>{1, 4}));
  const RowCounts counts = ledger_->counts().value();
  EXPECT_EQ(counts.total, 4U);
  EXPECT_EQ(counts.answered, 1U);
  EXPECT_EQ(counts.failed, 1U);
  EXPECT_EQ(counts.completion_tokens, 7U);
  EXPECT_EQ(ledger_->forget_failed().value(), 1U);
  EXPECT_EQ(pending(0, 10), (std::vector<uint64_t>{1, 3, 4}));
}

TEST_F(LedgerFileTest, ARowIsNotedOnce) {
  scan({{}});
  ASSERT_TRUE(ledger_->note({{.id = {1}}}, {}));
  EXPECT_FALSE(ledger_->note({{.id = {1}}}, {}));
}

TEST_F(LedgerFileTest, RowsKeepTheirBlameUntilTheyAreTriedAnew) {
  scan({{}, {}});
  ASSERT_TRUE(ledger_->note_blames({{RowId{2}, {.broken = 1}}}));
  ASSERT_TRUE(ledger_->note_blames({{RowId{2}, {.broken = 1, .lost = 3}}}));
  reopen();
  const auto rows = ledger_->pending(RowId{}, 10).value();
  EXPECT_EQ(rows.at(0).blame, Blame{});
  EXPECT_EQ(rows.at(1).blame, (Blame{.broken = 1, .lost = 3}));
  ASSERT_TRUE(ledger_->note({{.id = {2}, .kind = RecordKind::kError}}, {}));
  EXPECT_EQ(ledger_->forget_failed().value(), 1U);
  EXPECT_EQ(ledger_->pending(RowId{}, 10).value().at(1).blame, Blame{});
  scan({{}, {}});
  EXPECT_EQ(ledger_->row(RowId{2}).value().blame, Blame{});
}

TEST_F(LedgerFileTest, FindsRowsWithEqualKeys) {
  scan({7, {}, 8, 7, {}, 7, 8});
  std::vector<Pair> found;
  ASSERT_TRUE(ledger_->find_equal_keys([&](RowId first, RowId second) -> Status {
    found.emplace_back(first.value, second.value);
    return ok();
  }));
  EXPECT_EQ(found, (std::vector<Pair>{{1, 4}, {1, 6}, {3, 7}}));
}

TEST_F(LedgerFileTest, AScanThatDidNotEndIsForgotten) {
  ASSERT_TRUE(ledger_->begin_scan());
  ASSERT_TRUE(ledger_->add_row({.id = {1}}));
  reopen();
  EXPECT_FALSE(ledger_->scanned().value());
  scan({{}, {}});
  EXPECT_TRUE(ledger_->scanned().value());
  EXPECT_EQ(ledger_->counts().value().total, 2U);
  EXPECT_EQ(ledger_->files().value().size(), 1U);
  EXPECT_EQ(ledger_->files().value().front().header, "x");
}

TEST_F(LedgerFileTest, ARowKeepsAllItsParts) {
  scan({0x8000000000000001});
  ASSERT_TRUE(ledger_->add_duplicate({1}, {9}));
  const InputRow row = ledger_->row({1}).value();
  EXPECT_EQ(row.offset, 10U);
  EXPECT_EQ(row.length, 9U);
  EXPECT_EQ(row.weight, 3U);
  EXPECT_EQ(row.key, 0x8000000000000001U);
  EXPECT_EQ(row.duplicate_of, RowId{9});
  EXPECT_EQ(ledger_->row({2}).error().code, ErrorCode::kNotFound);
}

TEST_F(LedgerFileTest, PartsAreMergedInTheOrderOfTheInput) {
  scan(std::vector<std::optional<uint64_t>>(5));
  std::filesystem::create_directories(folder_.path() + "/parts");
  const auto disk = real_disk();
  const auto note = [&](uint64_t id, RecordKind kind) {
    // Opened anew for each: as after a crash. A part of 20 bytes has two records.
    const auto records = Records::open(*disk, *ledger_, folder_.path(), 20).value();
    const Status noted =
        records->note({{.id = {id}, .kind = kind, .line = "record of " + std::to_string(id)}});
    ASSERT_TRUE(noted) << noted.error().message;
  };
  note(4, RecordKind::kOutput);
  note(1, RecordKind::kOutput);
  note(5, RecordKind::kError);
  note(3, RecordKind::kOutput);
  note(2, RecordKind::kOutput);
  const auto records = Records::open(*disk, *ledger_, folder_.path(), 20).value();
  ASSERT_TRUE(records->merge(LedgerFile::Order::kInput));
  EXPECT_EQ(folder_.read("output.jsonl"), "record of 1\nrecord of 2\nrecord of 3\nrecord of 4\n");
  EXPECT_EQ(folder_.read("errors.jsonl"), "record of 5\n");
  EXPECT_EQ(folder_.read("parts/output-00001.jsonl"), "record of 4\nrecord of 1\n");
  ASSERT_TRUE(records->merge(LedgerFile::Order::kCompleted));
  EXPECT_EQ(folder_.read("output.jsonl"), "record of 4\nrecord of 1\nrecord of 3\nrecord of 2\n");
}

TEST_F(LedgerFileTest, AfterAFailedSyncNoRowIsNotedUntilThePartsAreOpenedAgain) {
  scan(std::vector<std::optional<uint64_t>>(2));
  std::filesystem::create_directories(folder_.path() + "/parts");
  FailingDisk disk;
  {
    const auto records = Records::open(disk, *ledger_, folder_.path()).value();
    disk.fails_once = true;
    EXPECT_FALSE(records->note({{.id = {1}, .line = "record of 1"}}));
    EXPECT_FALSE(records->note({{.id = {2}, .line = "record of 2"}}));
  }
  EXPECT_EQ(pending(0, 3), (std::vector<uint64_t>{1, 2}));
  const auto records = Records::open(disk, *ledger_, folder_.path()).value();
  ASSERT_TRUE(records->note({{.id = {2}, .line = "record of 2"}}));
  ASSERT_TRUE(records->merge(LedgerFile::Order::kInput));
  EXPECT_EQ(folder_.read("output.jsonl"), "record of 2\n");
}

TEST_F(LedgerFileTest, APartThatSomebodyShortenedIsAnError) {
  scan({{}});
  std::filesystem::create_directories(folder_.path() + "/parts");
  const auto disk = real_disk();
  {
    const auto records = Records::open(*disk, *ledger_, folder_.path()).value();
    ASSERT_TRUE(records->note({{.id = {1}, .line = "record"}}));
  }
  std::filesystem::resize_file(folder_.path() + "/parts/output-00001.jsonl.open", 3);
  const auto records = Records::open(*disk, *ledger_, folder_.path());
  ASSERT_FALSE(records);
  EXPECT_EQ(records.error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace pdjob::batch
