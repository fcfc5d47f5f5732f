#include "tests/simulation/sim_clients.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

namespace pdjob::simulation {
namespace {

using nlohmann::json;

std::string body_of(const Ask& ask) {
  json body{{"model", ask.model}, {"prompt", ask.prompt}, {"max_tokens", ask.max_tokens},
            {"n", ask.choices},   {"seed", ask.seed},     {"stream", ask.stream}};
  if (ask.kills == Kills::kToken) {
    body["logit_bias"] = {{std::to_string(kKillingToken), 100}};
    body["ignore_eos"] = true;
  }
  return body.dump();
}

void add_choices(const json& part, std::vector<SimText>& texts) {
  for (const json& choice : part.at("choices")) {
    SimText& text = texts.at(choice.at("index").get<size_t>());
    text.text += choice.at("text").get<std::string>();
    if (choice.at("finish_reason").is_string()) {
      text.finish = choice.at("finish_reason").get<std::string>();
    }
  }
}

// The texts of a reply; nullopt: it is not complete.
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

}  // namespace

SimClients::SimClients(SimProcess& process, Invariants& invariants, Oracle& oracle, Trace trace)
    : invariants_(invariants),
      oracle_(oracle),
      trace_(std::move(trace)),
      client_(net::HttpClient::create(process)) {}

void SimClients::send(const Ask& ask, const net::HttpAddress& router) {
  trace_("asks " + std::to_string(ask.id.value));
  const net::CallId id = client_->start({.to = router,
                                         .method = "POST",
                                         .target = "/v1/completions",
                                         .header_lines = "Content-Type: application/json\r\n",
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
  invariants_.expect(killer || *texts == oracle_.texts_of(call.ask),
                     "a complete reply has the oracle's text, but not that of request",
                     call.ask.id);
}

}  // namespace pdjob::simulation
