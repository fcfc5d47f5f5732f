#include "router/members/members_watch.h"

#include <utility>

#include "common/json/json_writer.h"
#include "common/limits.h"
#include "net/http/http_client.h"
#include "openai/openai_reply.h"
#include "openai/reply_error.h"

namespace pdjob::router {
namespace {

std::string url_of(const net::WorkerEntry& member) {
  return "http://" + net::HttpAddress{member.host, member.port}.to_string();
}

std::string json_of(const Members& members, uint64_t version) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().key("version").integer(version);
  json.key("routers").begin_array();
  for (const net::WorkerEntry& router : members.routers) {
    json.begin_object().key("name").string(router.name);
    json.key("url").string(url_of(router)).end_object();
  }
  json.end_array().key("workers").begin_array();
  for (const net::WorkerEntry& worker : members.workers) {
    json.begin_object().key("name").string(worker.name);
    json.key("role").string(net::to_string(worker.role));
    json.key("url").string(url_of(worker));
    json.key("model").string(worker.model).end_object();
  }
  json.end_array().end_object();
  return text;
}

// The event's id is the version, so a client notices if it missed some.
std::string event_of(const std::string& json, uint64_t version) {
  return "id: " + std::to_string(version) + "\nevent: members\ndata: " + json + "\n\n";
}

}  // namespace

MembersWatch::MembersWatch(net::Loop& loop, net::HttpServer& server)
    : loop_(loop), server_(server), json_(json_of(members_, version_)) {
  timer_ = loop_.call_at(loop_.now() + kPingInterval, [this] { ping(); });
}

void MembersWatch::reply(net::ExchangeId id, const net::HttpRequest& request) {
  if (request.header("accept").find("text/event-stream") == std::string_view::npos) {
    server_.reply(id, 200, "application/json", json_);
  } else {
    subscribe(id, request.is_head);
  }
}

void MembersWatch::subscribe(net::ExchangeId id, bool head_only) {
  if (closed_ || subscribers_.size() == kSubscribersMax) {
    const openai::ApiError error = openai::to_api_error(
        {ErrorCode::kOverloaded,
         closed_ ? "this router is shutting down" : "too many clients subscribe to members"});
    openai::reply_error(server_, id, error, {{"Retry-After", "1"}});
    return;
  }
  server_.begin(id, 200, openai::kEventStream,
                {{"Cache-Control", "no-store"}, openai::kUnbuffered});
  if (head_only) {
    return server_.end(id);
  }
  subscribers_.insert(id);
  server_.write(id, event_of(json_, version_));
}

void MembersWatch::publish(Members members) {
  if (members == members_) {
    return;
  }
  members_ = std::move(members);
  json_ = json_of(members_, ++version_);
  tell_all(event_of(json_, version_));
}

// Cuts off a subscriber that does not read. It gets the whole list when it reconnects.
void MembersWatch::tell_all(const std::string& text) {
  std::erase_if(subscribers_, [&](net::ExchangeId id) {
    const bool stuck = server_.bytes_queued(id) > limits::kHttpSendQueueBytesMax;
    stuck ? server_.abort(id) : server_.write(id, text);
    return stuck;
  });
}

void MembersWatch::ping() {
  tell_all(": ping\n\n");
  timer_ = loop_.call_at(loop_.now() + kPingInterval, [this] { ping(); });
}

void MembersWatch::close() {
  closed_ = true;
  for (const net::ExchangeId id : std::exchange(subscribers_, {})) {
    server_.end(id);
  }
}

}  // namespace pdjob::router
