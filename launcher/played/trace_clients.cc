#include "launcher/played/trace_clients.h"

#include <algorithm>
#include <utility>

namespace pdjob::simulation {
namespace {

// Greedy: all tokens are alike in any case, and so none is drawn.
std::string body_of(const TraceRequest& request, const TraceScale& scale) {
  std::string body = R"({"model":")" + std::string(kTraceModel) +
                     R"(","stream":true,"ignore_eos":true,"temperature":0,"max_tokens":)" +
                     std::to_string(request.output_tokens) + R"(,"prompt":[)";
  const char* before = "";
  for (const Token token : prompt_of(request, scale)) {
    body += std::exchange(before, ",") + std::to_string(token);
  }
  return body + "]}";
}

}  // namespace

TraceClients::TraceClients(SimProcess& process, size_t requests)
    : process_(process), client_(net::HttpClient::create(process)), outcomes_(requests) {}

void TraceClients::send(size_t index, const TraceRequest& request, const TraceScale& scale,
                        const net::HttpAddress& router, Instant asked) {
  const net::CallId id = client_->start({.to = router,
                                         .target = "/v1/completions",
                                         .header_lines = "Content-Type: application/json\r\n",
                                         .body = body_of(request, scale),
                                         .head_timeout = std::chrono::hours(1000),
                                         .idle_timeout = std::chrono::hours(1000)},
                                        *this);
  calls_[id] = {.index = index, .tokens_wanted = request.output_tokens, .asked = asked};
  outcomes_[index].at = request.at;
}

void TraceClients::on_head(net::CallId id, const net::HttpReplyHead& head) {
  calls_.at(id).status = head.status;
}

// Each token is an event of its own.
void TraceClients::on_body(net::CallId id, std::string_view raw) {
  constexpr std::string_view kToken = "data: {";
  Call& call = calls_.at(id);
  call.chunks.decode(raw, call.unread);
  size_t begin = 0;
  for (size_t end = 0; (end = call.unread.find("\n\n", begin)) != std::string::npos;
       begin = end + 2) {
    if (call.unread.compare(begin, kToken.size(), kToken) == 0) {
      call.tokens.push_back(process_.now());
    }
  }
  call.unread.erase(0, begin);
}

void TraceClients::end(net::CallId id) {
  const Call call = std::move(calls_.extract(id).mapped());
  ++ended_;
  TraceOutcome& outcome = outcomes_[call.index];
  const std::vector<Instant>& tokens = call.tokens;
  outcome.served = call.status == 200 && tokens.size() == call.tokens_wanted;
  outcome.refused = !outcome.served;
  if (!outcome.served) {
    return;
  }
  outcome.ttft = tokens.front() - call.asked;
  for (size_t i = 1; i < tokens.size(); ++i) {
    outcome.gap_max = std::max(outcome.gap_max, tokens[i] - tokens[i - 1]);
  }
  if (tokens.size() > 1) {
    outcome.itl = (tokens.back() - tokens.front()) / static_cast<int64_t>(tokens.size() - 1);
  }
}

}  // namespace pdjob::simulation
