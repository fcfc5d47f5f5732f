#include "router/config/router_config.h"

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

TEST(RouterConfig, ReadsEveryKey) {
  ConfigReader in = ConfigReader::parse(
      "job.yaml",
      "listen: 0.0.0.0:80\nprefill_policy: round_robin\ndecode_policy: power_of_two\n"
      "fallback: refuse\nattempts: 5\nrequest_timeout: 5s\nqueue_timeout: 250ms\n"
      "connect_timeout: 1s\ndrain_timeout: 2s\nrequests_max: 7\n");
  RouterConfig config;
  read(in, config);
  EXPECT_EQ(in.finish(), "");
  EXPECT_EQ(config.listen, "0.0.0.0:80");
  EXPECT_EQ(config.prefill_policy, PolicyKind::kRoundRobin);
  EXPECT_EQ(config.decode_policy, PolicyKind::kPowerOfTwo);
  EXPECT_EQ(config.fallback, Fallback::kRefuse);
  EXPECT_EQ(config.attempts, 5U);
  EXPECT_EQ(config.queue_timeout, std::chrono::milliseconds(250));
  EXPECT_EQ(config.requests_max, 7U);
}

TEST(RouterConfig, APolicyPluginIsNamedByAPathAndOnlyWhereItIsWanted) {
  RouterConfig config;
  const auto errors_of = [&config](const std::string& text) {
    ConfigReader in = ConfigReader::parse("folder/job.yaml", text);
    config = {};
    read(in, config);
    return in.finish();
  };
  EXPECT_EQ(errors_of("decode_policy: plugin\npolicy_plugin: ./mine.so\npolicy_options: x\n"), "");
  EXPECT_NE(errors_of("decode_policy: plugin\n").find("policy_plugin: is missing"),
            std::string::npos);
  EXPECT_EQ(errors_of("prefill_policy: plugin\npolicy_plugin: mine.so\n"), "");
  EXPECT_EQ(config.policy_plugin, "folder/mine.so");
  EXPECT_NE(errors_of("policy_plugin: ./mine.so\n").find("is for prefill_policy: plugin"),
            std::string::npos);
}

TEST(RouterConfig, AllowedOriginsHaveNoPath) {
  RouterConfig config;
  const auto errors_of = [&config](const std::string& text) {
    ConfigReader in = ConfigReader::parse("job.yaml", text);
    config = {};
    read(in, config);
    return in.finish();
  };
  EXPECT_EQ(errors_of("listen: 127.0.0.1:0\n"), "");
  EXPECT_TRUE(config.allowed_origins.empty()) << "off by default";
  EXPECT_EQ(errors_of("allowed_origins: [\"*\", \"http://localhost:3000\", \"app://x\"]\n"), "");
  EXPECT_EQ(config.allowed_origins.size(), 3U);
  for (const char* wrong :
       {"chat.example", "https://chat.example/", "https://a b", "", "https://"}) {
    EXPECT_NE(errors_of("allowed_origins: [\"" + std::string(wrong) + "\"]\n").find("an origin is"),
              std::string::npos)
        << wrong;
  }
}

TEST(RouterConfig, NeedsPrefillWorkersForSglang) {
  RouterConfig config;
  ConfigReader well = ConfigReader::parse("job.yaml", "protocol: sglang\nbootstrap_port: 8999\n");
  read(well, config);
  EXPECT_EQ(well.finish(), "");
  EXPECT_EQ(config.protocol, Protocol::kSglang);
  EXPECT_EQ(config.bootstrap_port, 8999);
  for (const char* key : {"fallback: decode_alone\n", "bypass_tokens: 5\n",
                          "decode_prefills: even\n", "bypass_busy_requests: 5\n"}) {
    ConfigReader badly = ConfigReader::parse("job.yaml", std::string("protocol: sglang\n") + key);
    RouterConfig refused;
    read(badly, refused);
    EXPECT_NE(badly.finish(), "") << key;
  }
}

TEST(RouterConfig, EventsOfCachesAreForThePolicyThatLooksAtThem) {
  const auto errors_of = [](const std::string& text) {
    ConfigReader in = ConfigReader::parse("job.yaml", text);
    RouterConfig config;
    read(in, config);
    return in.finish();
  };
  const std::string events = "kv_events: {port: 5557, replay_port: 5558, topic: kv}\n";
  EXPECT_EQ(errors_of("prefill_policy: prefix_aware\n" + events), "");
  EXPECT_EQ(errors_of("decode_policy: prefix_aware\n" + events), "");
  EXPECT_NE(errors_of(events).find("kv_events: is for prefill_policy: prefix_aware"),
            std::string::npos);
  EXPECT_NE(errors_of("kv_events: {replay_port: 5558}\n").find("kv_events.port: is missing"),
            std::string::npos);
}

