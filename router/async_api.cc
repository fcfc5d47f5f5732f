#include "router/async_api.h"

#include <utility>

#include "common/limits.h"
#include "common/log.h"
#include "common/random.h"
#include "common/real_clock.h"
#include "net/json_edit.h"
#include "net/json_writer.h"
#include "net/reply_error.h"

namespace pdjob::router {
namespace {

constexpr std::string_view kSubmitted = "/v1/async/";
constexpr std::string_view kKnown = "/pdjob/requests/";
constexpr Duration kPatience = std::chrono::milliseconds(100);
constexpr Duration kExpiryInterval = std::chrono::minutes(1);
// No server gives such a number to a connection's request: what is written to it goes nowhere.
constexpr uint64_t kNobody = uint64_t{1} << 63;

// Nobody can guess one.
std::string make_id() { return "areq-" + TransferId{entropy(), entropy()}.to_string(); }

std::string path_of(std::string_view submitted) {
  return "/v1/" + std::string(submitted.substr(kSubmitted.size()));
}

net::ApiError unknown_request() {
  return net::invalid_request("No request of that id is known here", "", "not_found", 404);
}

net::ApiError store_failed(const Error& error) {
  return {.status = 500, .type = "server_error", .message = "The store failed: " + error.message};
}

void append_head(net::JsonWriter& json, std::string_view id, std::string_view status) {
  json.begin_object();
  json.key("id").string(id);
  json.key("object").string("pdjob.request");
  json.key("status").string(status);
}

std::string body_of(const std::string& id, const AsyncFound& found, std::string_view status) {
  std::string body;
  net::JsonWriter json(body);
  append_head(json, id, status);
  json.key("created_at").integer(found.created_at);
  if (found.answer) {
    json.key("response").begin_object();
    json.key("status_code").integer(found.answer->status);
    if (net::json_members(found.answer->body)) {
      json.key("body").raw(found.answer->body);
    } else {
      json.key("body").string(found.answer->body);
    }
    json.end_object();
  }
  json.end_object();
  return body;
}

const char* status_of(const AsyncFound& found, std::optional<AsyncRequests::State> state) {
  if (found.answer) {
    return found.answer->status == 200 ? "completed" : "failed";
  }
  return state == AsyncRequests::State::kRunning ? "in_progress" : "queued";
}

AsyncAnswer answer_of(std::optional<CapturedReply> reply) {
  if (reply) {
    return {reply->status, std::move(reply->body)};
  }
  const net::ApiError error{
      .status = 502, .type = "server_error", .message = "The answer broke off, or was too long"};
  return {error.status, net::error_body(error)};
}

}  // namespace

Result<std::unique_ptr<AsyncApi>> AsyncApi::open(net::EventLoop& loop, net::HttpServer& server,
                                                 RelayApi& relay, const RouterConfig& config) {
  PDJOB_TRY(auto database, AsyncDatabase::open(config.async.file));
  PDJOB_TRY(const std::vector<AsyncRow> waiting, database->all_unanswered());
  std::unique_ptr<AsyncApi> api(new AsyncApi(loop, server, relay, config, std::move(database)));
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
      requests_(config.async),
      store_(loop, std::move(database)) {}

AsyncApi::~AsyncApi() {
  loop_.cancel(expiry_);
  loop_.cancel(patience_);
}

bool AsyncApi::route(net::ExchangeId client, net::HttpRequest& request) {
  if (request.method == "POST" &&
      (request.path == "/v1/async/completions" || request.path == "/v1/async/chat/completions")) {
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

void AsyncApi::refuse(net::ExchangeId client, const net::ApiError& error) {
  net::reply_error(server_, client, error);
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

int64_t AsyncApi::oldest_kept() const {
  return unix_seconds() - std::chrono::duration_cast<std::chrono::seconds>(config_.ttl).count();
}

// --- what clients ask

void AsyncApi::submit(net::ExchangeId client, net::HttpRequest& request) {
  const auto tenant = tenant_of(client, request);
  if (!tenant) {
    return;
  }
  AsyncRow row{.id = make_id(),
               .tenant = *tenant,
               .path = path_of(request.path),
               .body = request.body,
               .created_at = unix_seconds()};
  const auto body = RequestBody::scan(std::move(request.body));
  if (const auto* error = std::get_if<net::ApiError>(&body)) {
    refuse(client, *error);
    return;
  }
  const auto& scanned = std::get<RequestBody>(body);
  if (scanned.stream()) {
    refuse(client, net::invalid_request("Nobody is there to be streamed to", "stream"));
    return;
  }
  if (row.body.size() > limits::kAsyncBodyBytesMax) {
    refuse(client, net::invalid_request("The body is too large to be stored", "", "", 413));
    return;
  }
  if (!relay_.admit_once(client, request.header("authorization"), scanned)) {
    return;
  }
  if (draining_ || !requests_.submit(row.id, row.tenant)) {
    net::reply_error(server_, client,
                     {.status = 503,
                      .type = "overloaded_error",
                      .message = "Too many requests wait for their answers"},
                     {{"Retry-After", "1"}});
    return;
  }
  store_.run([this, client, row = std::move(row)](AsyncDatabase& database) {
    const Status inserted = database.insert(row);
    return [this, client, id = row.id, tenant = row.tenant, created_at = row.created_at, inserted] {
      if (!inserted) {
        requests_.end(id);
        refuse(client, store_failed(inserted.error()));
        return;
      }
      requests_.enqueue(id, tenant);
      server_.reply(client, 202, "application/json",
                    body_of(id, {.created_at = created_at}, "queued"));
      start_all();
    };
  });
}

void AsyncApi::tell(net::ExchangeId client, const net::HttpRequest& request) {
  const auto tenant = tenant_of(client, request);
  if (!tenant) {
    return;
  }
  const int64_t ended_since = oldest_kept();
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
                      body_of(id, **found, status_of(**found, requests_.state(id, tenant))));
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
  if (requests_.state(id, *tenant)) {
    requests_.end(id);
    if (const auto running = exchanges_.extract(id); !running.empty()) {
      relay_.client_left(running.mapped());
    }
    start_all();
  }
  store_.run([this, client, id, tenant = *tenant](AsyncDatabase& database) {
    const auto erased = database.erase(id, tenant);
    return [this, client, id, erased] {
      if (!erased) {
        refuse(client, store_failed(erased.error()));
      } else if (!*erased) {
        refuse(client, unknown_request());
      } else {
        std::string body;
        net::JsonWriter json(body);
        append_head(json, id, "cancelled");
        json.key("deleted").boolean(true).end_object();
        server_.reply(client, 200, "application/json", body);
      }
    };
  });
}

// --- what runs

void AsyncApi::start_all() {
  loop_.cancel(patience_);
  if (requests_.alive() > 0 && !relay_.core().usable()) {
    patience_ = loop_.call_at(loop_.now() + kPatience, [this] { start_all(); });
    return;
  }
  while (!draining_) {
    const std::optional<std::string> id = requests_.start_next();
    if (!id) {
      return;
    }
    store_.run([this, id = *id](AsyncDatabase& database) {
      auto row = database.unanswered(id);
      return [this, id, row = std::move(row)] {
        if (row && *row && requests_.tenant_of(id) != nullptr) {
          start(**row);
        } else {
          requests_.end(id);  // It was cancelled, or cannot be read; that the next router may try.
          start_all();
        }
      };
    });
  }
}

void AsyncApi::start(const AsyncRow& row) {
  const auto tenant = relay_.admission().find(row.tenant);
  auto body = RequestBody::scan(row.body);
  if (!tenant || std::holds_alternative<net::ApiError>(body)) {
    const net::ApiError error =
        net::invalid_request("Its tenant is not known here any more", "", "invalid_api_key", 401);
    end(row.id, {error.status, net::error_body(error)});
    return;
  }
  const net::ExchangeId exchange{kNobody | ++started_};
  exchanges_[row.id] = exchange;
  net::HttpRequest request{
      .method = "POST",
      .path = row.path,
      .headers = {{"Content-Type", "application/json"}, {"x-request-id", row.id}}};
  auto& scanned = std::get<RequestBody>(body);
  relay_.route_admitted(
      exchange, *tenant, request, std::move(scanned),
      std::make_unique<ReplyCapture>(limits::kAsyncReplyBytesMax,
                                     [this, id = row.id](std::optional<CapturedReply> reply) {
                                       // Else it was cancelled.
                                       if (exchanges_.erase(id) > 0) {
                                         end(id, answer_of(std::move(reply)));
                                       }
                                     }));
}

void AsyncApi::end(const std::string& id, AsyncAnswer answer) {
  store_.run([id, answer = std::move(answer),
              results_max = config_.results_max](AsyncDatabase& database) -> AsyncStore::Then {
    const Status stored = database.answer(id, answer, unix_seconds(), results_max);
    if (stored) {
      return {};
    }
    return [id, stored] {
      log::error(
          "the answer of " + id +
          " could not be stored, so the next router runs it again: " + stored.error().message);
    };
  });
  requests_.end(id);
  start_all();
}

void AsyncApi::expire() {
  const int64_t ended_since = oldest_kept();
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
