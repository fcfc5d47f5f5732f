#include "batch/api/files_api.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "batch/api/api_words.h"
#include "common/limits.h"
#include "common/log.h"
#include "openai/reply_error.h"

namespace pdjob::batch {
namespace {

constexpr size_t kPieceBytes = 256 * limits::kKiB;
constexpr Duration kExpiryInterval = std::chrono::seconds(1);
constexpr size_t kExpiredAtOnce = 1000;
constexpr ListLimits kFileListLimits{.usual = 10'000, .max = 10'000};

int64_t whole_seconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::seconds>(duration).count();
}

}  // namespace

void FilesApi::refuse(net::ExchangeId client, const openai::ApiError& error) {
  std::vector<std::pair<std::string, std::string>> headers;
  if (error.status == 503) {
    headers.emplace_back("Retry-After", "1");
  }
  openai::reply_error(server_, client, error, headers);
}

// ---- Uploads

Result<Done, openai::ApiError> FilesApi::may_upload(const std::string& tenant) const {
  const auto own = std::ranges::count_if(
      uploads_, [&](const auto& upload) { return upload.second.tenant == tenant; });
  // Slow uploads of a few tenants keep no other one out.
  const bool last_places = uploads_.size() >= limits::kUploadsMax * 3 / 4;
  if (uploads_.size() >= limits::kUploadsMax ||
      static_cast<size_t>(own) >= limits::kUploadsOfTenantMax || (last_places && own > 0)) {
    return overloaded("Too many uploads are under way");
  }
  if (books_.files().count(tenant) + static_cast<size_t>(own) >= config_.files_max) {
    return openai::invalid_request(
        "There are " + std::to_string(config_.files_max) + " files already: delete some", "file",
        "too_many_files");
  }
  return may_store(tenant);
}

bool FilesApi::disk_full() const {
  return books_.file_bytes() + batch_bytes_ > config_.disk_bytes_max ||
         free_bytes_ < config_.disk_free_min;
}

bool FilesApi::disk_full_for(const std::string& tenant) const {
  const auto batches = batch_bytes_of_.find(tenant);
  return config_.tenant_bytes_max > 0 &&
         books_.file_bytes_of(tenant) + (batches == batch_bytes_of_.end() ? 0 : batches->second) >
             config_.tenant_bytes_max;
}

std::set<std::string> FilesApi::full_tenants() const {
  std::set<std::string> full;
  for (const auto& [tenant, bytes] : batch_bytes_of_) {
    if (disk_full_for(tenant)) {
      full.insert(tenant);
    }
  }
  return full;
}

Result<Done, openai::ApiError> FilesApi::may_store(const std::string& tenant) const {
  if (disk_full_for(tenant)) {
    return openai::invalid_request("Your files and answers have more than " +
                                       std::to_string(config_.tenant_bytes_max) +
                                       " bytes: delete some files",
                                   "file", "storage_limit_exceeded");
  }
  if (disk_full()) {
    return overloaded("There is no room for more files now");
  }
  return ok();
}

void FilesApi::upload(net::ExchangeId client, const std::string& tenant,
                      const net::HttpRequest& request) {
  const auto boundary = net::boundary_of(request.header("content-type"));
  if (!boundary) {
    return refuse(client, openai::invalid_request(boundary.error().message));
  }
  if (!request.streams) {
    return refuse(client, openai::invalid_request("the form is empty"));
  }
  if (const auto allowed = may_upload(tenant); !allowed) {
    return refuse(client, allowed.error());
  }
  Upload& upload = uploads_[client];
  upload.id = books_.new_id("file-");
  upload.tenant = tenant;
  upload.form = std::make_unique<UploadForm>(
      *boundary, config_.file_bytes_max,
      [this, client](std::string_view bytes) { write(client, bytes); });
  books_.run([this, client, id = upload.id](FileStore& store) -> Books::Then {
    const Status begun = store.begin(id);
    return [this, client, begun] { written(client, 0, begun); };
  });
}

void FilesApi::on_body(net::ExchangeId client, std::string_view bytes, net::BodyPart part) {
  const auto found = uploads_.find(client);
  if (found == uploads_.end()) {
    return;
  }
  auto taken = found->second.form->feed(bytes);
  if (taken) {
    taken = may_store(found->second.tenant);
  }
  if (taken && part == net::BodyPart::kLast) {
    taken = found->second.form->finish();
    if (taken) {
      return finish(client);
    }
  }
  if (!taken) {
    refuse_upload(client, taken.error());
  }
}

