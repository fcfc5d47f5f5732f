#include "launcher/prober.h"

#include <charconv>
#include <utility>

#include "net/json_writer.h"

namespace pdjob::launcher {

namespace {

constexpr Duration kProbeTimeout = std::chrono::seconds(30);
constexpr size_t kErrorBodyBytesMax = 512;

std::string probe_body(const std::string& model) {
  std::string text;
  net::JsonWriter json(text);
  json.begin_object();
  json.key("model").string(model);
  json.key("prompt").string("This is a readiness probe of the job, and one token is enough.");
  json.key("max_tokens").integer(1);
  json.key("temperature").integer(0);
  json.end_object();
  return text;
}

uint64_t parse_count(std::string_view text) {
  uint64_t count = 0;
  std::from_chars(text.data(), text.data() + text.size(), count);
  return count;
}

}  // namespace

Prober::Prober(net::EventLoop& loop, net::HttpAddress router, std::string model,
               std::function<void(Event)> report)
    : router_(std::move(router)),
      model_(std::move(model)),
      report_(std::move(report)),
      client_(net::HttpClient::create(loop)) {}

void Prober::start(const Probe& probe) {
  std::string headers = "Content-Type: application/json\r\nx-request-id: probe-" +
                        std::to_string(probe.probe) + "\r\n";
  headers += "x-pdjob-pin-decode: " + probe.decode + "\r\n";
  if (!probe.prefill.empty()) {
    headers += "x-pdjob-pin-prefill: " + probe.prefill + "\r\n";
  }
  net::HttpCall call;
  call.to = router_;
  call.target = "/v1/completions";
  call.header_lines = headers;
  call.body = probe_body(model_);
  call.head_timeout = call.idle_timeout = kProbeTimeout;
  const net::CallId id = client_->start(std::move(call), *this);
  running_[id].probe = probe.probe;
}

void Prober::on_head(net::CallId id, const net::HttpReplyHead& head) {
  Running& running = running_.at(id);
  running.status = head.status;
  running.kv_bytes = parse_count(head.header("x-pdjob-kv-bytes"));
}

void Prober::on_body(net::CallId id, std::string_view raw) {
  std::string& body = running_.at(id).body;
  body.append(raw.substr(0, kErrorBodyBytesMax - std::min(kErrorBodyBytesMax, body.size())));
}

void Prober::on_end(net::CallId id) {
  const Running running = std::move(running_.extract(id).mapped());
  if (running.status == 200) {
    report_(ProbeSucceeded{running.probe, running.kv_bytes});
  } else {
    report_(ProbeFailed{running.probe,
                        "status " + std::to_string(running.status) + ": " + running.body});
  }
}

void Prober::on_error(net::CallId id, const Error& error) {
  const Running running = std::move(running_.extract(id).mapped());
  report_(ProbeFailed{running.probe, error.message});
}

}  // namespace pdjob::launcher
