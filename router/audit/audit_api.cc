#include "router/audit/audit_api.h"

#include <cstdio>
#include <utility>

#include "common/limits.h"
#include "common/log.h"
#include "openai/headers.h"
#include "router/async/async_sink.h"
#include "router/audit/audit_sink.h"

namespace pdjob::router {
namespace {

constexpr size_t kAnswerBytesMax = limits::kMiB;
constexpr Duration kLookAgain = std::chrono::seconds(1);

std::string rounded(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", number);
  return text;
}

}  // namespace

AuditApi::AuditApi(net::Loop& loop, RelayApi& relay, const AuditConfig& config)
    : loop_(loop), relay_(relay), audits_(config) {}

AuditApi::~AuditApi() { loop_.cancel(timer_); }

std::unique_ptr<ReplySink> AuditApi::watch(const net::HttpRequest& request, const RequestBody& body,
                                           std::unique_ptr<ReplySink> sink) {
  const Reception& reception = relay_.reception();
  const Admission::Tenant tenant = reception.tenant_of(request);
  if (!audits_.chooses(loop_.entropy()) ||
      reception.is_probe(request, reception.config_of(tenant))) {
    return sink;
  }
  auto again = audit_body(request.path, body.text());
  if (!again) {
    return sink;
  }
  return std::make_unique<AuditSink>(std::move(sink), kAnswerBytesMax,
                                     [this, tenant, path = std::string(request.path),
                                      again = *std::move(again)](AuditSink::Copy copy) {
                                       take({.request_id = std::move(copy.request_id),
                                             .prefill = std::move(copy.prefill),
                                             .decode = std::move(copy.decode),
                                             .path = path,
                                             .body = again,
                                             .content_type = std::move(copy.reply.content_type),
                                             .answer = std::move(copy.reply.body),
                                             .tenant = tenant});
                                     });
}

// In a later turn: the relay has not yet forgotten the request.
void AuditApi::take(Audited audited) {
  for (size_t i = audits_.add(std::move(audited), loop_.now()); i > 0; --i) {
    relay_.metrics().audited(AuditResult::kDropped);
  }
  if (timer_ == net::TimerId{}) {
    timer_ = loop_.call_at(loop_.now(), [this] { run_next(); });
  }
}

void AuditApi::run_next() {
  timer_ = {};
  for (const PairAccused& pair : std::exchange(accused_, {})) {
    relay_.submit(pair);
  }
  for (size_t i = audits_.expire(loop_.now()); i > 0; --i) {
    relay_.metrics().audited(AuditResult::kDropped);
  }
  const Router& core = relay_.core();
  const bool quiet = core.requests_queued() == 0 && !core.closed() &&
                     core.requests_running() <= core.workers().all().size();
  if (auto audited = audits_.next(quiet)) {
    run(*std::move(audited));
  } else if (audits_.waiting() > 0) {
    timer_ = loop_.call_at(loop_.now() + kLookAgain, [this] { run_next(); });
  }
}

void AuditApi::run(Audited audited) {
  auto body = RequestBody::scan(with_salt(audited.body, loop_.entropy()));
  if (!body) {
    return end(audited, 400, "");
  }
  const std::string id = "audit-" + audited.request_id;
  const std::string path = audited.path;  // The request has a view of it.
  net::HttpRequest request{
      .method = "POST",
      .path = path,
      .headers = {{"Content-Type", "application/json"}, {openai::header::kRequestId, id}}};
  const auto tenant = static_cast<Admission::Tenant>(audited.tenant);
  relay_.route_alone(
      relay_.next_id(), tenant, request, *std::move(body),
      std::make_unique<AsyncSink>(kAnswerBytesMax,
                                  [this, audited = std::move(audited)](const AsyncAnswer& answer) {
                                    end(audited, answer.status, answer.body);
                                  }));
}

void AuditApi::end(const Audited& audited, int status, const std::string& answer) {
  const auto first = openai::text_of_reply(audited.content_type, audited.answer);
  const auto second =
      status == 200 ? openai::text_of_reply("application/json", answer) : std::nullopt;
  const Finding finding = first && second ? compare(*first, *second, audits_.tie()) : Finding{};
  relay_.metrics().audited(finding.result);
  const bool accused = audits_.ended(audited, finding, loop_.now());
  if (finding.result == AuditResult::kDiffers) {
    relay_.metrics().mismatched(audited.prefill, audited.decode);
    log::error("request " + audited.request_id + ": KV from " + audited.prefill + " to " +
               audited.decode +
               " is suspect: the answer was computed again without it, and parts at "
               "token " +
               std::to_string(finding.position) + ", where the likeliest token leads by " +
               rounded(finding.margin));
  }
  if (accused) {
    const WorkerTable& workers = relay_.core().workers();
    const Worker* prefill = workers.find(audited.prefill);
    const Worker* decode = workers.find(audited.decode);
    if (prefill != nullptr && decode != nullptr) {
      accused_.push_back({prefill->id, decode->id});
    }
  }
  loop_.cancel(timer_);
  timer_ = loop_.call_at(loop_.now(), [this] { run_next(); });
}

}  // namespace pdjob::router