TEST(RouterConfig, ReadsTenants) {
  const std::string key(64, 'a');
  ConfigReader in = ConfigReader::parse(
      "job.yaml", "tenants:\n  alice: {key_sha256: " + key +
                      ", weight: 3, tokens_per_minute: 1000}\n  bob: {key_sha256: " +
                      std::string(64, 'b') + ", priority: 2}\n");
  RouterConfig config;
  read(in, config);
  EXPECT_EQ(in.finish(), "");
  ASSERT_EQ(config.tenants.size(), 2U);
  EXPECT_EQ(config.tenants[0].name, "alice");
  EXPECT_EQ(config.tenants[0].key_sha256, key);
  EXPECT_EQ(config.tenants[0].weight, 3U);
  EXPECT_EQ(config.tenants[1].priority, 2U);
}

TEST(RouterConfig, ReadsTheCache) {
  ConfigReader in = ConfigReader::parse(
      "job.yaml",
      "cache:\n  bytes_max: 1000\n  ttl: 5s\n  similarity: {url: \"h:80\", threshold: 0.8}\n");
  RouterConfig config;
  EXPECT_EQ(config.cache.bytes_max, 0U) << "off by default";
  read(in, config);
  EXPECT_EQ(in.finish(), "");
  EXPECT_EQ(config.cache.bytes_max, 1000U);
  EXPECT_EQ(config.cache.ttl, std::chrono::seconds(5));
  EXPECT_EQ(config.cache.similarity.url, "h:80");
  EXPECT_EQ(config.cache.similarity.threshold, 0.8);
}

TEST(RouterConfig, RefusesAsyncRequestsOfSeveralRouters) {
  ConfigReader in =
      ConfigReader::parse("job.yaml", "replicas: 2\nasync: {file: /tmp/requests.db}\n");
  RouterConfig config;
  read(in, config);
  EXPECT_NE(in.finish().find("async: is for one router"), std::string::npos);
}

TEST(RouterConfig, ReadsWhoMayBeCalledBack) {
  const auto errors_of = [](const std::string& text) {
    ConfigReader in = ConfigReader::parse("job.yaml", text);
    RouterConfig config;
    read(in, config);
    return in.finish();
  };
  ConfigReader in = ConfigReader::parse(
      "job.yaml",
      "async: {file: f, callbacks: {allowed: [a, 'b:9'], secret_file: s, attempts: 2, "
      "timeout: 3s, wait_max: 4s, in_flight_max: 5}}\n");
  RouterConfig config;
  read(in, config);
  EXPECT_EQ(in.finish(), "");
  const CallbackConfig& callbacks = config.async.callbacks;
  EXPECT_EQ(callbacks.allowed, (std::vector<std::string>{"a", "b:9"}));
  EXPECT_EQ(callbacks.secret_file, "s");
  EXPECT_EQ(callbacks.attempts, 2U);
  EXPECT_EQ(callbacks.timeout, std::chrono::seconds(3));
  EXPECT_EQ(callbacks.wait_max, std::chrono::seconds(4));
  EXPECT_EQ(callbacks.in_flight_max, 5U);
  EXPECT_NE(errors_of("async: {callbacks: {allowed: [a]}}\n").find("file is missing"),
            std::string::npos);
  EXPECT_NE(errors_of("async: {file: f, callbacks: {allowed: ['http://a']}}\n")
                .find("must be host, host:port or a block such as 10.0.0.0/8, got http://a"),
            std::string::npos);
  std::string many = "x";
  for (int i = 0; i < 64; ++i) {
    many += ", x";
  }
  EXPECT_NE(errors_of("async: {file: f, callbacks: {allowed: [" + many + "]}}\n")
                .find("must be at most 64, got 65"),
            std::string::npos);
}

TEST(RouterConfig, LetsARouterOfAnotherMakeHaveNoKeyOfOurs) {
  const auto errors_of = [](const std::string& keys) {
    ConfigReader in =
        ConfigReader::parse("job.yaml", "type: command\nrecipe: vllm-router\n" + keys);
    RouterConfig config;
    read(in, config);
    return in.finish();
  };
  EXPECT_EQ(errors_of("program: p\nargs: [a]\nlisten: 'h:1'\nreplicas: 1\nqueue_timeout: 1s\n"
                      "drain_timeout: 1s\n"),
            "");
  for (const char* key :
       {"attempts: 3\n", "cache: {}\n", "async: {}\n", "decode_policy: random\n"}) {
    EXPECT_NE(errors_of(key).find("is of pdjob's own router; vllm-router gets its options by args"),
              std::string::npos)
        << key;
  }
  const std::string unknown = errors_of("atempts: 3\n");
  EXPECT_NE(unknown.find("unknown key"), std::string::npos) << unknown;
  EXPECT_EQ(unknown.find("own router"), std::string::npos) << unknown;
}

