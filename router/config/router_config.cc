#include "router/config/router_config.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "common/config/http_paths.h"
#include "router/recipes/router_recipe.h"

namespace pdjob::router {
namespace {

void read_policy(ConfigReader& in, const char* key, PolicyKind& policy, const char* doc) {
  in.field(key, policy,
           {{"round_robin", PolicyKind::kRoundRobin},
            {"least_loaded", PolicyKind::kLeastLoaded},
            {"power_of_two", PolicyKind::kPowerOfTwo},
            {"random", PolicyKind::kRandom},
            {"consistent_hash", PolicyKind::kConsistentHash},
            {"prefix_aware", PolicyKind::kPrefixAware},
            {"plugin", PolicyKind::kPlugin}},
           {doc});
}

void read_policies(ConfigReader& in, RouterConfig& config) {
  read_policy(in, "prefill_policy", config.prefill_policy,
              "How the prefill worker of a request is chosen.");
  read_policy(in, "decode_policy", config.decode_policy,
              "How the decode worker of a request is chosen.");
  in.field(
      "affinity", config.affinity, {{"session", Affinity::kSession}, {"model", Affinity::kModel}},
      {"What consistent_hash keeps at one worker: a session (x-session-id, or user), or a model "
       "name, so that an adapter (LoRA) stays loaded."});
  in.field(
      "pairing", config.pairing, {{"any", Pairing::kAny}, {"near", Pairing::kNear}},
      {"Which prefill workers the policy chooses from: any, or those on the machine of the decode "
       "worker, unless they have more to do by the prompt itself: KV then crosses no network."});
  in.field("measured_load", config.measured_load,
           {"Weigh the load of each worker by how long it takes for a token, as this router has "
            "measured: for workers of different speed."});
  in.path("policy_plugin", config.policy_plugin,
          {"Of policy plugin: the path of a shared library (router/policies/policy_plugin.h)."});
  in.field("policy_options", config.policy_options,
           {"Of policy plugin: what the library is told."});
  const bool wanted =
      config.prefill_policy == PolicyKind::kPlugin || config.decode_policy == PolicyKind::kPlugin;
  if (!config.policy_plugin.empty() && config.policy_plugin.find('/') == std::string::npos) {
    config.policy_plugin.insert(0, "./");  // The linker would look for a name elsewhere.
  }
  if (wanted && config.policy_plugin.empty()) {
    in.fail("policy_plugin", "is missing: which library is the policy plugin in?");
  }
  for (const char* key : {"policy_plugin", "policy_options"}) {
    if (!wanted && in.has(key)) {
      in.fail(key, "is for prefill_policy: plugin or decode_policy: plugin");
    }
  }
}

void read_command(ConfigReader& in, RouterConfig& config) {
  in.field("type", config.kind,
           {{"built_in", RouterKind::kBuiltIn}, {"command", RouterKind::kCommand}},
           {"pdjob's own router, or one of another make that is started by a recipe."});
  in.path("recipe", config.recipe,
          {"Of type command: vllm-router, sglang-router, ..., or the path of a recipe file "
           "(docs/how-to/other-routers.md)."},
          ".yaml");
  in.path("program", config.program, {"Of type command: instead of the recipe's program."}, "/");
  in.field("args", config.args, {"Of type command: more arguments, behind the recipe's."});
  if (config.kind == RouterKind::kBuiltIn) {
    for (const char* key : {"recipe", "program", "args"}) {
      if (in.has(key)) {
        in.fail(key, "is for a router of another make: add type: command");
      }
    }
    return;
  }
  if (const auto recipe = find_recipe(config.recipe); !recipe) {
    in.fail("recipe",
            config.recipe.empty() ? "is missing: which router is it?" : recipe.error().message);
  }
}

// The other keys are for pdjob's own router. Requires: every key has been declared.
void refuse_own_keys(ConfigReader& in, const RouterConfig& config) {
  static constexpr std::string_view kOfAnyRouter[] = {
      "type", "recipe", "program", "args", "listen", "replicas", "queue_timeout", "drain_timeout"};
  for (const std::string& key : in.keys()) {
    if (std::ranges::find(kOfAnyRouter, key) == std::end(kOfAnyRouter)) {
      in.fail(key, "is of pdjob's own router; " + config.recipe + " gets its options by args");
    }
  }
}

void read_memory(ConfigReader& in, RouterConfig& config) {
  in.field("request_bytes_max", config.request_bytes_max,
           {"Memory for requests that are alive, with the copies that workers are sent; beyond, "
            "requests are refused with 503. Each router of replicas has its own.",
            "bytes"},
           {.min = 4 * limits::kHttpBodyBytesMax, .max = uint64_t{1} << 40});
  in.field("tenant_request_bytes_max", config.tenant_request_bytes_max,
           {"The same of one tenant's requests; beyond, refused with 429. 0: a quarter of "
            "request_bytes_max.",
            "bytes"});
  if (config.tenant_request_bytes_max > 0 &&
      config.tenant_request_bytes_max < limits::kHttpBodyBytesMax) {
    in.fail("tenant_request_bytes_max", "must have room for one request: at least " +
                                            std::to_string(limits::kHttpBodyBytesMax) + ", or 0");
  }
}

bool is_origin(std::string_view text) {
  const size_t scheme = text.find("://");
  const bool plain = std::ranges::none_of(text, [](char c) { return c <= ' ' || c > '~'; });
  return text == "*" || text == "null" ||
         (plain && scheme != std::string_view::npos && scheme > 0 && scheme + 3 < text.size() &&
          text.find('/', scheme + 3) == std::string_view::npos);
}

void read_origins(ConfigReader& in, RouterConfig& config) {
  in.field("allowed_origins", config.allowed_origins,
           {"Web pages that may call this router from a browser (CORS), by their origins, such as "
            "https://chat.example; \"*\" is any page. Empty: none may."});
  for (const std::string& origin : config.allowed_origins) {
    if (!is_origin(origin)) {
      in.fail("allowed_origins",
              "an origin is scheme://host or scheme://host:port, without a path, got " + origin);
    }
  }
}

}  // namespace

void require_prefill_workers(ConfigReader& in, const RouterConfig& config,
                             const std::string& section) {
  const auto refuse = [&](const char* key, const char* why) { in.fail(section + key, why); };
  if (in.has(section + "fallback") && config.fallback == Fallback::kDecodeAlone) {
    refuse("fallback", "SGLang's decode workers prefill nothing by themselves: refuse");
  }
  if (config.bypass_tokens > 0) {
    refuse("bypass_tokens", "SGLang's decode workers prefill nothing by themselves: 0");
  }
  if (config.decode_prefills == DecodePrefills::kWaiting ||
      config.decode_prefills == DecodePrefills::kEven) {
    refuse("decode_prefills", "SGLang's decode workers prefill nothing by themselves: never");
  }
  if (config.bypass_busy_requests > 0) {
    refuse("bypass_busy_requests", "SGLang's prefill workers answer nothing by themselves: 0");
  }
  if (config.audit.share > 0) {
    refuse("audit.share",
           "SGLang's decode workers compute no prompt again by themselves: 0, and "
           "engine.features: [kv_checksum] lets SGLang check each transfer");
  }
}

bool goes_by_prefixes(const RouterConfig& config, net::Role role) {
  return (role == net::Role::kPrefill ? config.prefill_policy : config.decode_policy) ==
         PolicyKind::kPrefixAware;
}

bool listens_to_kv(const RouterConfig& config) {
  return (config.kv_events.port > 0 || config.kv_events.own_workers) &&
         (goes_by_prefixes(config, net::Role::kPrefill) ||
          goes_by_prefixes(config, net::Role::kDecode));
}

void read_tls(ConfigReader& in, const char* key, const char* doc, net::CertificateFiles& tls) {
  in.section(key, {doc}, [&tls](ConfigReader& section) {
    section.path("certificate", tls.certificate,
                 {"A PEM file: the certificate, then those that lead to its authority."});
    section.path("key", tls.key,
                 {"A PEM file with its key, readable for its owner only. Both files are "
                  "taken again when they change."});
    if (tls.on() && (tls.certificate.empty() || tls.key.empty())) {
      section.fail(tls.key.empty() ? "key" : "certificate",
                   "is missing: certificate and key come together");
    }
  });
}

void read(ConfigReader& in, RouterConfig& config) {
  using std::chrono::hours;
  using std::chrono::milliseconds;
  read_command(in, config);
  in.field("listen", config.listen,
           {"Where clients connect, as host:port; port 0 takes any free one."});
  read_tls(in, "tls", "Clients speak HTTPS, and nothing else. Without it: plain HTTP.", config.tls);
  in.field("replicas", config.replicas,
           {"Routers that share this address; the kernel gives each a share of the connections. "
            "Each has one thread."},
           {.min = 1, .max = 64});
  read_policies(in, config);
  in.field("prefill_in_flight", config.prefill_in_flight,
           {"Requests that a prefill worker has of this router at once; more wait for whoever has "
            "room first. 0: no limit.",
            "requests"},
           {.min = 0, .max = 65536});
  in.field("decode_in_flight", config.decode_in_flight,
           {"The same of a decode worker.", "requests"}, {.min = 0, .max = 65536});
  in.field("fallback", config.fallback,
           {{"decode_alone", Fallback::kDecodeAlone}, {"refuse", Fallback::kRefuse}},
           {"Without a prefill worker: let the decode worker prefill by itself, or refuse."});
  in.field(
      "bypass_tokens", config.bypass_tokens,
      {"A prompt of fewer tokens that the decode worker does not have already goes to it alone, "
       "without a hand-over. 0: none does.",
       "tokens"});
  in.field(
      "decode_prefills", config.decode_prefills,
      {{"auto", DecodePrefills::kAuto},
       {"never", DecodePrefills::kNever},
       {"waiting", DecodePrefills::kWaiting},
       {"even", DecodePrefills::kEven}},
      {"Which other prompts go to the decode worker alone. `auto`: all, if it shares its cores "
       "with "
       "a prefill worker of the job, because one worker can then use all of them; otherwise none. "
       "`waiting`: those that it would have computed before their turn came at the prefill worker. "
       "`even`: all while it has no more tokens of prompts to compute than the prefill worker. Its "
       "steps are then longer, by decode.local_chunk_tokens."});
  in.field("bypass_busy_requests", config.bypass_busy_requests,
           {"A prefill worker alone serves a request, prompt and answer, if the decode worker has "
            "so many requests more than it, or if there is none. 0: none does. Engines of pdjob "
            "only.",
            "requests"},
           {.min = 0, .max = 65536});
  in.field("protocol", config.protocol,
           {{"auto", Protocol::kAuto},
            {"pdjob", Protocol::kPdjob},
            {"nixl", Protocol::kNixl},
            {"nixl_push", Protocol::kNixlPush},
            {"mooncake", Protocol::kMooncake},
            {"sglang", Protocol::kSglang}},
           {"Of workers given by address (pdjob router): whatever each one speaks, pdjob workers "
            "only, vLLM's NixlConnector (two hops), NixlPushConnector or MooncakeConnector, or "
            "SGLang's bootstrap."});
  in.field(
      "engine_routes", config.engine_routes,
      {"Of engines of other makes that are given by address: paths of POSTs that they serve and "
       "that pdjob passes on unread. Empty: those of vLLM, or with protocol sglang those of "
       "SGLang."});
  check_engine_paths(in, "engine_routes", config.engine_routes);
  in.field("open_adapters", config.open_adapters,
           {"Without tenants: every client may load and unload adapters (LoRA) of the workers' "
            "engines. Otherwise only tenants with admin: true may."});
  in.field("bootstrap_port", config.bootstrap_port,
           {"With protocol mooncake and sglang: of a prefill worker's bootstrap server, where its "
            "URL does not "
            "end in ?bootstrap_port=N."},
           {.min = 1, .max = 65535});
  if (config.protocol == Protocol::kSglang) {
    require_prefill_workers(in, config, "");
  }
  in.field("attempts", config.attempts,
           {"Pairs of workers tried before the first byte of the reply, not counting those that "
            "cannot be reached."},
           {.min = 1, .max = 16});
  in.field(
      "retry_budget", config.retry_budget,
      {"Requests that are tried again because a worker answered badly, as a share of all; beyond, "
       "the answer is passed on. What was lost with a worker is always tried again."},
      {.min = 0, .max = 16});
  in.field(
      "hedge_quantile", config.hedge_quantile,
      {"A prefill that takes longer, for its tokens, than this share of the others is tried at "
       "another pair beside it; the first answer counts. 0: none is; 0.95 is a good value."},
      {.min = 0, .max = 0.999});
  in.field(
      "continuations", config.continuations,
      {"Times that a stream may go on at another decode worker, from the token where its own one "
       "died. 0: it breaks off."},
      {.min = 0, .max = 16});
  in.field("request_timeout", config.request_timeout,
           {"A request ends after this time, finished or not."},
           {.min = milliseconds(100), .max = hours(24 * 7)});
  in.field("queue_timeout", config.queue_timeout,
           {"A request waits this long for a usable pair of workers."},
           {.min = milliseconds(0), .max = hours(24)});
  in.field("connect_timeout", config.connect_timeout, {"For a connection to a worker."},
           {.min = milliseconds(10), .max = std::chrono::minutes(1)});
  in.field("drain_timeout", config.drain_timeout,
           {"On shutdown, requests may finish for this long."},
           {.min = milliseconds(0), .max = hours(24)});
  in.field("requests_max", config.requests_max,
           {"Requests alive at once; more are refused with Retry-After.", "requests"},
           {.min = 1, .max = 65536});
  in.field("queue_max", config.queue_max,
           {"Requests that wait; beyond, whoever would be served last is refused with Retry-After.",
            "requests"},
           {.min = 1, .max = 65536});
  read_origins(in, config);
  read_memory(in, config);
  read(in, config.tenants);
  read(in, config.audit);
  read(in, config.cache);
  read(in, config.kv_events);
  if (config.kv_events.port > 0 && config.prefill_policy != PolicyKind::kPrefixAware &&
      config.decode_policy != PolicyKind::kPrefixAware) {
    in.fail("kv_events", "is for prefill_policy: prefix_aware or decode_policy: prefix_aware");
  }
  read(in, config.tracing);
  read(in, config.async);
  if (config.replicas > 1 && !config.async.file.empty()) {
    in.fail("async", "is for one router, and replicas is " + std::to_string(config.replicas));
  }
  if (config.kind == RouterKind::kCommand) {
    refuse_own_keys(in, config);
  }
}

void take_live_keys(const RouterConfig& from, RouterConfig& to) {
  to.pairing = from.pairing;
  to.measured_load = from.measured_load;
  to.prefill_in_flight = from.prefill_in_flight;
  to.decode_in_flight = from.decode_in_flight;
  to.fallback = from.fallback;
  to.bypass_tokens = from.bypass_tokens;
  to.decode_prefills = from.decode_prefills;
  to.bypass_busy_requests = from.bypass_busy_requests;
  to.attempts = from.attempts;
  to.retry_budget = from.retry_budget;
  to.hedge_quantile = from.hedge_quantile;
  to.continuations = from.continuations;
  to.queue_timeout = from.queue_timeout;
  to.connect_timeout = from.connect_timeout;
  to.requests_max = from.requests_max;
  to.queue_max = from.queue_max;
  take_limits(from.tenants, to.tenants);
}

}  // namespace pdjob::router
