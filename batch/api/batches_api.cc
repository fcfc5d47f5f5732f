#include "batch/api/batches_api.h"

#include <utility>
#include <vector>

#include "batch/api/api_words.h"
#include "batch/api/batch_request.h"
#include "batch/catalog/surplus_batches.h"
#include "common/log.h"
#include "openai/reply_error.h"

namespace pdjob::batch {
namespace {

constexpr ListLimits kListLimits{.usual = 20, .max = 100};

}  // namespace

void BatchesApi::refuse(net::ExchangeId client, const openai::ApiError& error) {
  std::vector<std::pair<std::string, std::string>> headers;
  if (error.status == 503 || error.status == 429) {
    headers.emplace_back("Retry-After", "5");
  }
  openai::reply_error(server_, client, error, headers);
}

Result<Done, openai::ApiError> BatchesApi::may_make_batch(const std::string& tenant) const {
  const auto making = making_.find(tenant);
  size_t alive = making == making_.end() ? 0 : making->second;
  books_.batches().for_each_of(tenant,
                               [&](const BatchRecord& batch) { alive += batch.ended() ? 0 : 1; });
  if (alive < config_.batches_max) {
    return ok();
  }
  return openai::ApiError{
      .status = 429,
      .type = "rate_limit_error",
      .message = std::to_string(config_.batches_max) + " batches have not ended yet",
      .code = "batch_limit_exceeded"};
}

void BatchesApi::create(net::ExchangeId client, const std::string& tenant, std::string body) {
  const auto request = parse_batch_request(std::move(body), config_.window_max);
  if (!request) {
    return refuse(client, request.error());
  }
  const FileRecord* const input = books_.files().find(request->input_file_id, tenant);
  if (input == nullptr) {
    openai::ApiError error = no_such_file(request->input_file_id);
    error.param = "input_file_id";
    return refuse(client, error);
  }
  if (input->purpose != "batch") {
    return refuse(client, openai::invalid_request("Its purpose is not 'batch'", "input_file_id",
                                                  "invalid_value"));
  }
  if (const auto allowed = may_make_batch(tenant); !allowed) {
    return refuse(client, allowed.error());
  }
  const int64_t now = loop_.unix_seconds();
  const int64_t keep = std::chrono::duration_cast<std::chrono::seconds>(config_.keep).count();
  const BatchRecord batch{.number = books_.next_number(),
                          .id = books_.new_id("batch_"),
                          .tenant = tenant,
                          .endpoint = request->endpoint,
                          .input_file_id = request->input_file_id,
                          .completion_window = request->completion_window,
                          .metadata = request->metadata,
                          .output_lifetime = request->output_lifetime.value_or(keep),
                          .created_at = now,
                          .expires_at = now + request->window_seconds};
  ++making_[tenant];
  books_.run([this, client, batch](FileStore& store) -> Books::Then {
    const Status made = store.make_batch(batch.id, batch.input_file_id);
    return [this, client, batch, made] { begin(client, batch, made); };
  });
}

void BatchesApi::begin(net::ExchangeId client, const BatchRecord& batch, const Status& made) {
  if (const auto making = making_.find(batch.tenant); --making->second == 0) {
    making_.erase(making);
  }
  if (!made) {
    log::error("a batch cannot be made: " + made.error().message);
    books_.run([id = batch.id](FileStore& store) -> Books::Then {
      store.remove_batch(id);
      return {};
    });
    return refuse(client, overloaded("The batch cannot be made now"));
  }
  CatalogChange change{.files = {}, .batches = {batch}, .erased = {}};
  change.erased = surplus_batches(books_.batches(), batch, {});
  books_.change(std::move(change), [this, client, batch] {
    lives_.add(batch);
    reply(client, batch.id);
  });
}

void BatchesApi::reply(net::ExchangeId client, const std::string& id) {
  const BatchRecord* const batch = books_.batches().find(id);
  batch == nullptr
      ? refuse(client, no_such_batch(id))
      : server_.reply(client, 200, "application/json", batch_object(lives_.seen(*batch)));
}

void BatchesApi::list(net::ExchangeId client, const std::string& tenant, std::string_view query) {
  const auto wanted = parse_list_query(query, kListLimits);
  if (!wanted) {
    return refuse(client, wanted.error());
  }
  const BatchRecord* after = nullptr;
  if (!wanted->after.empty()) {
    after = books_.batches().find(wanted->after, tenant);
    if (after == nullptr) {
      return refuse(client, no_such_batch(wanted->after));
    }
  }
  const auto page = books_.batches().page(tenant, after, wanted->limit, ListOrder::kNewestFirst,
                                          [](const BatchRecord& /*batch*/) { return true; });
  std::vector<ListItem> items;
  for (const BatchRecord& batch : page.records) {
    items.push_back({batch.id, batch_object(lives_.seen(batch))});
  }
  books_.when_stored([this, client, object = list_object(items, page.has_more)] {
    server_.reply(client, 200, "application/json", object);
  });
}

void BatchesApi::tell(net::ExchangeId client, const std::string& tenant, const std::string& id) {
  const BatchRecord* const batch = books_.batches().find(id, tenant);
  if (batch == nullptr) {
    return refuse(client, no_such_batch(id));
  }
  books_.when_stored([this, client, object = batch_object(lives_.seen(*batch))] {
    server_.reply(client, 200, "application/json", object);
  });
}

void BatchesApi::cancel(net::ExchangeId client, const std::string& tenant, const std::string& id) {
  const BatchRecord* const found = books_.batches().find(id, tenant);
  if (found == nullptr) {
    return refuse(client, no_such_batch(id));
  }
  if (found->cancelling_at != 0 && !found->ended()) {
    return tell(client, tenant, id);
  }
  if (!can_cancel(*found)) {
    return refuse(client,
                  openai::invalid_request(std::string("Cannot cancel a batch with status '") +
                                              to_string(found->state) + "'.",
                                          "", "", 409));
  }
  lives_.cancel(id, [this, client, id] { reply(client, id); });
}

}  // namespace pdjob::batch