void FilesApi::write(net::ExchangeId client, std::string_view bytes) {
  Upload& upload = uploads_.at(client);
  upload.unwritten += bytes.size();
  upload.counted += bytes.size();
  books_.count_upload(upload.tenant, static_cast<int64_t>(bytes.size()));
  books_.run(
      [this, client, id = upload.id, bytes = std::string(bytes)](FileStore& store) -> Books::Then {
        const Status stored = store.append(id, bytes);
        return [this, client, count = bytes.size(), stored] { written(client, count, stored); };
      });
  if (upload.unwritten > limits::kUploadUnwrittenBytesMax && !upload.paused) {
    upload.paused = true;
    server_.pause_body(client);
  }
}

void FilesApi::written(net::ExchangeId client, size_t bytes, const Status& status) {
  const auto found = uploads_.find(client);
  if (found == uploads_.end()) {
    return;
  }
  Upload& upload = found->second;
  upload.unwritten -= bytes;
  if (!status) {
    log::error("an upload cannot be stored: " + status.error().message);
    refuse_upload(client, overloaded("The file cannot be stored now"));
  } else if (upload.paused && upload.unwritten < limits::kUploadUnwrittenBytesMax / 2) {
    upload.paused = false;
    server_.resume_body(client);
  }
}

void FilesApi::drop(net::ExchangeId client) {
  const auto upload = uploads_.extract(client);
  if (upload.empty()) {
    return;
  }
  books_.count_upload(upload.mapped().tenant, -static_cast<int64_t>(upload.mapped().counted));
  books_.run([id = upload.mapped().id](FileStore& store) -> Books::Then {
    store.discard(id);
    return {};
  });
}

void FilesApi::refuse_upload(net::ExchangeId client, const openai::ApiError& error) {
  drop(client);
  refuse(client, error);
}

void FilesApi::finish(net::ExchangeId client) {
  Upload& upload = uploads_.at(client);
  upload.whole = true;
  const UploadForm& form = *upload.form;
  const int64_t now = loop_.unix_seconds();
  const FileRecord file{.number = books_.next_number(),
                        .id = upload.id,
                        .tenant = upload.tenant,
                        .filename = form.filename(),
                        .purpose = form.purpose(),
                        .bytes = static_cast<int64_t>(form.bytes()),
                        .created_at = now,
                        .expires_at = now + form.lifetime().value_or(whole_seconds(config_.keep))};
  books_.run([this, client, file](FileStore& store) -> Books::Then {
    const Status stored = store.finish(file.id);
    return [this, client, file, stored] {
      stored ? finished(client, file) : written(client, 0, stored);
    };
  });
}

// A client that has left meanwhile finds its file in the list.
void FilesApi::finished(net::ExchangeId client, const FileRecord& file) {
  if (const auto upload = uploads_.extract(client)) {
    books_.count_upload(upload.mapped().tenant, -static_cast<int64_t>(upload.mapped().counted));
  }
  books_.change({.files = {file}, .batches = {}, .erased = {}}, [this, client, file] {
    server_.reply(client, 200, "application/json", file_object(file));
  });
}

// ---- Questions

void FilesApi::list(net::ExchangeId client, const std::string& tenant, std::string_view query) {
  const auto wanted = parse_list_query(query, kFileListLimits);
  if (!wanted) {
    return refuse(client, wanted.error());
  }
  const FileRecord* after = nullptr;
  if (!wanted->after.empty()) {
    after = books_.files().find(wanted->after, tenant);
    if (after == nullptr) {
      return refuse(client, no_such_file(wanted->after));
    }
  }
  const auto page =
      books_.files().page(tenant, after, wanted->limit, wanted->order, [&](const FileRecord& file) {
        return wanted->purpose.empty() || file.purpose == wanted->purpose;
      });
  std::vector<ListItem> items;
  for (const FileRecord& file : page.records) {
    items.push_back({file.id, file_object(file)});
  }
  answer(client, list_object(items, page.has_more));
}

// Once what it says is on disk, and no crash can take it back.
void FilesApi::answer(net::ExchangeId client, std::string object) {
  books_.when_stored([this, client, object = std::move(object)] {
    server_.reply(client, 200, "application/json", object);
  });
}

void FilesApi::tell(net::ExchangeId client, const std::string& tenant, const std::string& id) {
  const FileRecord* const file = books_.files().find(id, tenant);
  if (file == nullptr) {
    return books_.when_stored([this, client, id] { refuse(client, no_such_file(id)); });
  }
  answer(client, file_object(*file));
}

