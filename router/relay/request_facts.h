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
  bool generates = false;   // False: it has no KV.
  bool probes = false;      // The launcher's.
  bool alone = false;       // One worker computes all of it, after everybody else's requests.
  bool background = false;  // is_in_background().
};

// It takes what other requests leave: it says so, or it is a row of a batch.
bool is_in_background(const net::HttpRequest& request, const RequestBody& body,
                      const Reception& reception);

RequestFacts request_facts(const net::HttpRequest& request, const RequestBody& body,
                           const RequestKind& kind, const RouterConfig& config,
                           const Reception& reception, const Router& core);

}  // namespace pdjob::router
