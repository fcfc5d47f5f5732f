// Books: the records of the Batch API, in memory and on disk. A change is in memory at once, and
// reaches the disk in order. Clients hear of it once it is there (when_stored()), so a crash takes
// back nothing that a client was told. A change that cannot be written ends the process, and the
// disk gets nothing that was asked after it: the next process begins with the records on disk, and
// with the bytes that belong to them. Loop-bound.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "batch/catalog/api_records.h"
#include "batch/catalog/catalog_file.h"
#include "batch/catalog/file_store.h"
#include "batch/catalog/shelf.h"
#include "common/result.h"
#include "net/loop/loop.h"

namespace pdjob::batch {

// The ids that stay on disk at a start. Anything else belongs to an upload or a change that a crash
// cut off.
struct KeptIds {
  std::set<std::string> files;
  std::set<std::string> batches;  // Those that have folders.
};
KeptIds kept_ids(const CatalogChange& all);

class Books {
 public:
  // `broken` is called once, with the reason, when a change cannot be written. Blocks.
  // kInvalidArgument: the folder has files or batches, but their records are gone. Nothing is
  // removed then.
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
  // Runs `then` on the loop once all changes until now are on disk: at once if they are.
  void when_stored(std::function<void()> then);
  // Runs `work` on the disk's thread, in order with changes, and what it returns on the loop.
  // Does nothing after a change that could not be written.
  using Then = std::function<void()>;
  void run(std::function<Then(FileStore&)> work);

  std::string file_path(const std::string& id) const { return store_.file_path(id); }
  std::string batch_path(const std::string& id) const { return store_.batch_path(id); }

  // At most `most` ids of files that expire by then, and of batches that ended by then; the oldest
  // ones. Times are seconds since 1970.
  std::vector<std::string> files_expired_by(int64_t time, size_t most) const;
  std::vector<std::string> batches_ended_by(int64_t time, size_t most) const;

  // The bytes of all files, or of a tenant's. Uploads under way count, too.
  uint64_t file_bytes() const { return file_bytes_; }
  uint64_t file_bytes_of(const std::string& tenant) const;
  void count_upload(const std::string& tenant, int64_t bytes);

 private:
  Books(net::Loop& loop, std::unique_ptr<CatalogFile> catalog, FileStore store,
        std::function<void(const std::string&)> broken);
  void apply(const CatalogChange& change);
  void stored(const std::function<void()>& then);

  net::Loop& loop_;
  Shelf<FileRecord> files_;
  Shelf<BatchRecord> batches_;
  int64_t last_number_ = 0;
  uint64_t file_bytes_ = 0;
  std::map<std::string, uint64_t> file_bytes_of_;  // By tenant; those that have some.
  // In order of time, so that a look for what has expired costs nothing when nothing has.
  using ByTime = std::set<std::pair<int64_t, std::string>>;
  static std::vector<std::string> until(const ByTime& times, int64_t time, size_t most);
  ByTime expiries_;  // Of files.
  ByTime ends_;      // Of batches that have ended.
  uint64_t changes_ = 0;
  uint64_t changes_stored_ = 0;
  std::deque<std::pair<uint64_t, std::function<void()>>> waiting_;  // Since which change.
  std::function<void(const std::string&)> broken_;
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
  // The disk's thread uses these.
  bool failed_ = false;  // A change could not be written.
  const std::unique_ptr<CatalogFile> catalog_;
  FileStore store_;
  std::unique_ptr<net::Helper> disk_;  // Ends first.
};

}  // namespace pdjob::batch
