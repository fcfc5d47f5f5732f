// Reception says who sends a request, and whether it may come in. It counts and logs the denials.
// Loop-bound.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "common/crypto/job_keys.h"
#include "common/log.h"
#include "net/http/http_server.h"
#include "net/loop/loop.h"
#include "router/admission/admission.h"
#include "router/config/router_config.h"
#include "router/relay/reply_sink.h"
#include "router/relay/router_metrics.h"

namespace pdjob::router {

class Reception {
 public:
  Reception(net::Loop& loop, const RouterConfig& config, RouterMetrics& metrics);

  Admission& admission() { return admission_; }
  const Admission& admission() const { return admission_; }

  // Checks a request before its body arrives, and notes its tenant in `account`. Returns a reply if
  // the request is denied.
  std::optional<net::EarlyReply> let_in(net::HttpRequest& request);
  // As let_in(), whatever the tenant has under way: only an unknown key is denied.
  std::optional<net::EarlyReply> recognize(net::HttpRequest& request);
  // let_in() for a request for files or batches. Notes no tenant.
  std::optional<net::EarlyReply> let_in_batch_request(const net::HttpRequest& request);
  // The sender: by its key, or, beside the key of the Batch API's process, by the name that it
  // says.
  std::variant<Admission::Tenant, Admission::Denial> identify(
      const net::HttpRequest& request) const;
  // Requires: let_in() or recognize() has seen the request.
  Admission::Tenant tenant_of(const net::HttpRequest& request) const;
  // The name is empty if there are no tenants.
  const TenantConfig& config_of(Admission::Tenant tenant) const;
  // The client's own, or a new one.
  std::string request_id_of(const net::HttpRequest& request);

  // Counts and logs the denial. Returns the reply to it.
  net::EarlyReply denied(const Admission::Denial& denial);
  // Returns a reply if the request is denied. Otherwise it counts until Admission::release().
  std::optional<net::EarlyReply> admit(Admission::Tenant tenant, uint64_t tokens);
  // Charges a request that runs later. Returns a reply if it is denied.
  std::optional<net::EarlyReply> charge(Admission::Tenant tenant, uint64_t tokens);
  // Admits a request that the router answers itself; it costs no tokens. Returns the rate headers
  // for its reply. Empty optional: it is denied, and answered.
  std::optional<Admission::Headers> admit_free(ReplySink& sink, Admission::Tenant tenant);

  // The launcher's probe.
  bool is_probe(const net::HttpRequest& request, const TenantConfig& tenant) const;
  // A row of a batch.
  bool is_row(const net::HttpRequest& request) const;
  bool has_launchers_key(const net::HttpRequest& request) const;

 private:
  net::Loop& loop_;
  RouterMetrics& metrics_;
  Admission admission_;
  const KeyCheck probe_check_;
  const KeyCheck rows_check_;
  // Clients cause these lines, as many as they like. One gate for each reason.
  std::array<WarnGate, kDenialReasons> denial_lines_;
};

}  // namespace pdjob::router
