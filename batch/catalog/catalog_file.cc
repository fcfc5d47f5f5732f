#include "batch/catalog/catalog_file.h"

#include <array>
#include <utility>

namespace pdjob::batch {
namespace {

constexpr std::array kLayout = {
    "CREATE TABLE records (id TEXT PRIMARY KEY, number INTEGER NOT NULL,"
    "  kind INTEGER NOT NULL, text TEXT NOT NULL);"};
// Kinds of records, as stored.
constexpr int64_t kFile = 0;
constexpr int64_t kBatch = 1;

}  // namespace

Result<std::unique_ptr<CatalogFile>> CatalogFile::open(const std::string& file) {
  PDJOB_TRY(auto database, Database::open(file, kLayout));
  return std::unique_ptr<CatalogFile>(new CatalogFile(std::move(database)));
}

Result<CatalogChange> CatalogFile::load() {
  Statement rows = database_->prepare("SELECT number, kind, text FROM records ORDER BY number");
  CatalogChange all;
  while (true) {
    PDJOB_TRY(const bool there, rows.step());
    if (!there) {
      return all;
    }
    if (rows.number(1) == kFile) {
      FileRecord& file = all.files.emplace_back();
      PDJOB_TRY_STATUS(read_stored(rows.text(2), file));
      file.number = rows.number(0);
    } else {
      BatchRecord& batch = all.batches.emplace_back();
      PDJOB_TRY_STATUS(read_stored(rows.text(2), batch));
      batch.number = rows.number(0);
    }
  }
}

Status CatalogFile::put(int64_t number, int64_t kind, const std::string& id,
                        const std::string& text) {
  return database_->prepare("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)")
      .bind(id)
      .bind(number)
      .bind(kind)
      .bind(text)
      .finish();
}

Status CatalogFile::commit(const CatalogChange& change) {
  return database_->run_whole([&]() -> Status {
    for (const FileRecord& file : change.files) {
      PDJOB_TRY_STATUS(put(file.number, kFile, file.id, stored_text(file)));
    }
    for (const BatchRecord& batch : change.batches) {
      PDJOB_TRY_STATUS(put(batch.number, kBatch, batch.id, stored_text(batch)));
    }
    for (const std::string& id : change.erased) {
      PDJOB_TRY_STATUS(database_->prepare("DELETE FROM records WHERE id = ?").bind(id).finish());
    }
    return ok();
  });
}

}  // namespace pdjob::batch
