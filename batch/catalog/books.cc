#include "batch/catalog/books.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/hex.h"

namespace pdjob::batch {
namespace {

bool is_missing(const std::string& file) {
  std::error_code error;
  const auto size = std::filesystem::file_size(file, error);
  return error == std::errc::no_such_file_or_directory || (!error && size == 0);
}

}  // namespace

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
  const std::string path = dir + "/catalog.sqlite";
  // A new catalog would call all of them unknown, and the sweep below would remove them.
  if (is_missing(path) && store.holds_any()) {
    return Error{ErrorCode::kInvalidArgument,
                 path + " is missing or empty, but " + dir +
                     " has files or batches: put it back, or move the folders `files` and "
                     "`batches` away"};
  }
  PDJOB_TRY(auto catalog, CatalogFile::open(path));
  PDJOB_TRY_STATUS(sync_folder(dir));
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

std::vector<std::string> Books::until(const ByTime& times, int64_t time, size_t most) {
  std::vector<std::string> ids;
  for (const auto& [at, id] : times) {
    if (at > time || ids.size() == most) {
      break;
    }
    ids.push_back(id);
  }
  return ids;
}

std::vector<std::string> Books::files_expired_by(int64_t time, size_t most) const {
  return until(expiries_, time, most);
}

std::vector<std::string> Books::batches_ended_by(int64_t time, size_t most) const {
  return until(ends_, time, most);
}

uint64_t Books::file_bytes_of(const std::string& tenant) const {
  const auto found = file_bytes_of_.find(tenant);
  return found == file_bytes_of_.end() ? 0 : found->second;
}

void Books::count_upload(const std::string& tenant, int64_t bytes) {
  file_bytes_ += static_cast<uint64_t>(bytes);
  uint64_t& own = file_bytes_of_[tenant];
  own += static_cast<uint64_t>(bytes);
  if (own == 0) {
    file_bytes_of_.erase(tenant);
  }
}

void Books::apply(const CatalogChange& change) {
  for (const FileRecord& file : change.files) {
    files_.put(file);
    expiries_.emplace(file.expires_at, file.id);
    count_upload(file.tenant, file.bytes);
  }
  for (const BatchRecord& batch : change.batches) {
    batches_.put(batch);
    if (batch.ended()) {
      ends_.emplace(batch.ended_at, batch.id);
    }
  }
  for (const std::string& id : change.erased) {
    if (const FileRecord* const file = files_.find(id)) {
      count_upload(file->tenant, -file->bytes);
      expiries_.erase({file->expires_at, id});
    }
    if (const BatchRecord* const batch = batches_.find(id)) {
      ends_.erase({batch->ended_at, id});
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
