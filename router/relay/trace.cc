#include "router/relay/trace.h"

#include "common/hex.h"
#include "common/json/json_writer.h"

namespace pdjob::router {
namespace {

constexpr size_t kTraceparentBytes = 55;
constexpr int kStatusError = 2;

std::string hex_of(uint64_t id) {
  std::string text;
  append_hex(text, id);
  return text;
}

bool is_lower_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

void append_attribute(JsonWriter& json, std::string_view key, std::string_view value) {
  json.begin_object().key("key").string(key);
  json.key("value").begin_object().key("stringValue").string(value).end_object().end_object();
}

void append_time(JsonWriter& json, std::string_view key, Instant when, int64_t unix_offset) {
  json.key(key).string(std::to_string(unix_offset + when.time_since_epoch().count()));
}

void append_span(JsonWriter& json, const Span& span, int64_t unix_offset) {
  json.begin_object();
  json.key("traceId").string(span.context.trace.to_string());
  json.key("spanId").string(hex_of(span.context.span));
  if (span.parent != 0) {
    json.key("parentSpanId").string(hex_of(span.parent));
  }
  json.key("name").string(span.name);
  json.key("kind").integer(static_cast<int>(span.kind));
  append_time(json, "startTimeUnixNano", span.begin, unix_offset);
  append_time(json, "endTimeUnixNano", span.end, unix_offset);
  json.key("attributes").begin_array();
  for (const auto& [key, value] : span.attributes) {
    append_attribute(json, key, value);
  }
  json.end_array();
  if (span.first_byte != Instant{}) {
    json.key("events").begin_array().begin_object();
    append_time(json, "timeUnixNano", span.first_byte, unix_offset);
    json.key("name").string("first_byte").end_object().end_array();
  }
  if (!span.error.empty()) {
    json.key("status").begin_object().key("code").integer(kStatusError);
    json.key("message").string(span.error).end_object();
  }
  json.end_object();
}

}  // namespace

// 00-<32 hex>-<16 hex>-<2 hex>; later versions may append more.
std::optional<TraceContext> parse_traceparent(std::string_view header) {
  if (header.size() < kTraceparentBytes || header[2] != '-' || header[35] != '-' ||
      header[52] != '-' || header.substr(0, 2) == "ff" ||
      (header.size() > kTraceparentBytes &&
       (header.substr(0, 2) == "00" || header[kTraceparentBytes] != '-'))) {
    return std::nullopt;
  }
  const std::string_view trace = header.substr(3, 32), span = header.substr(36, 16),
                         flags = header.substr(53, 2);
  if (!is_lower_hex(header.substr(0, 2)) || !is_lower_hex(trace) || !is_lower_hex(span) ||
      !is_lower_hex(flags)) {
    return std::nullopt;
  }
  const TraceContext context{.trace = *TransferId::parse(trace),
                             .span = *parse_hex(span),
                             .sampled = (*parse_hex(flags) & 1) != 0};
  return context.trace == TransferId{} || context.span == 0 ? std::nullopt : std::optional(context);
}

std::string traceparent(const TraceContext& context) {
  return "00-" + context.trace.to_string() + '-' + hex_of(context.span) +
         (context.sampled ? "-01" : "-00");
}

std::string otlp_traces(std::span<const Span> spans, std::string_view instance,
                        int64_t unix_offset) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().key("resourceSpans").begin_array().begin_object();
  json.key("resource").begin_object().key("attributes").begin_array();
  append_attribute(json, "service.name", "pdjob-router");
  append_attribute(json, "service.instance.id", instance);
  json.end_array().end_object();
  json.key("scopeSpans").begin_array().begin_object();
  json.key("scope").begin_object().key("name").string("pdjob").end_object();
  json.key("spans").begin_array();
  for (const Span& span : spans) {
    append_span(json, span, unix_offset);
  }
  json.end_array().end_object().end_array().end_object().end_array().end_object();
  return text;
}

}  // namespace pdjob::router
