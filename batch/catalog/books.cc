#include "batch/catalog/books.h"

#include <algorithm>
#include <utility>

#include "common/hex.h"

namespace pdjob::batch {

KeptIds kept_ids(const CatalogChange& all) {
  KeptIds kept;
  for (const FileRecord& file : all.files) {
    kept.files.insert(file.id);
  }
  for (const BatchRecord& batch : all.batches) {
    if (!batch.ended()) {
      kept.batches.insert(batch.id);
      // A crash may have come between the move of the results and their record.
      kept.files.insert({batch.output_file_id, batch.error_file_id});
    }
  }
  return kept;
}

Result<std::unique_ptr<Books>> Books::open(net::Loop& loop, const std::string& dir,
                                           std::function<void(const std::string&)> broken) {
  PDJOB_TRY(FileStore store, FileStore::open(dir));
  PDJOB_TRY(auto catalog, CatalogFile::open(dir + "/catalog.sqlite"));
  PDJOB_TRY(const CatalogChange all, catalog->load());
  std::unique_ptr<Books> books(
      new Books(loop, std::move(catalog), std::move(store), std::move(broken)));
  books->apply(all);
  for (const FileRecord& file : all.files) {
    books->last_number_ = std::max(books->last_number_, file.number);
  }
  for (const BatchRecord& batch : all.batches) {
    books->last_number_ = std::max(books->last_number_, batch.number);
  }
  const KeptIds kept = kept_ids(all);
  books->store_.keep_only(kept.files, kept.batches);
  return books;
}

Books::Books(net::Loop& loop, std::unique_ptr<CatalogFile> catalog, FileStore store,
             std::function<void(const std::string&)> broken)
    : loop_(loop),
      broken_(std::move(broken)),
      catalog_(std::move(catalog)),
      store_(std::move(store)),
      disk_(loop.make_helper("batch-catalog")) {}

std::string Books::new_id(const std::string& prefix) {
  std::string id = prefix;
  append_hex(id, loop_.entropy());
  append_hex(id, loop_.entropy());
  return id;
}

void Books::apply(const CatalogChange& change) {
  for (const FileRecord& file : change.files) {
    files_.put(file);
    file_bytes_ += static_cast<uint64_t>(file.bytes);
  }
  for (const BatchRecord& batch : change.batches) {
    batches_.put(batch);
  }
  for (const std::string& id : change.erased) {
    if (const FileRecord* const file = files_.find(id)) {
      file_bytes_ -= static_cast<uint64_t>(file->bytes);
    }
    files_.erase(id);
    batches_.erase(id);
  }
}

void Books::change(CatalogChange change, std::function<void()> then) {
  apply(change);
  ++changes_;
  disk_->run(
      [this, change = std::move(change), then = std::move(then), alive = std::weak_ptr(alive_)] {
        if (failed_) {
          return;
        }
        const Status written = catalog_->commit(change);
        failed_ = !written;
        loop_.post([this, then, written, alive] {
          if (alive.expired()) {
            return;
          }
          if (written) {
            stored(then);
          } else if (const auto broken = std::exchange(broken_, nullptr)) {
            broken(written.error().message);
          }
        });
      });
}

void Books::stored(const std::function<void()>& then) {
  ++changes_stored_;
  if (then) {
    then();
  }
  while (!waiting_.empty() && waiting_.front().first <= changes_stored_) {
    const auto next = std::move(waiting_.front().second);
    waiting_.pop_front();
    next();
  }
}

void Books::when_stored(std::function<void()> then) {
  if (changes_ == changes_stored_) {
    then();
  } else {
    waiting_.emplace_back(changes_, std::move(then));
  }
}

void Books::run(std::function<Then(FileStore&)> work) {
  disk_->run([this, work = std::move(work), alive = std::weak_ptr(alive_)] {
    if (failed_) {
      return;
    }
    Then then = work(store_);
    if (then) {
      loop_.post([then = std::move(then), alive] {
        if (!alive.expired()) {
          then();
        }
      });
    }
  });
}

}  // namespace pdjob::batch
