#include "router/async/async_api.h"

#include <utility>

#include "common/limits.h"
#include "common/log.h"
#include "common/os/real_clock.h"
#include "common/random.h"
#include "openai/headers.h"
#include "openai/reply_error.h"
#include "router/async/async_body.h"

namespace pdjob::router {
namespace {

constexpr std::string_view kSubmitted = "/v1/async/";
constexpr std::string_view kKnown = "/pdjob/requests/";
constexpr std::string_view kCallback = openai::header::kCallback;
constexpr Duration kPatience = std::chrono::milliseconds(100);
constexpr Duration kExpiryInterval = std::chrono::minutes(1);
// No HTTP server uses this number for a connection's request, so writes to it are dropped.
constexpr uint64_t kNobody = uint64_t{1} << 63;

// The ids cannot be guessed.
std::string make_id() { return "areq-" + TransferId{entropy(), entropy()}.to_string(); }

std::string path_of(std::string_view submitted) {
  return "/v1/" + std::string(submitted.substr(kSubmitted.size()));
}

openai::ApiError unknown_request() {
  return openai::invalid_request("No request of that id is known here", "", "not_found", 404);
}

openai::ApiError store_failed(const Error& error) {
  return {.status = 500, .type = "server_error", .message = "The store failed: " + error.message};
}

// The launcher is a tenant too, but submits nothing.
bool several_tenants(const RouterConfig& config) {
  const auto submits = [](const TenantConfig& tenant) { return tenant.name != kProbeTenant; };
  return std::ranges::count_if(config.tenants, submits) > 1;
}

const char* wait_of(std::optional<AsyncRequests::State> state) {
  return state == AsyncRequests::State::kRunning ? "in_progress" : "queued";
}

AsyncAnswer answer_of(std::optional<CapturedReply> reply) {
  if (reply) {
    return {reply->status, std::move(reply->body)};
  }
  const openai::ApiError error{
      .status = 502, .type = "server_error", .message = "The answer broke off, or was too long"};
  return {error.status, openai::error_body(error)};
}

}  // namespace

Result<std::unique_ptr<AsyncApi>> AsyncApi::open(net::EventLoop& loop, net::HttpServer& server,
                                                 RelayApi& relay, const RouterConfig& config) {
  PDJOB_TRY(auto database, AsyncDatabase::open(config.async.file));
  PDJOB_TRY(const std::vector<AsyncRow> waiting, database->all_unanswered());
  PDJOB_TRY(const std::vector<PendingCallback> to_be_called, database->pending_callbacks());
  std::unique_ptr<AsyncApi> api(new AsyncApi(loop, server, relay, config, std::move(database)));
  PDJOB_TRY(api->caller_, AsyncCaller::open(loop, api->store_, relay.metrics(), config.async));
  for (const PendingCallback& callback : to_be_called) {
    api->caller_->add(callback);
  }
  for (const AsyncRow& row : waiting) {
    api->requests_.enqueue(row.id, row.tenant);
  }
  api->expire();
  api->start_all();
  return api;
}

AsyncApi::AsyncApi(net::EventLoop& loop, net::HttpServer& server, RelayApi& relay,
                   const RouterConfig& config, std::unique_ptr<AsyncDatabase> database)
    : loop_(loop),
      server_(server),
      relay_(relay),
      config_(config.async),
      requests_(config.async, several_tenants(config)),
      store_(loop, std::move(database)) {}

AsyncApi::~AsyncApi() {
  loop_.cancel(expiry_);
  loop_.cancel(patience_);
}

bool AsyncApi::takes_body(const net::HttpRequest& request) {
  return request.method == "POST" &&
         (request.path == "/v1/async/completions" || request.path == "/v1/async/chat/completions");
}

bool AsyncApi::route(net::ExchangeId client, net::HttpRequest& request) {
  if (takes_body(request)) {
    submit(client, request);
  } else if (request.method == "GET" && request.path.starts_with(kKnown)) {
    tell(client, request);
  } else if (request.method == "DELETE" && request.path.starts_with(kKnown)) {
    cancel(client, request);
  } else {
    return false;
  }
  return true;
}

void AsyncApi::drain() {
  draining_ = true;
  caller_->drain();
}

void AsyncApi::refuse(net::ExchangeId client, const openai::ApiError& error) {
  openai::reply_error(server_, client, error);
}

std::optional<std::string> AsyncApi::tenant_of(net::ExchangeId client,
                                               const net::HttpRequest& request) {
  const Admission& admission = relay_.admission();
  const auto known = admission.identify(request.header("authorization"));
  if (const auto* denial = std::get_if<Admission::Denial>(&known)) {
    relay_.deny(client, *denial);
    return std::nullopt;
  }
  return admission.open_to_all() ? std::string()
                                 : admission.tenants()[std::get<Admission::Tenant>(known)].name;
}

// --- requests of clients

void AsyncApi::submit(net::ExchangeId client, net::HttpRequest& request) {
  const auto tenant = tenant_of(client, request);
  if (!tenant) {
    return;
  }
  AsyncRow row{.id = make_id(),
               .tenant = *tenant,
               .path = path_of(request.path),
               .body = request.body,
               .created_at = unix_seconds(),
               .callback = std::string(request.header(kCallback))};
  const auto body = RequestBody::scan(std::move(request.body));
  if (const auto* error = std::get_if<openai::ApiError>(&body)) {
    refuse(client, *error);
    return;
  }
  const auto& scanned = std::get<RequestBody>(body);
  if (scanned.stream()) {
    refuse(client, openai::invalid_request("Nobody is there to be streamed to", "stream"));
    return;
  }
  if (const auto unknown = relay_.core().refusal_of_model(scanned.model())) {
    refuse(client, *unknown);
    return;
  }
  if (row.body.size() > limits::kAsyncBodyBytesMax) {
    refuse(client, openai::invalid_request("The body is too large to be stored", "", "", 413));
    return;
  }
  if (!row.callback.empty()) {
    if (const Status allowed = caller_->check(row.callback); !allowed) {
      refuse(client, openai::invalid_request(allowed.error().message, std::string(kCallback)));
      return;
    }
  }
  if (!relay_.admit_once(client, relay_.tenant_of(request), scanned)) {
    return;
  }
  if (draining_ || store_.full() || !requests_.submit(row.id, row.tenant)) {
    openai::reply_error(server_, client,
                        {.status = 503,
                         .type = "overloaded_error",
                         .message = "Too many requests wait for their answers"},
                        {{"Retry-After", "1"}});
    return;
  }
  const size_t bytes = row.body.size();
  const auto insert = [this, client, row = std::move(row)](AsyncDatabase& database) {
    const Status inserted = database.insert(row);
    AsyncFound found{.created_at = row.created_at};
    if (!row.callback.empty()) {
      found.callback = {.url = row.callback};
    }
    return [this, client, id = row.id, tenant = row.tenant, found = std::move(found), inserted] {
      if (!inserted) {
        requests_.end(id);
        refuse(client, store_failed(inserted.error()));
        return;
      }
      requests_.enqueue(id, tenant);
      server_.reply(client, 202, "application/json", async_body(id, found, "queued"));
      start_all();
    };
  };
  store_.run(insert, bytes);
}

void AsyncApi::tell(net::ExchangeId client, const net::HttpRequest& request) {
  const auto tenant = tenant_of(client, request);
  if (!tenant) {
    return;
  }
  const int64_t ended_since = oldest_kept(config_.ttl);
  const std::string id(request.path.substr(kKnown.size()));
  store_.run([this, client, id, tenant = *tenant, ended_since](AsyncDatabase& database) {
    auto found = database.find(id, tenant, ended_since);
    return [this, client, id, tenant, found = std::move(found)] {
      if (!found) {
        refuse(client, store_failed(found.error()));
      } else if (!*found) {
        refuse(client, unknown_request());
      } else {
        server_.reply(client, 200, "application/json",
                      async_body(id, **found, wait_of(requests_.state(id, tenant))));
      }
    };
  });
}

void AsyncApi::cancel(net::ExchangeId client, const net::HttpRequest& request) {
  const auto tenant = tenant_of(client, request);
  if (!tenant) {
    return;
  }
  const std::string id(request.path.substr(kKnown.size()));
  const bool alive = requests_.state(id, *tenant).has_value();
  if (alive) {
    requests_.end(id);
    if (const auto running = exchanges_.extract(id); !running.empty()) {
      relay_.client_left(running.mapped());
    }
    start_all();
  }
  store_.run([this, client, id, alive, tenant = *tenant](AsyncDatabase& database) {
    const auto erased = database.erase(id, tenant);
    return [this, client, id, alive, erased] {
      if (!erased) {
        refuse(client, store_failed(erased.error()));
      } else if (!*erased) {
        refuse(client, unknown_request());
      } else {
        server_.reply(client, 200, "application/json", async_deleted_body(id, alive));
      }
    };
  });
}

// --- running requests

void AsyncApi::start_all() {
  loop_.cancel(patience_);
  const bool nobody = requests_.alive() > 0 && !relay_.core().usable();
  // If the disk is slow, finished requests are stored first.
  const bool full = store_.full();
  if (nobody || full || requests_.holds_some()) {
    patience_ = loop_.call_at(loop_.now() + kPatience, [this] { start_all(); });
  }
  while (!draining_ && !nobody && !full) {
    const std::optional<std::string> id = requests_.start_next(
        [this](const std::string& model) { return !relay_.core().would_wait(model); });
    if (!id) {
      return;
    }
    store_.run([this, id = *id](AsyncDatabase& database) {
      auto row = database.unanswered(id);
      return [this, id, row = std::move(row)] {
        if (draining_) {
          requests_.end(id);  // The next router will run it.
        } else if (row && *row && requests_.tenant_of(id) != nullptr) {
          start(**row);
        } else {
          requests_.end(id);  // It was cancelled, or cannot be read: the next router may retry.
          start_all();
        }
      };
    });
  }
}

void AsyncApi::start(const AsyncRow& row) {
  const auto tenant = relay_.admission().find(row.tenant);
  auto body = RequestBody::scan(row.body);
  if (!tenant || std::holds_alternative<openai::ApiError>(body)) {
    const openai::ApiError error = openai::invalid_request("Its tenant is not known here any more",
                                                           "", "invalid_api_key", 401);
    end(row, {error.status, openai::error_body(error)});
    return;
  }
  auto& scanned = std::get<RequestBody>(body);
  if (relay_.core().would_wait(scanned.model())) {
    requests_.hold(row.id, scanned.model());
    start_all();
    return;
  }
  const net::ExchangeId exchange{kNobody | ++started_};
  exchanges_[row.id] = exchange;
  net::HttpRequest request{
      .method = "POST",
      .path = row.path,
      .headers = {{"Content-Type", "application/json"}, {openai::header::kRequestId, row.id}}};
  relay_.route_admitted(
      exchange, *tenant, request, std::move(scanned),
      std::make_unique<ReplyCapture>(
          limits::kAsyncReplyBytesMax,
          [this, ended = AsyncRow{.id = row.id, .tenant = row.tenant, .callback = row.callback}](
              std::optional<CapturedReply> reply) {
            // If the id is missing, the request was cancelled.
            if (exchanges_.erase(ended.id) > 0) {
              end(ended, answer_of(std::move(reply)));
            }
          }));
}

void AsyncApi::end(const AsyncRow& row, AsyncAnswer answer) {
  const size_t bytes = answer.body.size();
  PendingCallback callback{.id = row.id, .url = row.callback, .tenant = row.tenant};
  const auto store = [this, callback = std::move(callback), answer = std::move(answer),
                      results_max =
                          config_.results_max](AsyncDatabase& database) -> AsyncStore::Then {
    const Status stored = database.answer(callback.id, answer, unix_seconds(), results_max);
    if (!stored) {
      return [id = callback.id, stored] {
        log::error(
            "the answer of " + id +
            " could not be stored, so the next router runs it again: " + stored.error().message);
      };
    }
    if (callback.url.empty()) {
      return {};
    }
    return [this, callback] { caller_->add(callback); };
  };
  store_.run(store, bytes);
  requests_.end(row.id);
  start_all();
}

void AsyncApi::expire() {
  const int64_t ended_since = oldest_kept(config_.ttl);
  store_.run([ended_since](AsyncDatabase& database) -> AsyncStore::Then {
    const Status erased = database.erase_ended_before(ended_since);
    if (erased) {
      return {};
    }
    return [erased] { log::warn("old answers could not be dropped: " + erased.error().message); };
  });
  expiry_ = loop_.call_at(loop_.now() + kExpiryInterval, [this] { expire(); });
}

}  // namespace pdjob::router
