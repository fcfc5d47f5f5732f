#include "tests/simulation/sim_async_clients.h"

#include <utility>

#include <nlohmann/json.hpp>

namespace pdjob::simulation {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kReplyBytesMax = size_t{1} << 20;

}  // namespace

SimAsyncClients::SimAsyncClients(SimProcess& process, Invariants& invariants, Oracle& oracle,
                                 SimClients::Trace trace, const net::HttpAddress& router)
    : process_(process),
      invariants_(invariants),
      oracle_(oracle),
      trace_(std::move(trace)),
      router_(router),
      client_(net::HttpClient::create(process)) {}

void SimAsyncClients::call(const char* method, const std::string& target, uint32_t tenant,
                           std::string body, Then then) {
  const std::string headers = headers_of(tenant);
  net::fetch(process_, *client_,
             {.to = router_,
              .method = method,
              .target = target,
              .header_lines = headers,
              .body = std::move(body),
              .head_timeout = seconds(5),
              .idle_timeout = seconds(5)},
             kReplyBytesMax, std::move(then));
}

void SimAsyncClients::send(const Ask& ask) {
  trace_("submits " + std::to_string(ask.id.value));
  waiting_[ask.id].ask = ask;
  call("POST", "/v1/async/completions", ask.tenant, body_of(ask),
       [this, id = ask.id](const auto& reply) { submitted(id, reply); });
}

void SimAsyncClients::submitted(RequestId ask, const Result<net::HttpReply>& reply) {
  if (!reply || reply->status != 202) {
    trace_("is refused " + std::to_string(ask.value));
    invariants_.expect(!reply || reply->status == 429 || reply->status >= 500,
                       "a valid request is never called wrong, but asynchronous", ask, "got",
                       reply ? reply->body : "");
    ++counts_.refused;
    done(ask);
    return;
  }
  ++counts_.accepted;
  Waiting& waiting = waiting_.at(ask);
  waiting.id = json::parse(reply->body).at("id").get<std::string>();
  trace_("has " + waiting.id);
  if (waiting.ask.leaves != kNever) {
    process_.call_at(process_.now() + (waiting.ask.leaves - waiting.ask.arrives),
                     [this, ask] { remove(ask); });
    return;
  }
  call("GET", "/pdjob/requests/" + waiting.id, waiting.ask.tenant + 1, "",
       [this](const Result<net::HttpReply>& other) {
         invariants_.expect(!other || other->status == 404 || other->status == 401,
                            "nothing of one tenant reaches another, but", other ? other->body : "");
       });
  look_later(ask);
}

void SimAsyncClients::look_later(RequestId ask) {
  const Waiting& waiting = waiting_.at(ask);
  const Duration pause = waiting.answer.empty() ? milliseconds(100) : seconds(1);
  process_.call_at(process_.now() + pause, [this, ask] { look(ask); });
}

void SimAsyncClients::look(RequestId ask) {
  const Waiting& waiting = waiting_.at(ask);
  call("GET", "/pdjob/requests/" + waiting.id, waiting.ask.tenant, "",
       [this, ask](const Result<net::HttpReply>& reply) {
         if (reply && reply->status < 500) {
           looked(waiting_.at(ask), *reply);
         } else {
           look_later(ask);  // Its router is gone, or just about to go.
         }
       });
}

void SimAsyncClients::looked(Waiting& waiting, const net::HttpReply& reply) {
  const RequestId ask = waiting.ask.id;
  invariants_.expect(reply.status == 200, "an accepted request is never lost, but", waiting.id,
                     "is", reply.status, reply.body);
  if (reply.status != 200) {
    done(ask);
    return;
  }
  const std::string status = json::parse(reply.body).at("status").get<std::string>();
  const bool ended = status == "completed" || status == "failed";
  if (!waiting.answer.empty()) {
    invariants_.expect(reply.body == waiting.answer, "an answer stays, but that of", waiting.id,
                       "was", waiting.answer, "and is", reply.body);
    done(ask);
  } else if (ended) {
    trace_(status + " " + waiting.id);
    waiting.answer = reply.body;
    check_answer(waiting, reply.body);
    look_later(ask);
  } else {
    look_later(ask);
  }
}

void SimAsyncClients::check_answer(const Waiting& waiting, const std::string& body) {
  const json response = json::parse(body).at("response");
  const int status = response.at("status_code").get<int>();
  if (status != 200) {
    ++counts_.failed;
    invariants_.expect(status == 429 || status >= 500,
                       "a valid request is never called wrong, but asynchronous", waiting.ask.id,
                       "got", response.dump());
    return;
  }
  ++counts_.answered;
  const auto texts = texts_of(waiting.ask, response.at("body").dump());
  invariants_.expect(texts && oracle_.knows(waiting.ask, *texts),
                     "a complete reply has the oracle's text, but not that of asynchronous",
                     waiting.ask.id);
}

// The client does not learn whether a deletion happened whose reply is lost.
void SimAsyncClients::remove(RequestId ask) {
  const Waiting& waiting = waiting_.at(ask);
  trace_("deletes " + waiting.id);
  call("DELETE", "/pdjob/requests/" + waiting.id, waiting.ask.tenant, "",
       [this, ask](const Result<net::HttpReply>& reply) {
         const Waiting removed = std::move(waiting_.extract(ask).mapped());
         if (!reply || reply->status >= 500) {
           return;
         }
         ++counts_.deleted;
         invariants_.expect(reply->status == 200, "an accepted request is never lost, but",
                            removed.id, "cannot be deleted:", reply->body);
         call("GET", "/pdjob/requests/" + removed.id, removed.ask.tenant, "",
              [this, id = removed.id](const Result<net::HttpReply>& after) {
                invariants_.expect(!after || after->status == 404 || after->status >= 500,
                                   "what was deleted is gone, but not", id);
              });
       });
}

std::string SimAsyncClients::list_waiting() const {
  std::string list;
  for (const auto& [ask, waiting] : waiting_) {
    list += " asynchronous " + std::to_string(ask.value) + " " + waiting.id;
  }
  return list;
}

}  // namespace pdjob::simulation
