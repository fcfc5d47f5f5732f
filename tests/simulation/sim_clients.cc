#include "tests/simulation/sim_clients.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "openai/headers.h"

namespace pdjob::simulation {
namespace {

using nlohmann::json;

}  // namespace

std::string key_of_tenant(uint32_t tenant) { return "key-" + std::to_string(tenant); }

std::string headers_of(uint32_t tenant) {
  return "Content-Type: application/json\r\n" +
         (tenant == 0 ? "" : "Authorization: Bearer " + key_of_tenant(tenant) + "\r\n");
}

std::string body_of(const Ask& ask) {
  json body{{"model", ask.model}, {"prompt", ask.prompt}, {"max_tokens", ask.max_tokens},
            {"n", ask.choices},   {"seed", ask.seed},     {"stream", ask.stream}};
  if (ask.stream && ask.tenant > 0) {
    body["stream_options"] = {{"include_usage", true}};
  }
  if (ask.background) {
    body["service_tier"] = "flex";
  }
  if (ask.kills == Kills::kToken) {
    body["logit_bias"] = {{std::to_string(kKillingToken), 100}};
    body["ignore_eos"] = true;
  }
  return body.dump();
}

namespace {

void add_choices(const json& part, std::vector<SimText>& texts) {
  for (const json& choice : part.at("choices")) {
    SimText& text = texts.at(choice.at("index").get<size_t>());
    text.text += choice.at("text").get<std::string>();
    if (choice.at("finish_reason").is_string()) {
      text.finish = choice.at("finish_reason").get<std::string>();
    }
  }
}

// The count in the reply's usage; 0: it has none.
size_t cached_tokens_of(std::string_view body) {
  constexpr std::string_view kName = "\"cached_tokens\":";
  const size_t at = body.rfind(kName);
  return at == std::string_view::npos ? 0
                                      : std::stoul(std::string(body.substr(at + kName.size(), 8)));
}

}  // namespace

std::optional<std::vector<SimText>> texts_of(const Ask& ask, std::string_view body) {
  std::vector<SimText> texts(ask.choices);
  try {
    if (!ask.stream) {
      add_choices(json::parse(body), texts);
      return texts;
    }
    constexpr std::string_view kData = "data: ";
    for (size_t end = 0; (end = body.find("\n\n")) != std::string_view::npos;
         body.remove_prefix(end + 2)) {
      const std::string_view event = body.substr(0, end);
      if (event == "data: [DONE]") {
        return texts;
      }
      const json part = json::parse(event.substr(kData.size()));
      if (part.contains("error")) {
        return std::nullopt;
      }
      add_choices(part, texts);
    }
  } catch (const std::exception& error) {
    return std::nullopt;
  }
  return std::nullopt;
}

SimClients::SimClients(SimProcess& process, Invariants& invariants, Oracle& oracle, Trace trace)
    : invariants_(invariants),
      oracle_(oracle),
      trace_(std::move(trace)),
      client_(net::HttpClient::create(process)) {}

void SimClients::send(const Ask& ask, const net::HttpAddress& router) {
  trace_("asks " + std::to_string(ask.id.value));
  const std::string headers = headers_of(ask.tenant);
  note(ask);
  const net::CallId id = client_->start({.to = router,
                                         .method = "POST",
                                         .target = "/v1/completions",
                                         .header_lines = headers,
                                         .body = body_of(ask),
                                         .head_timeout = std::chrono::hours(1)},
                                        *this);
  calls_[id].ask = ask;
}

void SimClients::leave(RequestId id) {
  const auto found =
      std::ranges::find_if(calls_, [&](const auto& call) { return call.second.ask.id == id; });
  if (found != calls_.end()) {
    trace_("leaves " + std::to_string(id.value));
    killer_left_ = killer_left_ || found->second.ask.kills != Kills::kNobody;
    ++counts_.left;
    client_->cancel(found->first);
    calls_.erase(found);
  }
}

void SimClients::note(const Ask& ask) { bodies_[ask.tenant].insert(body_of(ask)); }

void SimClients::on_kill() { ++counts_.kills; }

std::string SimClients::list_waiting() const {
  std::string list;
  for (const auto& [id, call] : calls_) {
    list += " " + std::to_string(call.ask.id.value);
  }
  return list;
}

void SimClients::on_head(net::CallId id, const net::HttpReplyHead& head) {
  Call& call = calls_.at(id);
  call.status = head.status;
  call.chunked = head.framing == net::BodyFraming::kChunked;
  call.from_cache = head.header(openai::header::kCache) == "hit";
}

void SimClients::on_body(net::CallId id, std::string_view raw) {
  Call& call = calls_.at(id);
  if (call.chunked) {
    call.chunks.decode(raw, call.body);
  } else {
    call.body += raw;
  }
}

void SimClients::on_end(net::CallId id) {
  const Call call = std::move(calls_.extract(id).mapped());
  trace_("ends " + std::to_string(call.ask.id.value) + " " + std::to_string(call.status) +
         (call.status == 200 ? "" : " " + call.body));
  check_status(call);
  if (call.status == 200) {
    check_reply(call);
  } else {
    ++(call.status == 503 ? counts_.refused : counts_.failed);
  }
}

void SimClients::on_error(net::CallId id, const Error& error) {
  const Call call = std::move(calls_.extract(id).mapped());
  trace_("loses " + std::to_string(call.ask.id.value) + ": " + error.message);
  ++counts_.aborted;
}

// All requests are valid.
void SimClients::check_status(const Call& call) {
  const bool may_be_blamed =
      broke_ || (call.ask.kills != Kills::kNobody ? counts_.kills >= 2 : killer_left_);
  counts_.blamed += call.status == 422 ? 1 : 0;
  invariants_.expect(call.status == 200 || call.status == 429 || call.status >= 500 ||
                         (call.status == 422 && may_be_blamed),
                     "a valid request is never called wrong, but request", call.ask.id, "got",
                     call.status, call.body);
}

void SimClients::check_reply(const Call& call) {
  const auto texts = texts_of(call.ask, call.body);
  if (!texts) {
    ++counts_.aborted;
    invariants_.expect(call.ask.stream, "a reply that is sent whole is whole:", call.ask.id,
                       call.body);
    return;
  }
  ++counts_.served;
  const bool killer = call.ask.kills == Kills::kToken;
  invariants_.expect(killer || oracle_.knows(call.ask, *texts),
                     "a complete reply has the oracle's text, but not that of request",
                     call.ask.id);
  check_sharing(call);
}

void SimClients::check_sharing(const Call& call) {
  counts_.tokens_cached += cached_tokens_of(call.body);
  counts_.from_cache += call.from_cache ? 1 : 0;
  invariants_.expect(!call.from_cache || bodies_[call.ask.tenant].count(body_of(call.ask)) > 1,
                     "nothing of one tenant reaches another, but the reply to", call.ask.id);
}

}  // namespace pdjob::simulation
