#include "router/config/tracing_config.h"

#include "net/http/http_client.h"

namespace pdjob::router {

void read(ConfigReader& in, TracingConfig& config) {
  in.section(
      "tracing", {"Spans of requests for OpenTelemetry (docs/how-to/tracing.md)."},
      [&](ConfigReader& section) {
        section.field("endpoint", config.endpoint,
                      {"A collector that takes OTLP over HTTP, as http://host:4318. Empty: nothing "
                       "is traced."});
        section.field("ratio", config.ratio,
                      {"Share of the requests that are traced, where the client's traceparent does "
                       "not say it."},
                      {.min = 0, .max = 1});
        if (!config.endpoint.empty() && !net::parse_http_address(config.endpoint)) {
          section.fail("endpoint", "must be http://host:port, got " + config.endpoint);
        }
      });
}

}  // namespace pdjob::router
