// The `router:` section. Value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config/config_reader.h"
#include "common/limits.h"
#include "common/time.h"
#include "net/control/message.h"
#include "net/http/http_client.h"
#include "net/tls/server_tls.h"
#include "router/config/async_config.h"
#include "router/config/audit_config.h"
#include "router/config/cache_config.h"
#include "router/config/kv_events_config.h"
#include "router/config/tenant_config.h"
#include "router/config/tracing_config.h"

namespace pdjob::router {

using net::Protocol;

enum class PolicyKind {
  kRoundRobin,
  kLeastLoaded,
  kPowerOfTwo,
  kRandom,
  kConsistentHash,
  kPrefixAware,
  kPlugin,  // A shared library (policy_plugin.h).
};

// The action for a request if there is a decode worker but no prefill worker.
enum class Fallback {
  kDecodeAlone,  // The decode worker prefills by itself: slower; counted and logged as degraded.
  kRefuse,       // It waits, and is refused after queue_timeout.
};

// The requests that consistent_hash sends to the same worker.
enum class Affinity {
  kSession,  // Requests of one session: x-session-id, or `user`.
  kModel,    // Requests of one model name: an adapter (LoRA) stays loaded where it is.
};

// Prefill workers that the policy may choose for a decode worker.
enum class Pairing {
  kAny,
  kNear,  // Those of its machine, unless much busier: KV then crosses no network.
};

enum class RouterKind {
  kBuiltIn,
  kCommand,  // An external router, started by its recipe (router_recipe.h).
};

// Where the job's process of the Batch API listens, and the keys of both. Not of the file.
struct BatchDoor {
  net::HttpAddress address;
  std::string key;              // Of its port; empty: there is no such process.
  std::string rows_key;         // It shows this one, and names the tenant whose row it sends.
  uint64_t body_bytes_max = 0;  // Of an upload.
};

// Where a trainer sends its orders. Not of the file.
struct ControlDoor {
  bool on = false;
  bool same_address = false;  // Beside the API. Otherwise at `listen`.
  std::string listen;
  std::string key;      // Empty: everybody may give orders.
  Duration patience{};  // How long an order may take.
};

// Which prompts a decode worker computes although there is a prefill worker: all if it shares its
// cores with one (net::WorkerEntry), otherwise none; none; those that it would have computed before
// their turn came there; or all while it has no more to compute.
enum class DecodePrefills { kAuto, kNever, kWaiting, kEven };

// Declares a section with `certificate` and `key`, which come together.
void read_tls(ConfigReader& in, const char* key, const char* doc, net::CertificateFiles& tls);

struct RouterConfig {
  RouterKind kind = RouterKind::kBuiltIn;
  std::string recipe;             // For kCommand.
  std::string program;            // Replaces the recipe's program; may be empty.
  std::vector<std::string> args;  // Appended to the recipe's.
  std::string listen = "127.0.0.1:8000";
  net::CertificateFiles tls;  // Not on(): clients speak plain HTTP.
  uint32_t replicas = 1;      // Processes that share `listen`.
  PolicyKind prefill_policy = PolicyKind::kLeastLoaded;
  PolicyKind decode_policy = PolicyKind::kLeastLoaded;
  Affinity affinity = Affinity::kSession;
  Pairing pairing = Pairing::kAny;
  // Scales loads by each worker's measured pace, so slower workers count for more (worker_pace.h).
  bool measured_load = false;
  std::string policy_plugin;   // Path of the library, for kPlugin.
  std::string policy_options;  // Passed to it.
  // Requests of this router that one worker has at once. More wait here, and go to the first worker
  // with room. 0: no limit.
  uint32_t prefill_in_flight = 0;
  uint32_t decode_in_flight = 0;
  Fallback fallback = Fallback::kDecodeAlone;
  // The decode worker alone serves a prompt of which it must compute fewer tokens than this. An
  // estimate: four bytes of the request are a token.
  uint32_t bypass_tokens = 0;
  DecodePrefills decode_prefills = DecodePrefills::kAuto;
  // A prefill worker alone serves a request if the decode worker has so many requests more. 0: none
  // does.
  uint32_t bypass_busy_requests = 0;
  uint32_t attempts = 3;  // Pairs tried before the first byte of a reply.
  // Retries after a bad answer, as a share of the requests (retry_budget.h).
  double retry_budget = 0.2;
  // A prefill slower, for its tokens, than this share of all prefills is hedged: another pair is
  // tried, too (prefill_pace.h). 0: no hedging.
  double hedge_quantile = 0;
  uint32_t continuations = 3;  // Moves of a stream to another worker. 0: it breaks off.
  Duration request_timeout = std::chrono::hours(1);
  Duration queue_timeout = std::chrono::seconds(30);   // To wait for a pair, then 503.
  Duration connect_timeout = std::chrono::seconds(2);  // To a worker.
  // The dialect of workers that the router knows by address. kAuto: pdjob workers describe
  // themselves. Any other engine is used in two hops. kPdjob: only pdjob workers are accepted.
  Protocol protocol = Protocol::kAuto;
  // Of engines of other makes that are given by address: net::WorkerEntry::routes. Empty: what the
  // make that speaks `protocol` serves (router/members/engine_routes.h).
  std::vector<std::string> engine_routes;
  bool open_adapters = false;      // Without tenants, every client may load and unload adapters.
  uint16_t bootstrap_port = 8998;  // Of prefill workers, unless their URL says otherwise.
  Duration drain_timeout = std::chrono::seconds(30);  // On SIGTERM; then the rest is cut off.
  uint32_t requests_max = 4096;  // Unfinished ones; beyond: 503 with Retry-After.
  uint32_t queue_max = 1024;     // Waiting ones; beyond, the last to be served is refused.
  // For all requests in memory, with the copies that legs send; beyond: 503.
  uint64_t request_bytes_max = limits::kHttpHeldBytesMax;
  uint64_t tenant_request_bytes_max = 0;  // For one tenant; beyond: 429. 0: a quarter of that.
  std::vector<TenantConfig> tenants;
  // Not a key: the job's models, which exist even while no worker serves them. A stand-alone router
  // knows only its workers' models.
  std::vector<std::string> models;
  // Not a key: workers want keys of their own, so a client's Authorization is never for them.
  bool own_keys = false;
  BatchDoor batches;          // Not a key.
  ControlDoor control;        // Not a key.
  std::string probe_key;      // Not a key of the file: only the launcher's probes show it.
  bool hears_losses = false;  // Not a key: a launcher reports why workers were lost.
  std::vector<std::string> allowed_origins;  // CORS; "*": any. Empty: off.
  AuditConfig audit;
  CacheConfig cache;
  KvEventsConfig kv_events;
  AsyncConfig async;
  TracingConfig tracing;
};

// Whether the policy that picks workers of this role goes by the prefixes that they hold.
bool goes_by_prefixes(const RouterConfig& config, net::Role role);
// True if a policy uses what workers report of their prefix caches.
bool listens_to_kv(const RouterConfig& config);

void read(ConfigReader& in, RouterConfig& config);
// SGLang's engines serve nothing without the other role: errors where the router shall let them.
// `section`: where the router's keys are, such as "router."; may be empty.
void require_prefill_workers(ConfigReader& in, const RouterConfig& config,
                             const std::string& section);

// Copies the keys that a router takes over while it runs: limits, times and numbers, also those of
// tenants that both have in the same place. It keeps all others.
void take_live_keys(const RouterConfig& from, RouterConfig& to);

}  // namespace pdjob::router
