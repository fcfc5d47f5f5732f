#include "batch/catalog/catalog_file.h"

#include <gtest/gtest.h>

#include "batch/catalog/shelf.h"
#include "tests/unit/batch/scratch_folder.h"

namespace pdjob::batch {
namespace {

FileRecord file(int64_t number, const std::string& tenant = "a") {
  return {.number = number,
          .id = "file-" + std::to_string(number),
          .tenant = tenant,
          .filename = "süß \"x\".jsonl",
          .purpose = number % 2 == 0 ? "batch" : "batch_output",
          .bytes = 10 * number,
          .created_at = 5,
          .expires_at = 6};
}

BatchRecord batch() {
  return {.number = 7,
          .id = "batch_7",
          .tenant = "b",
          .state = BatchState::kCancelled,
          .endpoint = "/v1/completions",
          .input_file_id = "file-1",
          .completion_window = "24h",
          .metadata = R"({"a":"\"b\""})",
          .errors = R"({"code":"x","line":2,"message":"m","param":null})",
          .model = "m",
          .output_file_id = "file-8",
          .output_lifetime = 3600,
          .created_at = 1,
          .expires_at = 2,
          .in_progress_at = 3,
          .cancelling_at = 4,
          .ended_at = 5,
          .total = 6,
          .completed = 7,
          .failed = 8,
          .input_tokens = 9,
          .output_tokens = 10};
}

TEST(CatalogFile, KeepsWhatWasCommitted) {
  const ScratchFolder folder;
  const std::string path = folder.path() + "/catalog.sqlite";
  {
    auto opened = CatalogFile::open(path);
    ASSERT_TRUE(opened);
    ASSERT_TRUE(
        (*opened)->commit({.files = {file(2), file(1)}, .batches = {batch()}, .erased = {}}));
    ASSERT_TRUE((*opened)->commit({.files = {}, .batches = {}, .erased = {"file-2", "file-none"}}));
  }
  auto again = CatalogFile::open(path);
  ASSERT_TRUE(again);
  const auto all = (*again)->load();
  ASSERT_TRUE(all) << all.error().message;
  ASSERT_EQ(all->files.size(), 1U);
  EXPECT_EQ(stored_text(all->files[0]), stored_text(file(1)));
  EXPECT_EQ(all->files[0].number, 1);
  ASSERT_EQ(all->batches.size(), 1U);
  EXPECT_EQ(stored_text(all->batches[0]), stored_text(batch()));
  EXPECT_EQ(batch_object(all->batches[0]), batch_object(batch()));
}

TEST(CatalogFile, BelongsToOneProcessAtATime) {
  const ScratchFolder folder;
  const auto first = CatalogFile::open(folder.path() + "/catalog.sqlite");
  ASSERT_TRUE(first);
  ASSERT_TRUE((*first)->commit({.files = {file(1)}, .batches = {}, .erased = {}}));
  EXPECT_FALSE(CatalogFile::open(folder.path() + "/catalog.sqlite"));
}

TEST(ApiRecords, AreOpenAisObjects) {
  EXPECT_EQ(file_object(file(2)),
            R"({"id":"file-2","object":"file","bytes":20,"created_at":5,"expires_at":6,)"
            "\"filename\":\"süß \\\"x\\\".jsonl\","
            R"("purpose":"batch","status":"processed","status_details":null})");
  const std::string text = batch_object(batch());
  EXPECT_NE(text.find(R"("status":"cancelled","output_file_id":"file-8","error_file_id":null)"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(R"("completed_at":null)"), std::string::npos);
  EXPECT_NE(text.find(R"("cancelled_at":5)"), std::string::npos);
  EXPECT_NE(text.find(R"("metadata":{"a":"\"b\""})"), std::string::npos);
  EXPECT_NE(text.find(R"("errors":{"object":"list","data":[{"code":"x")"), std::string::npos);
}

TEST(ApiRecords, ShowNoResultsBeforeTheEnd) {
  BatchRecord running = batch();
  running.state = BatchState::kFinalizing;
  EXPECT_NE(batch_object(running).find(R"("output_file_id":null)"), std::string::npos);
}

TEST(Shelf, ShowsATenantOnlyItsOwn) {
  Shelf<FileRecord> shelf;
  shelf.put(file(1, "a"));
  shelf.put(file(2, "b"));
  EXPECT_NE(shelf.find("file-1", "a"), nullptr);
  EXPECT_EQ(shelf.find("file-1", "b"), nullptr);
  EXPECT_EQ(shelf.find("file-1", ""), nullptr);
  EXPECT_EQ(shelf.count("a"), 1U);
  shelf.erase("file-1");
  EXPECT_EQ(shelf.find("file-1"), nullptr);
  EXPECT_EQ(shelf.count("a"), 0U);
  shelf.erase("file-1");
}

TEST(Shelf, HasPagesInBothOrders) {
  Shelf<FileRecord> shelf;
  for (int64_t number = 1; number <= 5; ++number) {
    shelf.put(file(number));
  }
  const auto numbers = [&](const char* after, size_t limit, ListOrder order, bool& more) {
    const auto page = shelf.page("a", after == nullptr ? nullptr : shelf.find(after), limit, order,
                                 [](const FileRecord& each) { return each.number != 3; });
    std::vector<int64_t> found;
    for (const FileRecord& each : page.records) {
      found.push_back(each.number);
    }
    more = page.has_more;
    return found;
  };
  bool more = false;
  EXPECT_EQ(numbers(nullptr, 2, ListOrder::kNewestFirst, more), (std::vector<int64_t>{5, 4}));
  EXPECT_TRUE(more);
  EXPECT_EQ(numbers("file-4", 2, ListOrder::kNewestFirst, more), (std::vector<int64_t>{2, 1}));
  EXPECT_FALSE(more);
  EXPECT_EQ(numbers("file-1", 9, ListOrder::kOldestFirst, more), (std::vector<int64_t>{2, 4, 5}));
  EXPECT_FALSE(more);
}

}  // namespace
}  // namespace pdjob::batch
