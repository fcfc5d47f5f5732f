// Admission decides whether a request may come in. It knows each tenant by the hash of its key and
// enforces the tenant's rate limits and its limit of concurrent requests. A refusal says when to
// retry. Without tenants, every request is let in.
//
// Rate limits are token buckets that hold one minute's worth. A request costs its estimated prompt
// tokens plus the most tokens that it asks for, as OpenAI counts. Pure.
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
#include "openai/openai.h"
#include "router/config/tenant_config.h"

namespace pdjob::router {

enum class DenialReason { kNoKey, kWrongKey, kTooLarge, kRequestRate, kTokenRate, kConcurrency };
inline constexpr size_t kDenialReasons = 6;
const char* to_string(DenialReason reason);

class Admission {
 public:
  explicit Admission(std::vector<TenantConfig> tenants);

  bool open_to_all() const { return tenants_.empty(); }

  using Tenant = uint32_t;  // Index into tenants(); 0 if there are none.
  using Headers = std::vector<std::pair<std::string, std::string>>;
  struct Denial {
    DenialReason reason;
    openai::ApiError error;
    uint32_t retry_after_seconds = 0;  // 0: not stated.
    Headers rates;                     // rate_headers(), if the tenant is known.
  };
  // Returns the tenant of this key. `authorization` is the header's value. Starts and counts no
  // request.
  std::variant<Tenant, Denial> identify(std::string_view authorization) const;
  // Returns a denial if this tenant's limits refuse any request now, whatever its tokens. Counts
  // nothing. The router calls this before it reads a body.
  std::optional<Denial> denial_of_request(Tenant tenant, Instant now);
  // Counts the request and its tokens. The caller must release every admitted request once.
  std::variant<Tenant, Denial> admit(Tenant tenant, uint64_t tokens, Instant now);
  void release(Tenant tenant);
  // Counts a request for files or batches, or denies it. These have a rate of their own, as high as
  // that of the tenant's other requests: otherwise the rows of its batches would keep the tenant
  // from asking for them. They are not limited in number.
  std::optional<Denial> admit_batch_request(Tenant tenant, Instant now);
  // Refunds the tokens of a request that never reached a worker. It still counts as a request.
  void give_back(Tenant tenant, uint64_t tokens);
  // Counts a request as alive again: it was admitted and released, and begins only now. The caller
  // must release it again.
  void enter(Tenant tenant);
  // Finds a tenant by its name. Without tenants, the empty name finds tenant 0.
  std::optional<Tenant> find(std::string_view name) const;
  // The rest of the tenant's rate limits, in OpenAI's headers (x-ratelimit-remaining-tokens: 1200).
  // Empty if the tenant has no rate limit.
  Headers rate_headers(Tenant tenant, Instant now);

  const std::vector<TenantConfig>& tenants() const { return configs_; }
  // Obeys take_limits() of these from now on.
  void change(const std::vector<TenantConfig>& tenants);

 private:
  class Bucket {
   public:
    explicit Bucket(uint64_t per_minute) : per_minute_(per_minute), level_(double(per_minute)) {}
    // Time until `amount` is available; zero: now, or there is no limit.
    Duration wait(uint64_t amount, Instant now);
    void append_headers(const std::string& of_what, Instant now, Headers& headers);
    void take(uint64_t amount);
    void give_back(uint64_t amount);
    void set_rate(uint64_t per_minute);
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
    Bucket batch_requests;
    uint32_t alive = 0;
  };

  std::optional<Denial> denial_of_alive(Tenant tenant) const;
  std::optional<Denial> denial_of_rate(Tenant tenant, Instant now);
  std::optional<Denial> denial_of(Tenant tenant, uint64_t tokens, Instant now);

  std::vector<TenantConfig> configs_;
  std::vector<State> tenants_;
  std::unordered_map<std::string, Tenant> by_key_;
};

// The launcher sends requests of its own to prove that a job serves. It uses a tenant whose key
// only routers and the launcher know.
inline constexpr std::string_view kProbeTenant = "the launcher";
TenantConfig probe_tenant(std::string_view key);

}  // namespace pdjob::router
