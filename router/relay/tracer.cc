#include "router/relay/tracer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/limits.h"
#include "common/log.h"
#include "common/os/real_clock.h"
#include "openai/headers.h"

namespace pdjob::router {
namespace {

constexpr Duration kExportTimeout = std::chrono::seconds(5);
// Some values come from clients. The limit bounds the bytes of waiting spans.
constexpr size_t kAttributeBytesMax = 256;

uint64_t new_id() { return std::max<uint64_t>(entropy(), 1); }

}  // namespace

Tracer::Tracer(net::Loop& loop, const TracingConfig& config,
               std::unique_ptr<net::OutboundClient> client)
    : loop_(loop),
      collector_(*net::parse_service_url(config.endpoint)),
      ratio_(config.ratio),
      unix_offset_(unix_nanoseconds() - real_now().time_since_epoch().count()),
      client_(std::move(client)),
      random_(entropy()),
      instance_(TransferId{new_id(), new_id()}.to_string()) {
  collector_.path += "/v1/traces";
}

std::unique_ptr<Span> Tracer::begin(const net::HttpRequest& request) {
  const auto caller = parse_traceparent(request.header(openai::header::kTraceParent));
  if (caller ? !caller->sampled : !random_.chance(ratio_)) {
    return nullptr;
  }
  auto span = std::make_unique<Span>();
  span->name = std::string(request.method) + ' ' + std::string(request.path);
  span->context = {.trace = caller ? caller->trace : TransferId{new_id(), new_id()},
                   .span = new_id()};
  span->parent = caller ? caller->span : 0;
  span->begin = loop_.now();
  return span;
}

std::unique_ptr<Span> Tracer::begin_child(const Span& parent, std::string name) {
  auto span = std::make_unique<Span>();
  span->name = std::move(name);
  span->kind = Span::Kind::kClient;
  span->context = {.trace = parent.context.trace, .span = new_id()};
  span->parent = parent.context.span;
  span->begin = loop_.now();
  return span;
}

void Tracer::end(std::unique_ptr<Span> span) {
  if (waiting_.size() == kSpansMax) {
    ++dropped_;
    return;
  }
  span->end = loop_.now();
  for (auto& [key, value] : span->attributes) {
    if (value.size() > kAttributeBytesMax) {
      value = value.substr(0, kAttributeBytesMax);
    }
  }
  waiting_.push_back(std::move(*span));
  if (waiting_.size() == 1 && !exporting_) {
    timer_ = loop_.call_at(loop_.now() + kInterval, [this] { export_some(); });
  }
}

void Tracer::export_some() {
  const size_t count = std::min(waiting_.size(), kBatchMax);
  std::string body = otlp_traces({waiting_.data(), count}, instance_, unix_offset_);
  waiting_.erase(waiting_.begin(), std::next(waiting_.begin(), static_cast<ptrdiff_t>(count)));
  exporting_ = true;
  client_->post({.to = collector_,
                 .headers = {"Content-Type: application/json"},
                 .body = std::move(body),
                 .timeout = kExportTimeout,
                 .reply_bytes_max = limits::kMiB},
                [this, count](const Result<net::OutboundReply>& reply) { exported(count, reply); });
}

void Tracer::exported(size_t spans, const Result<net::OutboundReply>& reply) {
  exporting_ = false;
  if (!reply || reply->status != 200) {
    dropped_ += spans;
    if (warning_.opens(loop_.now())) {
      log::warn("traces: " + collector_.address.to_string() + " takes none: " +
                (reply ? "status " + std::to_string(reply->status) : reply.error().message));
    }
  }
  if (!waiting_.empty()) {
    const bool many = waiting_.size() >= kBatchMax;
    timer_ = loop_.call_at(loop_.now() + (many ? Duration::zero() : kInterval),
                           [this] { export_some(); });
  }
}

}  // namespace pdjob::router
