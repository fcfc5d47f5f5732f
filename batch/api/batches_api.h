// BatchesApi: /v1/batches. Loop-bound.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "batch/api/live_batches.h"
#include "batch/catalog/books.h"
#include "batch/config/batch_api_config.h"
#include "common/result.h"
#include "net/http/http_server.h"
#include "net/loop/loop.h"
#include "openai/openai.h"

namespace pdjob::batch {

class BatchesApi {
 public:
  // All must outlive it.
  BatchesApi(net::Loop& loop, net::HttpServer& server, Books& books, LiveBatches& lives,
             const BatchApiConfig& config)
      : loop_(loop), server_(server), books_(books), lives_(lives), config_(config) {}

  void create(net::ExchangeId client, const std::string& tenant, std::string body);
  void list(net::ExchangeId client, const std::string& tenant, std::string_view query);
  void tell(net::ExchangeId client, const std::string& tenant, const std::string& id);
  void cancel(net::ExchangeId client, const std::string& tenant, const std::string& id);

 private:
  void refuse(net::ExchangeId client, const openai::ApiError& error);
  Result<Done, openai::ApiError> may_make_batch(const std::string& tenant) const;
  void begin(net::ExchangeId client, const BatchRecord& batch, const Status& made);
  void reply(net::ExchangeId client, const std::string& id);

  net::Loop& loop_;
  net::HttpServer& server_;
  Books& books_;
  LiveBatches& lives_;
  const BatchApiConfig& config_;
  std::map<std::string, size_t> making_;  // Batches whose folders are being made, by tenant.
};

}  // namespace pdjob::batch
