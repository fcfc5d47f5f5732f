// The HTTP headers that mean something to pdjob beyond HTTP itself: their names, and one list of
// what they say (`pdjob reference headers`). Values.
#pragma once

#include <string>
#include <string_view>

namespace pdjob::openai {

namespace header {

// Clients send these.
inline constexpr std::string_view kRequestId = "x-request-id";
inline constexpr std::string_view kSessionId = "x-session-id";
inline constexpr std::string_view kRoutingKey = "x-smg-routing-key";
inline constexpr std::string_view kRequestTimeout = "x-request-timeout-ms";
inline constexpr std::string_view kTraceParent = "traceparent";
inline constexpr std::string_view kCache = "x-pdjob-cache";
inline constexpr std::string_view kCallback = "x-pdjob-callback";
inline constexpr std::string_view kPinPrefill = "x-pdjob-pin-prefill";
inline constexpr std::string_view kPinDecode = "x-pdjob-pin-decode";
// From a router to a worker, too.
inline constexpr std::string_view kBackground = "x-pdjob-background";
inline constexpr std::string_view kProgress = "x-pdjob-progress";

// From a router to a worker.
inline constexpr std::string_view kTenant = "x-pdjob-tenant";
inline constexpr std::string_view kLeg = "x-pdjob-leg";
inline constexpr std::string_view kKvStore = "x-pdjob-kv-store";
inline constexpr std::string_view kKvElsewhere = "x-pdjob-kv-elsewhere";
// Between routers and the process of the Batch API.
inline constexpr std::string_view kBatchTenant = "x-pdjob-batch-tenant";
inline constexpr std::string_view kContinue = "x-pdjob-continue";
inline constexpr std::string_view kDataParallelRank = "x-data-parallel-rank";

// In replies.
inline constexpr std::string_view kPrefill = "x-pdjob-prefill";
inline constexpr std::string_view kDecode = "x-pdjob-decode";
inline constexpr std::string_view kNotHeld = "x-pdjob-not-held";
inline constexpr std::string_view kDegraded = "x-pdjob-degraded";
inline constexpr std::string_view kWorker = "x-pdjob-worker";
inline constexpr std::string_view kKvBytes = "x-pdjob-kv-bytes";
inline constexpr std::string_view kKvSeconds = "x-pdjob-kv-seconds";
inline constexpr std::string_view kKvVisibleSeconds = "x-pdjob-kv-visible-seconds";
inline constexpr std::string_view kKvTransport = "x-pdjob-kv-transport";
inline constexpr std::string_view kKvSuspect = "x-pdjob-kv-suspect";
inline constexpr std::string_view kAborted = "x-pdjob-aborted";
inline constexpr std::string_view kRateLimit = "x-ratelimit-";
// In interim responses (103).
inline constexpr std::string_view kTokens = "x-pdjob-tokens";

}  // namespace header

// The names of replies' headers, for pages of other origins.
std::string exposed_headers();
// Every header, as Markdown tables.
std::string header_reference();

}  // namespace pdjob::openai
