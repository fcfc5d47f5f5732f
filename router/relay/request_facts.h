// The facts that the Router core needs to know of an arriving request. Pure.
#pragma once

#include "net/http/http_server.h"
#include "router/config/router_config.h"
#include "router/core/router.h"
#include "router/relay/leg_body.h"
#include "router/relay/reception.h"

namespace pdjob::router {

struct RequestKind {
  Admission::Tenant tenant = 0;
  bool generates = false;  // False: it has no KV.
  bool probes = false;     // The launcher's.
  bool alone = false;      // One worker computes all of it, after everybody else's requests.
};

RequestFacts request_facts(const net::HttpRequest& request, const RequestBody& body,
                           const RequestKind& kind, const RouterConfig& config,
                           const Reception& reception, const Router& core);

}  // namespace pdjob::router