TEST(RouterConfig, RefusesSimilarityWithoutACacheOrAnAddress) {
  ConfigReader in = ConfigReader::parse(
      "job.yaml", "cache:\n  similarity: {url: \"https://embedder/v1\", threshold: 1.5}\n");
  RouterConfig config;
  read(in, config);
  const std::string errors = in.finish();
  EXPECT_NE(errors.find("cache.similarity.url: must be http://host:port"), std::string::npos)
      << errors;
  EXPECT_NE(errors.find("cache.similarity.threshold"), std::string::npos);
  EXPECT_NE(errors.find("cache.similarity: needs a cache: set bytes_max"), std::string::npos);
}

TEST(RouterConfig, RefusesTenantsThatNameNobody) {
  for (const char* text : {"tenants: {}\n", "tenants:\n  # alice: {}\nattempts: 2\n"}) {
    ConfigReader in = ConfigReader::parse("job.yaml", text);
    RouterConfig config;
    read(in, config);
    EXPECT_NE(in.finish().find(": tenants: names nobody: add a tenant, or remove "
                               "`tenants` to let everybody in without a key"),
              std::string::npos)
        << text;
  }
}

TEST(RouterConfig, RefusesTenantsWhoseNamesCannotTravelInAHeader) {
  const std::string key(64, 'a');
  for (const char* name : {"\"a\\nb: c\"", "\" a\"", "\"\\u00e9\""}) {
    ConfigReader in = ConfigReader::parse(
        "job.yaml", std::string("tenants:\n  ") + name + ": {key_sha256: " + key + "}\n");
    RouterConfig config;
    read(in, config);
    EXPECT_NE(in.finish().find("printable ASCII"), std::string::npos) << name;
  }
}

TEST(RouterConfig, MemoryOfATenantHasRoomForOneRequest) {
  ConfigReader in = ConfigReader::parse(
      "job.yaml", "request_bytes_max: 200000000\ntenant_request_bytes_max: 1\n");
  RouterConfig config;
  read(in, config);
  EXPECT_EQ(config.request_bytes_max, 200'000'000U);
  EXPECT_NE(in.finish().find("tenant_request_bytes_max: must have room for one request"),
            std::string::npos);
}

TEST(RouterConfig, RefusesTenantsWithoutAKeyOrWithAnothers) {
  const std::string key(64, 'a');
  ConfigReader in = ConfigReader::parse(
      "job.yaml", "tenants:\n  a: {key_sha256: sk-plain}\n  b: {key_sha256: " + key +
                      "}\n  c: {key_sha256: " + key + "}\n  d: {wieght: 2}\n");
  RouterConfig config;
  read(in, config);
  const std::string errors = in.finish();
  EXPECT_NE(errors.find("job.yaml:2:19: tenants.a.key_sha256: must be a SHA-256"),
            std::string::npos)
      << errors;
  EXPECT_NE(errors.find("tenants.c.key_sha256: another tenant has the same key"),
            std::string::npos);
  EXPECT_NE(errors.find("tenants.d.wieght"), std::string::npos);
}

TEST(RouterConfig, LiveKeysAreLimitsAndTimes) {
  RouterConfig asked;
  asked.listen = "127.0.0.1:9";
  asked.prefill_policy = PolicyKind::kRandom;
  asked.request_timeout = std::chrono::seconds(1);
  asked.queue_timeout = std::chrono::seconds(1);
  asked.attempts = 7;
  asked.tenants = {{.name = "a", .key_sha256 = "x", .requests_max = 5},
                   {.name = "b", .key_sha256 = "y", .requests_max = 5}};
  RouterConfig config;
  config.tenants = {{.name = "a", .key_sha256 = "x"}, {.name = "b", .key_sha256 = "z"}};
  take_live_keys(asked, config);
  EXPECT_EQ(config.queue_timeout, std::chrono::seconds(1));
  EXPECT_EQ(config.attempts, 7U);
  EXPECT_EQ(config.tenants[0].requests_max, 5U);
  EXPECT_EQ(config.tenants[1].requests_max, 0U) << "its key is another one";
  EXPECT_EQ(config.listen, RouterConfig().listen);
  EXPECT_EQ(config.prefill_policy, RouterConfig().prefill_policy);
  EXPECT_EQ(config.request_timeout, RouterConfig().request_timeout);
}

TEST(RouterConfig, RefusesWhatIsOutOfBounds) {
  ConfigReader in =
      ConfigReader::parse("job.yaml", "attempts: 0\nrequests_max: 0\nfallback: hope\n");
  RouterConfig config;
  read(in, config);
  const std::string errors = in.finish();
  for (const char* key : {"attempts", "requests_max", "fallback"}) {
    EXPECT_NE(errors.find(key), std::string::npos) << errors;
  }
}

}  // namespace
}  // namespace pdjob::router
