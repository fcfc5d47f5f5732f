#include "router/async/async_api.h"

#include <utility>

#include "common/limits.h"
#include "common/log.h"
#include "openai/headers.h"
#include "openai/reply_error.h"
#include "router/async/async_body.h"
#include "router/async/async_sink.h"

namespace pdjob::router {
namespace {

constexpr std::string_view kSubmitted = "/v1/async/";
constexpr std::string_view kKnown = "/pdjob/requests/";
constexpr std::string_view kCallback = openai::header::kCallback;
constexpr Duration kExpiryInterval = std::chrono::minutes(1);

// The ids cannot be guessed.
std::string make_id(net::Loop& loop) {
  return "areq-" + TransferId{loop.entropy(), loop.entropy()}.to_string();
}

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

AsyncAnswer unknown_tenant() {
  const openai::ApiError error =
      openai::invalid_request("Its tenant is not known here any more", "", "invalid_api_key", 401);
  return {error.status, openai::error_body(error)};
}

const char* wait_of(std::optional<AsyncRequests::State> state) {
  return state == AsyncRequests::State::kRunning ? "in_progress" : "queued";
}

}  // namespace

Result<std::unique_ptr<AsyncApi>> AsyncApi::open(net::Loop& loop, net::HttpServer& server,
                                                 RelayApi& relay, const RouterConfig& config,
                                                 std::unique_ptr<net::OutboundClient> client) {
  PDJOB_TRY(auto database, AsyncDatabase::open(config.async.file));
  PDJOB_TRY(const std::vector<AsyncRow> waiting, database->all_unanswered());
  PDJOB_TRY(const std::vector<PendingCallback> to_be_called, database->pending_callbacks());
  std::unique_ptr<AsyncApi> api(new AsyncApi(loop, server, relay, config, std::move(database)));
  PDJOB_TRY(api->caller_,
            AsyncCaller::open(loop, api->store_, relay.metrics(), config.async, std::move(client)));
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

AsyncApi::AsyncApi(net::Loop& loop, net::HttpServer& server, RelayApi& relay,
                   const RouterConfig& config, std::unique_ptr<AsyncDatabase> database)
    : loop_(loop),
      server_(server),
      relay_(relay),
      config_(config.async),
      requests_(config.async, several_tenants(config)),
      store_(loop, std::move(database)) {}

AsyncApi::~AsyncApi() {
  loop_.cancel(expiry_);
  loop_.cancel(next_try_);
}

std::vector<std::string_view> AsyncApi::methods(std::string_view path) {
  if (path == "/v1/async/completions" || path == "/v1/async/chat/completions") {
    return {"POST"};
  }
  return path.starts_with(kKnown) ? std::vector<std::string_view>{"GET", "DELETE"}
                                  : std::vector<std::string_view>{};
}

bool AsyncApi::takes_body(const net::HttpRequest& request) {
  return request.method == "POST" && methods(request.path) == std::vector<std::string_view>{"POST"};
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
  requests_.drain();
  caller_->drain();
}

void AsyncApi::refuse(net::ExchangeId client, const openai::ApiError& error) {
  openai::reply_error(server_, client, error);
}

void AsyncApi::deny(net::ExchangeId client, const net::EarlyReply& denial) {
  server_.reply(client, denial.status, "application/json", denial.body, denial.headers);
}

std::optional<std::string> AsyncApi::tenant_of(net::ExchangeId client,
                                               const net::HttpRequest& request) {
  const Admission& admission = relay_.reception().admission();
  const auto known = admission.identify(request.header("authorization"));
  if (const auto* denial = std::get_if<Admission::Denial>(&known)) {
    deny(client, relay_.reception().denied(*denial));
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
  AsyncRow row{.id = make_id(loop_),
               .tenant = *tenant,
               .path = path_of(request.path),
               .body = request.body,
               .created_at = loop_.unix_seconds(),
               .callback = std::string(request.header(kCallback))};
  const auto body = RequestBody::scan(std::move(request.body));
  if (!body) {
    refuse(client, body.error());
    return;
  }
  if (body->stream()) {
    refuse(client, openai::invalid_request("Nobody is there to be streamed to", "stream"));
    return;
  }
  if (const auto unknown = relay_.core().refusal_of_model(body->model())) {
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
  if (!requests_.submit(row.id, row.tenant, outside())) {
    openai::reply_error(server_, client,
                        {.status = 503,
                         .type = "overloaded_error",
                         .message = "Too many requests wait for their answers"},
                        {{"Retry-After", "1"}});
    return;
  }
  Reception& reception = relay_.reception();
  if (const auto denial = reception.charge(reception.tenant_of(request), body->tokens())) {
    requests_.end(row.id);
    deny(client, *denial);
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
  const int64_t ended_since = oldest_kept(loop_, config_.ttl);
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
    if (const auto running = running_.extract(id); !running.empty()) {
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

AsyncRequests::Outside AsyncApi::outside() const {
  return {.usable = relay_.core().usable(),
          .store_full = store_.full(),
          .serves = [this](const std::string& model) { return !relay_.core().would_wait(model); }};
}

void AsyncApi::start_all() {
  const AsyncRequests::Outside around = outside();
  while (const std::optional<std::string> id = requests_.start_next(around)) {
    store_.run([this, id = *id](AsyncDatabase& database) {
      auto row = database.unanswered(id);
      return [this, id, row = row ? std::move(*row) : std::nullopt] { start(id, row); };
    });
  }
  loop_.cancel(next_try_);
  if (const Instant then = requests_.next_try(around, loop_.now()); then != kNever) {
    next_try_ = loop_.call_at(then, [this] { start_all(); });
  }
}

void AsyncApi::start(const std::string& id, const std::optional<AsyncRow>& row) {
  std::optional<Admission::Tenant> tenant;
  std::optional<RequestBody> body;
  std::optional<AsyncRequests::Stored> stored;
  if (row) {
    tenant = relay_.reception().admission().find(row->tenant);
    if (auto scanned = RequestBody::scan(row->body)) {
      body = *std::move(scanned);
    }
    stored = {.valid = tenant && body, .model = body ? body->model() : ""};
  }
  switch (requests_.decide(id, stored, outside())) {
    case AsyncRequests::Verdict::kRun:
      return run(*row, *tenant, std::move(*body));
    case AsyncRequests::Verdict::kRefuse:
      return end(*row, unknown_tenant());
    case AsyncRequests::Verdict::kHeld:
    case AsyncRequests::Verdict::kDropped:
      return start_all();
  }
}

void AsyncApi::run(const AsyncRow& row, Admission::Tenant tenant, RequestBody body) {
  const RequestId request_id = relay_.next_id();
  running_[row.id] = request_id;
  net::HttpRequest request{
      .method = "POST",
      .path = row.path,
      .headers = {{"Content-Type", "application/json"}, {openai::header::kRequestId, row.id}}};
  relay_.route_admitted(
      request_id, tenant, request, std::move(body),
      std::make_unique<AsyncSink>(
          limits::kAsyncReplyBytesMax,
          [this, ended = AsyncRow{.id = row.id, .tenant = row.tenant, .callback = row.callback}](
              AsyncAnswer answer) {
            running_.erase(ended.id);
            end(ended, std::move(answer));
          }));
}

void AsyncApi::end(const AsyncRow& row, AsyncAnswer answer) {
  const size_t bytes = answer.body.size();
  PendingCallback callback{.id = row.id, .url = row.callback, .tenant = row.tenant};
  const auto store = [this, callback = std::move(callback), answer = std::move(answer),
                      ended_at = loop_.unix_seconds(), results_max = config_.results_max](
                         AsyncDatabase& database) -> AsyncStore::Then {
    const Status stored = database.answer(callback.id, answer, ended_at, results_max);
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
  const int64_t ended_since = oldest_kept(loop_, config_.ttl);
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
