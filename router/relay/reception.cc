#include "router/relay/reception.h"

#include <utility>

#include "common/check.h"
#include "common/log.h"
#include "openai/headers.h"
#include "openai/openai.h"

namespace pdjob::router {

Reception::Reception(net::Loop& loop, const RouterConfig& config, RouterMetrics& metrics)
    : loop_(loop),
      metrics_(metrics),
      admission_(config.tenants),
      probe_check_({config.probe_key}),
      rows_check_({config.batches.rows_key}) {}

std::optional<net::EarlyReply> Reception::let_in(net::HttpRequest& request) {
  if (auto unknown = recognize(request); unknown || admission_.open_to_all()) {
    return unknown;
  }
  const auto denial = admission_.denial_of_request(tenant_of(request), loop_.now());
  return denial ? std::optional(denied(*denial)) : std::nullopt;
}

std::optional<net::EarlyReply> Reception::recognize(net::HttpRequest& request) {
  const auto known = identify(request);
  if (const auto* unknown = std::get_if<Admission::Denial>(&known)) {
    return denied(*unknown);
  }
  if (!admission_.open_to_all()) {
    request.account = std::get<Admission::Tenant>(known) + 1;
  }
  return std::nullopt;
}

std::optional<net::EarlyReply> Reception::let_in_batch_request(const net::HttpRequest& request) {
  const auto known = identify(request);
  const auto* const unknown = std::get_if<Admission::Denial>(&known);
  const auto denial = unknown != nullptr ? std::optional(*unknown)
                                         : admission_.admit_batch_request(
                                               std::get<Admission::Tenant>(known), loop_.now());
  return denial ? std::optional(denied(*denial)) : std::nullopt;
}

std::variant<Admission::Tenant, Admission::Denial> Reception::identify(
    const net::HttpRequest& request) const {
  if (!admission_.open_to_all() && is_row(request)) {
    if (const auto tenant = admission_.find(request.header(openai::header::kBatchTenant))) {
      return *tenant;
    }
  }
  return admission_.identify(request.header("authorization"));
}

Admission::Tenant Reception::tenant_of(const net::HttpRequest& request) const {
  if (admission_.open_to_all()) {
    return 0;
  }
  PDJOB_CHECK(request.account > 0, request.path);
  return request.account - 1;
}

const TenantConfig& Reception::config_of(Admission::Tenant tenant) const {
  static const TenantConfig nobody;
  return admission_.open_to_all() ? nobody : admission_.tenants()[tenant];
}

std::string Reception::request_id_of(const net::HttpRequest& request) {
  const std::string_view given = request.header(openai::header::kRequestId);
  return given.empty() ? "req-" + TransferId{loop_.entropy(), loop_.entropy()}.to_string()
                       : std::string(given);
}

net::EarlyReply Reception::denied(const Admission::Denial& denial) {
  metrics_.denied(denial.reason);
  if (denial_lines_[static_cast<size_t>(denial.reason)].opens(loop_.now())) {
    log::info(std::string("a request is denied: ") + to_string(denial.reason) + ": " +
              denial.error.message);
  }
  Admission::Headers headers = denial.rates;
  if (denial.retry_after_seconds > 0) {
    headers.emplace_back("Retry-After", std::to_string(denial.retry_after_seconds));
  }
  return {.status = denial.error.status,
          .body = openai::error_body(denial.error),
          .headers = std::move(headers)};
}

std::optional<net::EarlyReply> Reception::admit(Admission::Tenant tenant, uint64_t tokens) {
  const auto admitted = admission_.admit(tenant, tokens, loop_.now());
  const auto* denial = std::get_if<Admission::Denial>(&admitted);
  return denial == nullptr ? std::nullopt : std::optional(denied(*denial));
}

std::optional<net::EarlyReply> Reception::charge(Admission::Tenant tenant, uint64_t tokens) {
  auto denial = admit(tenant, tokens);
  if (!denial) {
    admission_.release(tenant);
  }
  return denial;
}

std::optional<Admission::Headers> Reception::admit_free(ReplySink& sink, Admission::Tenant tenant) {
  if (const auto denial = charge(tenant, 0)) {
    reply_json(sink, *denial);
    return std::nullopt;
  }
  return admission_.rate_headers(tenant, loop_.now());
}

bool Reception::is_probe(const net::HttpRequest& request, const TenantConfig& tenant) const {
  return tenant.name == kProbeTenant || (admission_.open_to_all() && has_launchers_key(request));
}

bool Reception::is_row(const net::HttpRequest& request) const {
  return !rows_check_.open_to_all() && rows_check_.opens(request.header("authorization"));
}

bool Reception::has_launchers_key(const net::HttpRequest& request) const {
  return !probe_check_.open_to_all() && probe_check_.opens(request.header("authorization"));
}

}  // namespace pdjob::router
