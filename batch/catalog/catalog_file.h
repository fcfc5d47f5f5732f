// CatalogFile: the records of files and batches on disk, an SQLite file. Every change is one
// transaction. Calls block. Any thread may call, but only one at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "batch/catalog/api_records.h"
#include "common/result.h"
#include "common/sqlite/database.h"

namespace pdjob::batch {

// Records that change together. A record replaces that of the same id.
struct CatalogChange {
  std::vector<FileRecord> files;
  std::vector<BatchRecord> batches;
  std::vector<std::string> erased;  // Ids.
};

class CatalogFile {
 public:
  // kUnavailable: another process has it, or it cannot be written.
  static Result<std::unique_ptr<CatalogFile>> open(const std::string& file);

  // All records, in order of their numbers.
  Result<CatalogChange> load();
  Status commit(const CatalogChange& change);

 private:
  explicit CatalogFile(std::unique_ptr<Database> database) : database_(std::move(database)) {}
  Status put(int64_t number, int64_t kind, const std::string& id, const std::string& text);

  const std::unique_ptr<Database> database_;
};

}  // namespace pdjob::batch
