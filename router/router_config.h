// The `router:` section. Value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config_reader.h"
#include "common/limits.h"
#include "common/time.h"
#include "router/async_config.h"
#include "router/cache_config.h"
#include "router/kv_events_config.h"
#include "router/tenant_config.h"
#include "router/tracing_config.h"

namespace pdjob::router {

enum class PolicyKind {
  kRoundRobin,
  kLeastLoaded,
  kPowerOfTwo,
  kRandom,
  kConsistentHash,
  kPrefixAware,
  kPlugin,  // A shared library (policy_plugin.h).
};
const char* to_string(PolicyKind kind);

// What happens to a request when a decode worker is there but no prefill worker is.
enum class Fallback {
  kDecodeAlone,  // The decode worker prefills by itself: slower, counted and warned of as degraded.
  kRefuse,       // It waits, and is refused after queue_timeout.
};

// What consistent_hash keeps together.
enum class Affinity {
  kSession,  // Requests of one session: x-session-id, or `user`.
  kModel,    // Requests of one model name: an adapter (LoRA) stays loaded where it is.
};

// Whom the policy may choose to prefill for a decode worker.
enum class Pairing {
  kAny,
  kNear,  // Those of its machine, while they have little more to do: KV then crosses no network.
};

// How a hand-over is told to workers that the router is given by address.
enum class Protocol {
  kAuto,      // Concurrent legs to pdjob workers, the two-hop to any other engine.
  kPdjob,     // Only pdjob workers are taken.
  kNixl,      // vLLM's two-hop to all of them.
  kNixlPush,  // vLLM's NixlPushConnector: both legs at once, but for the first of a prefill worker.
  kMooncake,  // vLLM's MooncakeConnector: both legs at once, by the prefill worker's bootstrap
              // server.
  kSglang,    // Both at once, to meet in a room of the prefill worker's bootstrap server.
};

enum class RouterKind {
  kBuiltIn,
  kCommand,  // A router of another make, as its recipe says (router_recipe.h).
};

struct RouterConfig {
  RouterKind kind = RouterKind::kBuiltIn;
  std::string recipe;             // kCommand.
  std::string program;            // Instead of the recipe's; may be empty.
  std::vector<std::string> args;  // Behind the recipe's.
  std::string listen = "127.0.0.1:8000";
  uint32_t replicas = 1;  // Processes that share `listen`.
  PolicyKind prefill_policy = PolicyKind::kLeastLoaded;
  PolicyKind decode_policy = PolicyKind::kLeastLoaded;
  Affinity affinity = Affinity::kSession;
  Pairing pairing = Pairing::kAny;
  // Loads of slower workers count for more, as measured (worker_pace.h).
  bool measured_load = false;
  std::string policy_plugin;   // kPlugin: its path.
  std::string policy_options;  // And what it is told.
  // Requests that one worker has of this router at once; more wait here, and go to whoever has room
  // first. 0: no limit.
  uint32_t prefill_in_flight = 0;
  uint32_t decode_in_flight = 0;
  Fallback fallback = Fallback::kDecodeAlone;
  // A prompt of which the decode worker would have to compute fewer tokens than this goes to it
  // alone. An estimate: four bytes of the request are a token.
  uint32_t bypass_tokens = 0;
  uint32_t attempts = 3;  // Pairs tried before the first byte reached the client.
  // Bad answers of workers that are tried again, as a share of the requests (retry_budget.h).
  double retry_budget = 0.2;
  // A prefill that takes longer, for its tokens, than this share of them is tried at another pair,
  // too (prefill_pace.h). 0: none is.
  double hedge_quantile = 0;
  uint32_t continuations = 3;  // Times that a stream goes on at another worker. 0: it breaks off.
  Duration request_timeout = std::chrono::hours(1);
  Duration queue_timeout = std::chrono::seconds(30);   // Wait for a pair this long, then 503.
  Duration connect_timeout = std::chrono::seconds(2);  // To a worker.
  Protocol protocol = Protocol::kAuto;
  uint16_t bootstrap_port = 8998;  // Of prefill workers, unless their own URL says otherwise.
  Duration drain_timeout = std::chrono::seconds(30);  // On SIGTERM; then what is alive is cut.
  uint32_t requests_max = 4096;  // Alive at once; beyond: 503 with Retry-After.
  uint32_t queue_max = 1024;     // That wait; beyond, who would be served last is refused.
  // Of all requests that are in memory, with the copies that legs send; beyond: 503.
  uint64_t request_bytes_max = limits::kHttpHeldBytesMax;
  uint64_t tenant_request_bytes_max = 0;  // Of one tenant; beyond: 429. 0: a quarter of that.
  std::vector<TenantConfig> tenants;
  // No key: those of a job, which exist even while nobody serves them. A router by hand knows only
  // those of its workers.
  std::vector<std::string> models;
  // No key: workers want keys of their own, so a client's Authorization is never theirs.
  bool own_keys = false;
  bool hears_losses = false;  // No key: a launcher says why workers were lost.
  CacheConfig cache;
  KvEventsConfig kv_events;
  AsyncConfig async;
  TracingConfig tracing;
};

// Some policy goes by what workers say of their prefix caches.
bool listens_to_kv(const RouterConfig& config);

void read(ConfigReader& in, RouterConfig& config);

}  // namespace pdjob::router