void FilesApi::erase(net::ExchangeId client, const std::string& tenant, const std::string& id) {
  if (books_.files().find(id, tenant) == nullptr) {
    return refuse(client, no_such_file(id));
  }
  books_.change({.files = {}, .batches = {}, .erased = {id}}, [this, client, id] {
    server_.reply(client, 200, "application/json", deleted_object(id));
  });
  books_.run([id](FileStore& store) -> Books::Then {
    store.remove(id);
    return {};
  });
}

// ---- Contents

void FilesApi::content(net::ExchangeId client, const std::string& tenant, const std::string& id,
                       bool head_only) {
  const FileRecord* const file = books_.files().find(id, tenant);
  if (file == nullptr) {
    return refuse(client, no_such_file(id));
  }
  if (head_only) {
    server_.begin(client, 200, "application/octet-stream");
    return server_.end(client);
  }
  const auto own = std::ranges::count_if(
      downloads_, [&](const auto& download) { return download.second.tenant == tenant; });
  if (downloads_.size() >= limits::kDownloadsMax ||
      static_cast<size_t>(own) >= limits::kDownloadsOfTenantMax) {
    return refuse(client, overloaded("Too many files are being fetched"));
  }
  downloads_[client] = {
      .id = id, .tenant = tenant, .at = 0, .left = static_cast<uint64_t>(file->bytes)};
  server_.begin(client, 200, "application/octet-stream");
  read_on(client);
}

void FilesApi::read_on(net::ExchangeId client) {
  const auto found = downloads_.find(client);
  if (found == downloads_.end() || found->second.reading ||
      server_.bytes_queued(client) > limits::kHttpSendQueueBytesMax) {
    return;  // on_writable() comes.
  }
  Download& download = found->second;
  if (download.left == 0) {
    downloads_.erase(found);
    server_.end(client);
    return;
  }
  download.reading = true;
  const auto count = static_cast<size_t>(std::min<uint64_t>(kPieceBytes, download.left));
  books_.run(
      [this, client, id = download.id, at = download.at, count](FileStore& store) -> Books::Then {
        auto piece = store.read(id, at, count);
        return [this, client, count, piece = std::move(piece)] {
          const auto reading = downloads_.find(client);
          if (reading == downloads_.end()) {
            return;
          }
          if (!piece || piece->size() != count) {
            downloads_.erase(reading);
            server_.abort(client);  // It was deleted, or is damaged.
            return;
          }
          reading->second.reading = false;
          reading->second.at += count;
          reading->second.left -= count;
          server_.write(client, *piece);
          read_on(client);
        };
      });
}

void FilesApi::client_writable(net::ExchangeId client) { read_on(client); }

void FilesApi::client_gone(net::ExchangeId client) {
  downloads_.erase(client);
  const auto upload = uploads_.find(client);
  if (upload != uploads_.end() && !upload->second.whole) {
    drop(client);
  }
}

// ---- Expiry

void FilesApi::expire() {
  const int64_t now = time_.see(loop_.unix_seconds(), loop_.now());
  std::vector<std::string> expired = books_.files_expired_by(now, kExpiredAtOnce);
  for (std::string& batch :
       books_.batches_ended_by(now - whole_seconds(config_.keep), kExpiredAtOnce)) {
    expired.push_back(std::move(batch));
  }
  if (!expired.empty()) {
    books_.change({.files = {}, .batches = {}, .erased = expired}, {});
  }
  books_.run([expired](FileStore& store) -> Books::Then {
    for (const std::string& id : expired) {
      store.remove(id);
    }
    return {};
  });
  look_at_disk();
  expiry_ = loop_.call_at(loop_.now() + kExpiryInterval, [this] { expire(); });
}

void FilesApi::look_at_disk() {
  books_.run([this](FileStore& store) -> Books::Then {
    return
        [this, batches = store.batch_bytes(), free = store.free_bytes()] { seen(batches, free); };
  });
}

void FilesApi::seen(const std::map<std::string, uint64_t>& batch_bytes, uint64_t free_bytes) {
  free_bytes_ = free_bytes;
  batch_bytes_ = 0;
  batch_bytes_of_.clear();
  for (const auto& [id, bytes] : batch_bytes) {
    batch_bytes_ += bytes;
    if (const BatchRecord* const batch = books_.batches().find(id)) {
      batch_bytes_of_[batch->tenant] += bytes;
    }
  }
}

}  // namespace pdjob::batch
