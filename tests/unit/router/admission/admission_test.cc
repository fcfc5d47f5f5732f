#include "router/admission/admission.h"

#include <gtest/gtest.h>

#include "common/crypto/sha256.h"
#include "common/limits.h"

namespace pdjob::router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct AdmissionTest : testing::Test {
  // Returns the reason of a denial; "" if the request is admitted.
  std::string ask(Admission& admission, std::string_view key = "Bearer secret-a",
                  uint64_t tokens = 10) {
    auto answer = admission.identify(key);
    if (const auto* tenant = std::get_if<Admission::Tenant>(&answer)) {
      answer = admission.admit(*tenant, tokens, now);
    }
    const auto* denied = std::get_if<Admission::Denial>(&answer);
    denial = denied == nullptr ? Admission::Denial{} : *denied;
    return denied == nullptr ? "" : to_string(denied->reason);
  }
  static TenantConfig tenant(const std::string& name, const std::string& key) {
    return {.name = name, .key_sha256 = sha256_of(key)};
  }

  Instant now{std::chrono::hours(1)};
  Admission::Denial denial;
  TenantConfig a = tenant("a", "secret-a");
};

TEST_F(AdmissionTest, LetsEverybodyInWhereThereAreNoTenants) {
  Admission admission({});
  EXPECT_EQ(ask(admission, ""), "");
  EXPECT_EQ(ask(admission, "Bearer whatever"), "");
}

TEST_F(AdmissionTest, LetsInWhoHasAKey) {
  Admission admission({a, tenant("b", "secret-b")});
  EXPECT_EQ(std::get<Admission::Tenant>(admission.identify("bearer secret-b")), 1U);
  EXPECT_EQ(ask(admission, ""), "no_key");
  EXPECT_EQ(ask(admission, "Basic secret-a"), "no_key");
  EXPECT_EQ(ask(admission, "Bearer "), "no_key");
  EXPECT_EQ(ask(admission, "Bearer secret-c"), "wrong_key");
  EXPECT_EQ(denial.error.status, 401);
  EXPECT_EQ(denial.error.code, "invalid_api_key");
  EXPECT_EQ(denial.error.message.find("secret"), std::string::npos);
}

TEST_F(AdmissionTest, DeniesARequestBeforeItsTokensAreKnown) {
  a.requests_per_minute = 6;
  a.requests_max = 7;
  Admission admission({a});
  for (int i = 0; i < 6; ++i) {
    EXPECT_FALSE(admission.denial_of_request(0, now)) << "asking costs nothing";
    EXPECT_EQ(ask(admission), "");
  }
  const auto refused = admission.denial_of_request(0, now);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->reason, DenialReason::kRequestRate);
  EXPECT_FALSE(refused->rates.empty());
  now += std::chrono::minutes(1);
  EXPECT_EQ(ask(admission), "");
  EXPECT_EQ(admission.denial_of_request(0, now)->reason, DenialReason::kConcurrency);
  EXPECT_FALSE(Admission({}).denial_of_request(0, now));
}

TEST_F(AdmissionTest, AKeyThatIsTooLongIsWrong) {
  const std::string key(limits::kApiKeyBytesMax + 1, 'k');
  Admission admission({tenant("a", key)});
  EXPECT_EQ(ask(admission, "Bearer " + key), "wrong_key");
}

TEST_F(AdmissionTest, HashesAsSha256sumDoes) {
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_F(AdmissionTest, SaysWhatIsLeftOfEachRate) {
  a.requests_per_minute = 6;
  a.tokens_per_minute = 1000;
  Admission admission({a, tenant("b", "secret-b")});
  EXPECT_EQ(ask(admission, "Bearer secret-a", 400), "");
  const Admission::Headers expected = {
      {"x-ratelimit-limit-requests", "6"},     {"x-ratelimit-remaining-requests", "5"},
      {"x-ratelimit-reset-requests", "10s"},   {"x-ratelimit-limit-tokens", "1000"},
      {"x-ratelimit-remaining-tokens", "600"}, {"x-ratelimit-reset-tokens", "24s"}};
  EXPECT_EQ(admission.rate_headers(0, now), expected);
  EXPECT_EQ(ask(admission, "Bearer secret-a", 700), "token_rate");
  EXPECT_EQ(denial.rates, expected) << "a denial costs nothing";
  now += seconds(24);
  EXPECT_EQ(admission.rate_headers(0, now)[4].second, "1000");
  EXPECT_TRUE(admission.rate_headers(1, now).empty());
  EXPECT_TRUE(Admission({}).rate_headers(0, now).empty());
}

TEST_F(AdmissionTest, HoldsATenantToItsRateAndSaysWhenToComeAgain) {
  a.requests_per_minute = 6;
  Admission admission({a});
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(ask(admission), "") << i;
  }
  EXPECT_EQ(ask(admission), "request_rate");
  EXPECT_EQ(denial.error.status, 429);
  EXPECT_EQ(denial.retry_after_seconds, 10U);
  now += seconds(9);
  EXPECT_EQ(ask(admission), "request_rate");
  now += milliseconds(1100);
  EXPECT_EQ(ask(admission), "");
  EXPECT_EQ(ask(admission), "request_rate");
}

