// Spans of requests as OpenTelemetry's collectors take them: JSON over HTTP (OTLP 1.x,
// opentelemetry/proto/trace/v1/trace.proto). Also the header that links them (W3C Trace Context).
// Values. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/id.h"
#include "common/time.h"

namespace pdjob::router {

struct TraceContext {
  TransferId trace;   // 128 bits, not all zero.
  uint64_t span = 0;  // Not zero.
  bool sampled = true;
};

// Empty if the header is missing or unusable; a new trace then begins here.
std::optional<TraceContext> parse_traceparent(std::string_view header);
std::string traceparent(const TraceContext& context);

struct Span {
  enum class Kind { kServer = 2, kClient = 3 };  // OTLP's numbers.

  std::string name;
  Kind kind = Kind::kServer;
  TraceContext context;
  uint64_t parent = 0;  // 0: none.
  Instant begin{};
  Instant end{};
  Instant first_byte{};  // An event of that name; zero: none.
  std::vector<std::pair<std::string_view, std::string>> attributes;
  std::string error;  // Empty: success.
};

// Returns the body of one export. `unix_offset`: nanoseconds of the wall clock at instant zero.
std::string otlp_traces(std::span<const Span> spans, std::string_view instance,
                        int64_t unix_offset);

}  // namespace pdjob::router
