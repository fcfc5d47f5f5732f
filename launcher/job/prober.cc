#include "launcher/job/prober.h"

#include <algorithm>
#include <utility>

#include "common/crypto/job_keys.h"
#include "common/json/json_writer.h"
#include "common/limits.h"
#include "common/parse_number.h"
#include "openai/headers.h"
#include "router/relay/leg_body.h"

namespace pdjob::launcher {

namespace {

constexpr Duration kProbeTimeout = std::chrono::seconds(30);
constexpr size_t kBodyBytesMax = 64 * limits::kKiB;
constexpr size_t kErrorBytesMax = 512;

// An engine's count of the KV that it has received comes within two heartbeats.
constexpr Duration kCountTimeout = std::chrono::seconds(5);
constexpr Duration kCountInterval = std::chrono::milliseconds(100);
constexpr int kLongPromptWords = 200;

// Engines of other makes move whole blocks of KV only, of up to 128 tokens, and never one that they
// have already.
std::string long_prompt(uint64_t probe) {
  std::string prompt = "Probe " + std::to_string(probe) + " of the job:";
  for (int i = 0; i < kLongPromptWords; ++i) {
    prompt += " " + std::to_string(i);
  }
  return prompt;
}

std::string probe_body(const std::string& model, const std::string& prompt,
                       const router::KvWords& words) {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.key("model").string(model);
  json.key("prompt").string(prompt);
  json.key("max_tokens").integer(1);
  json.key("temperature").integer(0);
  for (const auto& [key, value] : {std::pair("kv_transfer_params", &words.kv_transfer_params),
                                   std::pair("bootstrap_host", &words.bootstrap_host),
                                   std::pair("bootstrap_port", &words.bootstrap_port),
                                   std::pair("bootstrap_room", &words.bootstrap_room)}) {
    if (!value->empty()) {
      json.key(key).raw(*value);
    }
  }
  json.end_object();
  return text;
}

}  // namespace

Prober::Prober(net::Loop& loop, ProberOptions options, std::function<void(Event)> report)
    : options_(std::move(options)),
      report_(std::move(report)),
      loop_(loop),
      client_(net::HttpClient::create(loop)) {}

Prober::~Prober() { loop_.cancel(look_); }

void Prober::start(const Probe& probe) {
  Running running{.probe = probe};
  if (!probe.prefill.empty()) {
    running.received_before = options_.kv_received_by(probe.decode);
  }
  if (!probe.router.empty()) {
    call_router(std::move(running));
  } else if (probe.prefill.empty()) {
    running.step = Step::kDecodeLeg;
    call_worker(std::move(running), probe.decode, {});
  } else if (const net::WorkerEntry prefill = options_.entry_of(probe.prefill);
             prefill.protocol == net::Protocol::kSglang) {
    call_both(running, prefill);
  } else {
    running.step = Step::kPrefillLeg;
    call_worker(std::move(running), probe.prefill,
                router::dialect_of(net::Protocol::kNixl, false).offer({}));
  }
}

void Prober::call_both(const Running& running, const net::WorkerEntry& prefill) {
  const router::KvWords words =
      router::dialect_of(prefill.protocol, true)
          .offer({.transfer = {.high = loop_.entropy(), .low = loop_.entropy()},
                  .address = prefill.kv_address,
                  .request_id = {}});
  Running beside = running;
  beside.step = Step::kBeside;
  call_worker(std::move(beside), running.probe.prefill, words);
  Running decode = running;
  decode.step = Step::kDecodeLeg;
  call_worker(std::move(decode), running.probe.decode, words);
}

void Prober::call_router(Running running) {
  std::string lines = authorization_line(options_.key);
  const auto pin = [&lines](std::string_view header, const std::string& worker) {
    if (!worker.empty()) {
      lines.append(header).append(": ").append(worker).append("\r\n");
    }
  };
  pin(openai::header::kPinDecode, running.probe.decode);
  pin(openai::header::kPinPrefill, running.probe.prefill);
  const net::HttpAddress to = options_.address_of(running.probe.router);
  call(std::move(running), to, lines, {});
}

void Prober::call_worker(Running running, const std::string& name, const router::KvWords& words) {
  call(std::move(running), options_.address_of(name),
       authorization_line(options_.worker_key_of(name)), words);
}

void Prober::call(Running running, const net::HttpAddress& to, const std::string& more_lines,
                  const router::KvWords& words) {
  const std::string headers = "Content-Type: application/json\r\nx-request-id: probe-" +
                              std::to_string(running.probe.probe) + "\r\n" + more_lines;
  net::HttpCall call;
  call.to = to;
  // Without a hand-over, one token says no more than the engine's own health.
  const bool generates = options_.entry_of(running.probe.decode).generates;
  call.target = generates ? "/v1/completions" : "/tokenize";
  call.header_lines = headers;
  call.body = probe_body(running.probe.model,
                         running.received_before
                             ? long_prompt(running.probe.probe)
                             : "This is a readiness probe of the job, and one token is enough.",
                         words);
  call.head_timeout = call.idle_timeout = kProbeTimeout;
  const net::CallId id = client_->start(std::move(call), *this);
  running_.emplace(id, std::move(running));
}

void Prober::on_head(net::CallId id, const net::HttpReplyHead& head) {
  Running& running = running_.at(id);
  running.status = head.status;
  // A foreign router may drop this header, so the decode leg's value stays.
  running.kv_bytes = std::max(
      running.kv_bytes, parse_number<uint64_t>(head.header(openai::header::kKvBytes)).value_or(0));
}

void Prober::on_body(net::CallId id, std::string_view raw) {
  std::string& body = running_.at(id).body;
  body.append(raw.substr(0, kBodyBytesMax - std::min(kBodyBytesMax, body.size())));
}

void Prober::on_end(net::CallId id) {
  const Running ended = std::move(running_.extract(id).mapped());
  if (ended.status != 200) {
    fail(ended,
         "status " + std::to_string(ended.status) + ": " + ended.body.substr(0, kErrorBytesMax));
  } else {
    go_on(ended);
  }
}

void Prober::go_on(const Running& ended) {
  Running next{
      .probe = ended.probe, .kv_bytes = ended.kv_bytes, .received_before = ended.received_before};
  switch (ended.step) {
    case Step::kPrefillLeg:
      if (const std::string params = router::returned_params(ended.body); !params.empty()) {
        next.step = Step::kDecodeLeg;
        router::KvWords words;
        words.kv_transfer_params = params;
        call_worker(std::move(next), ended.probe.decode, words);
      } else {
        fail(ended, "the answer has no kv_transfer_params");
      }
      break;
    case Step::kBeside:
      break;
    case Step::kDecodeLeg:
    case Step::kRouter:
      if (ended.received_before) {
        counted_.push_back({.probe = ended.probe.probe,
                            .decode = ended.probe.decode,
                            .before = *ended.received_before,
                            .deadline = loop_.now() + kCountTimeout});
        look_at_counts();
        return;
      }
      report_(ProbeSucceeded{ended.probe.probe, ended.kv_bytes});
      break;
  }
}

void Prober::look_at_counts() {
  std::vector<Event> reports;
  std::erase_if(counted_, [&](const Counted& each) {
    const uint64_t received = options_.kv_received_by(each.decode).value_or(0);
    const bool moved = received > each.before;
    if (moved || loop_.now() >= each.deadline) {
      reports.emplace_back(ProbeSucceeded{each.probe, moved ? received - each.before : 0});
      return true;
    }
    return false;
  });
  loop_.cancel(look_);
  if (!counted_.empty()) {
    look_ = loop_.call_at(loop_.now() + kCountInterval, [this] { look_at_counts(); });
  }
  for (const Event& report : reports) {
    report_(report);
  }
}

void Prober::on_error(net::CallId id, const Error& error) {
  fail(running_.extract(id).mapped(), error.message);
}

void Prober::fail(const Running& ended, const std::string& reason) {
  if (ended.step == Step::kBeside) {
    return;  // The decode leg fails, too.
  }
  const char* const who = ended.step == Step::kPrefillLeg  ? "prefill leg: "
                          : ended.step == Step::kDecodeLeg ? "decode leg: "
                                                           : "";
  report_(ProbeFailed{ended.probe.probe, who + reason});
}

}  // namespace pdjob::launcher