TEST_F(AdmissionTest, HoldsATenantToItsTokens) {
  a.tokens_per_minute = 600;
  Admission admission({a});
  EXPECT_EQ(ask(admission, "Bearer secret-a", 500), "");
  EXPECT_EQ(ask(admission, "Bearer secret-a", 300), "token_rate");
  EXPECT_EQ(denial.retry_after_seconds, 20U);
  EXPECT_EQ(ask(admission, "Bearer secret-a", 100), "") << "a denial costs nothing";
  EXPECT_EQ(ask(admission, "Bearer secret-a", 601), "too_large");
  EXPECT_EQ(denial.error.status, 400) << "to come again would not help";
}

TEST_F(AdmissionTest, GivesBackTheTokensOfWhatNoWorkerSaw) {
  a.tokens_per_minute = 100;
  Admission admission({a});
  EXPECT_EQ(ask(admission, "Bearer secret-a", 90), "");
  EXPECT_EQ(ask(admission, "Bearer secret-a", 20), "token_rate");
  admission.give_back(0, 90);
  EXPECT_EQ(ask(admission, "Bearer secret-a", 100), "");
  admission.give_back(0, 1000);  // Capped at one minute's tokens.
  EXPECT_EQ(ask(admission, "Bearer secret-a", 100), "");
  EXPECT_EQ(ask(admission, "Bearer secret-a", 1), "token_rate");
}

TEST_F(AdmissionTest, BoundsWhatIsUnderWay) {
  a.requests_max = 2;
  Admission admission({a});
  ask(admission);
  ask(admission);
  EXPECT_EQ(ask(admission), "concurrency");
  admission.release(0);
  EXPECT_EQ(ask(admission), "");
}

TEST_F(AdmissionTest, HoldsRequestsForBatchesToARateOfTheirOwn) {
  a.requests_per_minute = 2;
  Admission admission({a, tenant("b", "secret-b")});
  EXPECT_EQ(ask(admission), "");
  EXPECT_EQ(ask(admission), "");
  EXPECT_EQ(ask(admission), "request_rate") << "rows have used it up";
  EXPECT_FALSE(admission.admit_batch_request(0, now)) << "and their tenant may still ask for them";
  EXPECT_FALSE(admission.admit_batch_request(0, now));
  const auto denied = admission.admit_batch_request(0, now);
  ASSERT_TRUE(denied);
  EXPECT_EQ(denied->reason, DenialReason::kRequestRate);
  EXPECT_EQ(denied->error.status, 429);
  EXPECT_EQ(denied->retry_after_seconds, 30U);
  EXPECT_FALSE(admission.admit_batch_request(1, now)) << "b has no limit";
  now += seconds(30);
  EXPECT_FALSE(admission.admit_batch_request(0, now));
  EXPECT_FALSE(Admission({}).admit_batch_request(0, now)) << "without tenants";
}

TEST_F(AdmissionTest, OneTenantsLimitsAreNotAnothers) {
  a.requests_per_minute = 1;
  Admission admission({a, tenant("b", "secret-b")});
  ask(admission);
  EXPECT_EQ(ask(admission), "request_rate");
  EXPECT_EQ(ask(admission, "Bearer secret-b"), "");
}

TEST_F(AdmissionTest, LimitsChangeAndWhatIsUsedUpStaysSo) {
  a.requests_per_minute = 2;
  Admission admission({a, probe_tenant("the probes' key")});
  ask(admission);
  ask(admission);
  EXPECT_EQ(ask(admission), "request_rate");
  TenantConfig changed = a;
  changed.requests_per_minute = 3;
  changed.requests_max = 3;
  admission.change({changed});
  EXPECT_EQ(ask(admission), "");
  EXPECT_EQ(ask(admission), "concurrency");
  changed.requests_max = 0;
  changed.requests_per_minute = 0;
  admission.change({changed});
  EXPECT_EQ(ask(admission), "");
  EXPECT_EQ(ask(admission, "Bearer the probes' key"), "");
  admission.change({tenant("b", "secret-a")});
  EXPECT_EQ(admission.tenants().front().name, "a") << "who there is does not change";
}

TEST_F(AdmissionTest, LetsTheProbesOfTheJobIn) {
  Admission admission({a, probe_tenant("the probes' key")});
  EXPECT_EQ(ask(admission, "Bearer the probes' key"), "");
  EXPECT_EQ(ask(admission, "Bearer another job's"), "wrong_key");
}

}  // namespace
}  // namespace pdjob::router
