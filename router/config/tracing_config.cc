#include "router/config/tracing_config.h"

#include "net/outbound/url.h"

namespace pdjob::router {

void read(ConfigReader& in, TracingConfig& config) {
  in.section("tracing", {"Spans of requests for OpenTelemetry (docs/how-to/tracing.md)."},
             [&](ConfigReader& section) {
               section.field(
                   "endpoint", config.endpoint,
                   {"A collector that takes OTLP over HTTP, as http://host:4318 or https://host. "
                    "Empty: nothing is traced."});
               section.field(
                   "ratio", config.ratio,
                   {"Share of the requests that are traced, where the client's traceparent does "
                    "not say it."},
                   {.min = 0, .max = 1});
               section.path("ca_file", config.ca_file,
                            {"Certificates of the authorities that an https collector is checked "
                             "against. Empty: the system's."});
               if (config.endpoint.empty()) {
                 return;
               }
               if (const auto url = net::parse_service_url(config.endpoint); !url) {
                 section.fail("endpoint", url.error().message);
               }
             });
}

}  // namespace pdjob::router
