#include "router/admission/admission.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/check.h"
#include "common/crypto/sha256.h"
#include "common/limits.h"
#include "net/http/http_parser.h"
#include "openai/headers.h"

namespace pdjob::router {
namespace {

constexpr Duration kMinute = std::chrono::minutes(1);

openai::ApiError rate_limited(const std::string& tenant, const std::string& what) {
  return {.status = 429,
          .type = "rate_limit_error",
          .message = "Rate limit reached for " + tenant + ": " + what,
          .code = "rate_limit_exceeded"};
}

std::string until(Duration duration) {
  return std::to_string(static_cast<uint32_t>(std::ceil(seconds(duration)))) + "s";
}

uint32_t whole_seconds(Duration duration) {
  return static_cast<uint32_t>(std::max(1.0, std::ceil(seconds(duration))));
}

}  // namespace

const char* to_string(DenialReason reason) {
  switch (reason) {
    case DenialReason::kNoKey:
      return "no_key";
    case DenialReason::kWrongKey:
      return "wrong_key";
    case DenialReason::kTooLarge:
      return "too_large";
    case DenialReason::kRequestRate:
      return "request_rate";
    case DenialReason::kTokenRate:
      return "token_rate";
    case DenialReason::kConcurrency:
      return "concurrency";
  }
  return "unknown";
}

Duration Admission::Bucket::wait(uint64_t amount, Instant now) {
  if (per_minute_ == 0) {
    return Duration::zero();
  }
  fill(now);
  const double missing = static_cast<double>(amount) - level_;
  return missing <= 0 ? Duration::zero()
                      : std::chrono::duration_cast<Duration>(
                            kMinute * (missing / static_cast<double>(per_minute_)));
}

void Admission::Bucket::fill(Instant now) {
  const auto full = static_cast<double>(per_minute_);
  if (filled_at_ != Instant{}) {
    level_ = std::min(full, level_ + full * (seconds(now - filled_at_) / seconds(kMinute)));
  }
  filled_at_ = now;
}

void Admission::Bucket::append_headers(const std::string& of_what, Instant now, Headers& headers) {
  if (per_minute_ == 0) {
    return;
  }
  const Duration until_full = wait(per_minute_, now);
  const auto left = static_cast<uint64_t>(std::max(0.0, level_));
  const std::string prefix(openai::header::kRateLimit);
  headers.emplace_back(prefix + "limit-" + of_what, std::to_string(per_minute_));
  headers.emplace_back(prefix + "remaining-" + of_what, std::to_string(left));
  headers.emplace_back(prefix + "reset-" + of_what, until(until_full));
}

void Admission::Bucket::take(uint64_t amount) {
  if (per_minute_ > 0) {
    level_ -= static_cast<double>(amount);
  }
}

void Admission::Bucket::give_back(uint64_t amount) {
  level_ = std::min(static_cast<double>(per_minute_), level_ + static_cast<double>(amount));
}

// Requests and tokens that were used up stay so.
void Admission::Bucket::set_rate(uint64_t per_minute) {
  const double used =
      per_minute_ == 0 ? 0 : std::max(0.0, static_cast<double>(per_minute_) - level_);
  per_minute_ = per_minute;
  level_ = static_cast<double>(per_minute) - used;
}

Admission::Admission(std::vector<TenantConfig> tenants) : configs_(std::move(tenants)) {
  for (const TenantConfig& config : configs_) {
    by_key_.emplace(config.key_sha256, static_cast<Tenant>(tenants_.size()));
    tenants_.push_back({.requests = Bucket(config.requests_per_minute),
                        .tokens = Bucket(config.tokens_per_minute),
                        .batch_requests = Bucket(config.requests_per_minute)});
  }
}

void Admission::change(const std::vector<TenantConfig>& tenants) {
  take_limits(tenants, configs_);
  for (size_t i = 0; i < configs_.size(); ++i) {
    tenants_[i].requests.set_rate(configs_[i].requests_per_minute);
    tenants_[i].tokens.set_rate(configs_[i].tokens_per_minute);
    tenants_[i].batch_requests.set_rate(configs_[i].requests_per_minute);
  }
}

std::variant<Admission::Tenant, Admission::Denial> Admission::identify(
    std::string_view authorization) const {
  constexpr std::string_view kScheme = "Bearer ";
  if (open_to_all()) {
    return Tenant{0};
  }
  if (authorization.size() <= kScheme.size() ||
      !net::equal_ignoring_case(authorization.substr(0, kScheme.size()), kScheme)) {
    return Denial{
        DenialReason::kNoKey,
        openai::invalid_request("No API key was given: send it as Authorization: Bearer KEY", "",
                                "invalid_api_key", 401)};
  }
  const std::string_view key = authorization.substr(kScheme.size());
  // Compares digests instead of keys, so the time of a lookup reveals nothing about a key.
  const auto found =
      key.size() > limits::kApiKeyBytesMax ? by_key_.end() : by_key_.find(sha256_of(key));
  if (found == by_key_.end()) {
    return Denial{DenialReason::kWrongKey, openai::invalid_request("The API key is not known here",
                                                                   "", "invalid_api_key", 401)};
  }
  return found->second;
}

std::optional<Admission::Denial> Admission::denial_of_request(Tenant tenant, Instant now) {
  if (open_to_all()) {
    return std::nullopt;
  }
  auto denial = denial_of_alive(tenant);
  if (!denial) {
    denial = denial_of_rate(tenant, now);
  }
  if (denial) {
    denial->rates = rate_headers(tenant, now);
  }
  return denial;
}

std::variant<Admission::Tenant, Admission::Denial> Admission::admit(Tenant tenant, uint64_t tokens,
                                                                    Instant now) {
  if (open_to_all()) {
    return tenant;
  }
  if (auto denial = denial_of(tenant, tokens, now)) {
    denial->rates = rate_headers(tenant, now);
    return *std::move(denial);
  }
  State& state = tenants_[tenant];
  state.requests.take(1);
  state.tokens.take(tokens);
  state.alive += 1;
  return tenant;
}

std::optional<Admission::Denial> Admission::admit_batch_request(Tenant tenant, Instant now) {
  if (open_to_all()) {
    return std::nullopt;
  }
  Bucket& requests = tenants_[tenant].batch_requests;
  if (const Duration wait = requests.wait(1, now); wait > Duration::zero()) {
    const TenantConfig& config = configs_[tenant];
    Denial denial{DenialReason::kRequestRate,
                  rate_limited(config.name, std::to_string(config.requests_per_minute) +
                                                " requests for files and batches per minute"),
                  whole_seconds(wait)};
    requests.append_headers("requests", now, denial.rates);
    return denial;
  }
  requests.take(1);
  return std::nullopt;
}

std::optional<Admission::Denial> Admission::denial_of_alive(Tenant tenant) const {
  const TenantConfig& config = configs_[tenant];
  if (config.requests_max > 0 && tenants_[tenant].alive >= config.requests_max) {
    return Denial{
        DenialReason::kConcurrency,
        rate_limited(config.name, std::to_string(config.requests_max) + " requests are under way"),
        1};
  }
  return std::nullopt;
}

std::optional<Admission::Denial> Admission::denial_of_rate(Tenant tenant, Instant now) {
  const TenantConfig& config = configs_[tenant];
  if (const Duration wait = tenants_[tenant].requests.wait(1, now); wait > Duration::zero()) {
    return Denial{DenialReason::kRequestRate,
                  rate_limited(config.name,
                               std::to_string(config.requests_per_minute) + " requests per minute"),
                  whole_seconds(wait)};
  }
  return std::nullopt;
}

std::optional<Admission::Denial> Admission::denial_of(Tenant tenant, uint64_t tokens, Instant now) {
  const TenantConfig& config = configs_[tenant];
  State& state = tenants_[tenant];
  if (auto denial = denial_of_alive(tenant)) {
    return denial;
  }
  if (!state.tokens.holds(tokens)) {
    return Denial{DenialReason::kTooLarge,
                  openai::invalid_request("This request may come to " + std::to_string(tokens) +
                                              " tokens, and " + config.name + " has " +
                                              std::to_string(config.tokens_per_minute) +
                                              " per minute: shorten it or lower max_tokens",
                                          "max_tokens", "request_too_large")};
  }
  if (auto denial = denial_of_rate(tenant, now)) {
    return denial;
  }
  if (const Duration wait = state.tokens.wait(tokens, now); wait > Duration::zero()) {
    return Denial{
        DenialReason::kTokenRate,
        rate_limited(config.name, std::to_string(config.tokens_per_minute) + " tokens per minute"),
        whole_seconds(wait)};
  }
  return std::nullopt;
}

Admission::Headers Admission::rate_headers(Tenant tenant, Instant now) {
  Headers headers;
  if (!open_to_all()) {
    tenants_[tenant].requests.append_headers("requests", now, headers);
    tenants_[tenant].tokens.append_headers("tokens", now, headers);
  }
  return headers;
}

void Admission::give_back(Tenant tenant, uint64_t tokens) {
  if (!open_to_all()) {
    tenants_[tenant].tokens.give_back(tokens);
  }
}

void Admission::enter(Tenant tenant) {
  if (!open_to_all()) {
    tenants_[tenant].alive += 1;
  }
}

std::optional<Admission::Tenant> Admission::find(std::string_view name) const {
  if (open_to_all()) {
    return name.empty() ? std::optional(Tenant{0}) : std::nullopt;
  }
  const auto found = std::ranges::find(configs_, name, &TenantConfig::name);
  return found == configs_.end() ? std::nullopt
                                 : std::optional(static_cast<Tenant>(found - configs_.begin()));
}

void Admission::release(Tenant tenant) {
  if (!open_to_all()) {
    PDJOB_CHECK(tenants_[tenant].alive > 0, configs_[tenant].name);
    tenants_[tenant].alive -= 1;
  }
}

TenantConfig probe_tenant(std::string_view key) {
  constexpr uint32_t kPriorityMax = 9;
  return {
      .name = std::string(kProbeTenant), .key_sha256 = sha256_of(key), .priority = kPriorityMax};
}

}  // namespace pdjob::router
