// Admission: may this request come in? Knows the tenants by the hash of their keys, and holds each
// to its rates and its number of requests. Refusals say when to come again. Without tenants
// everybody is let in.
//
// Rates are token buckets that hold one minute's worth. The cost of a request is what it may come
// to: its prompt, estimated, and the most tokens that it asks for, as OpenAI counts it. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "common/time.h"
#include "net/openai.h"
#include "router/tenant_config.h"

namespace pdjob::router {

enum class DenialReason { kNoKey, kWrongKey, kTooLarge, kRequestRate, kTokenRate, kConcurrency };
inline constexpr size_t kDenialReasons = 6;
const char* to_string(DenialReason reason);

class Admission {
 public:
  explicit Admission(std::vector<TenantConfig> tenants);

  bool open_to_all() const { return tenants_.empty(); }

  using Tenant = uint32_t;  // Index into tenants(); 0 where there are none.
  using Headers = std::vector<std::pair<std::string, std::string>>;
  struct Denial {
    DenialReason reason;
    net::ApiError error;
    uint32_t retry_after_seconds = 0;  // 0: not said.
    Headers rates;                     // rate_headers() of a known tenant.
  };
  // Whose key it is. `authorization` is the header's value. No request begins, and none is counted.
  std::variant<Tenant, Denial> identify(std::string_view authorization) const;
  // Would a request of this tenant be let in, whatever its tokens? Nothing is counted. The router
  // asks this before it reads a body.
  std::optional<Denial> denial_of_request(Tenant tenant, Instant now);
  // Counts the request and its tokens. Every tenant let in must be released once.
  std::variant<Tenant, Denial> admit(Tenant tenant, uint64_t tokens, Instant now);
  void release(Tenant tenant);
  // No worker saw the request: its tokens are there again, but it has counted as a request.
  void give_back(Tenant tenant, uint64_t tokens);
  // One that was admitted and released, and begins only now. Must be released again.
  void enter(Tenant tenant);
  // By its name; where there are no tenants, the one of the empty name.
  std::optional<Tenant> find(std::string_view name) const;
  // What is left of its rates, as OpenAI says it (x-ratelimit-remaining-tokens: 1200); none where
  // it has none.
  Headers rate_headers(Tenant tenant, Instant now);

  const std::vector<TenantConfig>& tenants() const { return configs_; }

 private:
  class Bucket {
   public:
    explicit Bucket(uint64_t per_minute) : per_minute_(per_minute), level_(double(per_minute)) {}
    // How long until `amount` is there; zero: now, or there is no limit.
    Duration wait(uint64_t amount, Instant now);
    void append_headers(const std::string& of_what, Instant now, Headers& headers);
    void take(uint64_t amount);
    void give_back(uint64_t amount);
    bool holds(uint64_t amount) const { return per_minute_ == 0 || amount <= per_minute_; }

   private:
    void fill(Instant now);

    uint64_t per_minute_;
    double level_;
    Instant filled_at_{};
  };
  struct State {
    Bucket requests;
    Bucket tokens;
    uint32_t alive = 0;
  };

  std::optional<Denial> denial_of_alive(Tenant tenant) const;
  std::optional<Denial> denial_of_rate(Tenant tenant, Instant now);
  std::optional<Denial> denial_of(Tenant tenant, uint64_t tokens, Instant now);

  const std::vector<TenantConfig> configs_;
  std::vector<State> tenants_;
  std::unordered_map<std::string, Tenant> by_key_;
};

// The launcher proves with requests of its own that a job serves: as a tenant with a key that only
// routers and the launcher know.
inline constexpr std::string_view kProbeTenant = "the launcher";
TenantConfig probe_tenant(std::string_view key);

}  // namespace pdjob::router
