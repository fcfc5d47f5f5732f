// FilesApi: /v1/files. Uploads and contents pass in pieces: a slow disk pauses the client, and a
// slow client pauses the disk. Loop-bound.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "batch/api/checked_time.h"
#include "batch/api/upload_form.h"
#include "batch/catalog/books.h"
#include "batch/config/batch_api_config.h"
#include "common/result.h"
#include "net/http/http_server.h"
#include "net/loop/loop.h"

namespace pdjob::batch {

class FilesApi {
 public:
  // All must outlive it.
  FilesApi(net::Loop& loop, net::HttpServer& server, Books& books, const BatchApiConfig& config)
      : loop_(loop), server_(server), books_(books), config_(config) {}
  ~FilesApi() { loop_.cancel(expiry_); }
  FilesApi(const FilesApi&) = delete;
  FilesApi& operator=(const FilesApi&) = delete;

  // Begins to delete what expires.
  void start() { expire(); }

  // Requires: the body streams, or there is none.
  void upload(net::ExchangeId client, const std::string& tenant, const net::HttpRequest& request);
  void on_body(net::ExchangeId client, std::string_view bytes, net::BodyPart part);
  void list(net::ExchangeId client, const std::string& tenant, std::string_view query);
  void tell(net::ExchangeId client, const std::string& tenant, const std::string& id);
  void content(net::ExchangeId client, const std::string& tenant, const std::string& id,
               bool head_only);
  void erase(net::ExchangeId client, const std::string& tenant, const std::string& id);

  void client_gone(net::ExchangeId client);
  void client_writable(net::ExchangeId client);

  // Nothing more may be stored: of anybody, or of a tenant.
  bool disk_full() const;
  bool disk_full_for(const std::string& tenant) const;
  // The tenants whose batches may store nothing more.
  std::set<std::string> full_tenants() const;
  size_t uploads() const { return uploads_.size(); }
  size_t downloads() const { return downloads_.size(); }
  // The bytes in the folders of batches, as of about a second ago.
  uint64_t batch_bytes() const { return batch_bytes_; }

 private:
  struct Upload {
    std::string id;
    std::string tenant;
    std::unique_ptr<UploadForm> form;
    size_t unwritten = 0;  // Bytes on their way to the disk.
    uint64_t counted = 0;  // In books_.count_upload().
    bool paused = false;
    bool whole = false;  // All bytes have come; its end is on its way to the disk.
  };
  struct Download {
    std::string id;
    std::string tenant;
    uint64_t at = 0;
    uint64_t left = 0;
    bool reading = false;
  };

  void refuse(net::ExchangeId client, const openai::ApiError& error);
  void answer(net::ExchangeId client, std::string object);
  void refuse_upload(net::ExchangeId client, const openai::ApiError& error);
  Result<Done, openai::ApiError> may_upload(const std::string& tenant) const;
  void drop(net::ExchangeId client);
  void write(net::ExchangeId client, std::string_view bytes);
  void written(net::ExchangeId client, size_t bytes, const Status& status);
  void finish(net::ExchangeId client);
  void finished(net::ExchangeId client, const FileRecord& file);
  void read_on(net::ExchangeId client);
  void expire();
  void look_at_disk();
  void seen(const std::map<std::string, uint64_t>& batch_bytes, uint64_t free_bytes);
  Result<Done, openai::ApiError> may_store(const std::string& tenant) const;

  net::Loop& loop_;
  net::HttpServer& server_;
  Books& books_;
  const BatchApiConfig& config_;
  std::map<net::ExchangeId, Upload> uploads_;
  std::map<net::ExchangeId, Download> downloads_;
  // As of the last look at the disk.
  uint64_t batch_bytes_ = 0;
  std::map<std::string, uint64_t> batch_bytes_of_;  // By tenant.
  uint64_t free_bytes_ = std::numeric_limits<uint64_t>::max();
  CheckedTime time_{std::chrono::hours(1)};  // Decides what has expired.
  net::TimerId expiry_;
};

}  // namespace pdjob::batch
