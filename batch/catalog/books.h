// Books: what the Batch API knows, in memory and on disk. A change is seen at once by everybody who
// asks, and is answered once it is on disk. Changes reach the disk in their order. A change that
// cannot be written ends the process: what is on disk is the truth, and the next process begins
// with it. Loop-bound.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "batch/catalog/api_records.h"
#include "batch/catalog/catalog_file.h"
#include "batch/catalog/file_store.h"
#include "batch/catalog/shelf.h"
#include "common/result.h"
#include "net/loop/loop.h"

namespace pdjob::batch {

class Books {
 public:
  // `broken` is called once, with the reason, when a change cannot be written. Blocks.
  static Result<std::unique_ptr<Books>> open(net::Loop& loop, const std::string& dir,
                                             std::function<void(const std::string&)> broken);
  Books(const Books&) = delete;
  Books& operator=(const Books&) = delete;
  ~Books() = default;

  const Shelf<FileRecord>& files() const { return files_; }
  const Shelf<BatchRecord>& batches() const { return batches_; }
  int64_t next_number() { return ++last_number_; }
  // "PREFIX" and digits that cannot be guessed.
  std::string new_id(const std::string& prefix);

  // `then` runs on the loop, once all is on disk; may be empty.
  void change(CatalogChange change, std::function<void()> then);
  // Runs `work` on the disk's thread, in order with changes, and what it returns on the loop.
  using Then = std::function<void()>;
  void run(std::function<Then(FileStore&)> work);

  std::string file_path(const std::string& id) const { return store_.file_path(id); }
  std::string batch_path(const std::string& id) const { return store_.batch_path(id); }

  // Of all files. Uploads under way count, too.
  uint64_t file_bytes() const { return file_bytes_; }
  void count_upload(int64_t bytes) { file_bytes_ += static_cast<uint64_t>(bytes); }

 private:
  Books(net::Loop& loop, std::unique_ptr<CatalogFile> catalog, FileStore store,
        std::function<void(const std::string&)> broken);
  void apply(const CatalogChange& change);

  net::Loop& loop_;
  Shelf<FileRecord> files_;
  Shelf<BatchRecord> batches_;
  int64_t last_number_ = 0;
  uint64_t file_bytes_ = 0;
  std::function<void(const std::string&)> broken_;
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
  // Of the disk's thread.
  const std::unique_ptr<CatalogFile> catalog_;
  FileStore store_;
  std::unique_ptr<net::Helper> disk_;  // Ends first.
};

}  // namespace pdjob::batch
