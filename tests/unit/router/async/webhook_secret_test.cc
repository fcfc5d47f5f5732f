#include "router/async/webhook_secret.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

namespace pdjob::router {
namespace {

constexpr std::string_view kText = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

// The example from the libraries that verify such signatures.
TEST(WebhookSecret, SignsAsStandardWebhooksSays) {
  const auto secret = WebhookSecret::parse(kText);
  ASSERT_TRUE(secret);
  EXPECT_EQ(secret->sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, R"({"test": 2432232314})"),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

TEST(WebhookSecret, RefusesWhatIsNoneWithoutShowingIt) {
  for (const std::string& text :
       {std::string(), std::string("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), std::string("whsec_"),
        std::string("whsec_AAAA"), std::string("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS "),
        std::string("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw="), "whsec_" + std::string(88, 'A')}) {
    const auto secret = WebhookSecret::parse(text);
    ASSERT_FALSE(secret) << text;
    EXPECT_EQ(secret.error().message, "must be whsec_ and 24 to 64 bytes in base64");
  }
}

TEST(WebhookSecret, StandsInAFileOfOneLine) {
  const auto file =
      std::filesystem::temp_directory_path() / ("pdjob-secret-" + std::to_string(getpid()));
  EXPECT_FALSE(WebhookSecret::read(file));
  std::ofstream(file) << kText << '\n';
  const auto secret = WebhookSecret::read(file);
  ASSERT_TRUE(secret) << secret.error().message;
  EXPECT_EQ(secret->sign("a", 1, "b"), WebhookSecret::parse(kText)->sign("a", 1, "b"));
  std::ofstream(file) << kText << '\n' << kText << '\n';
  EXPECT_FALSE(WebhookSecret::read(file));
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace pdjob::router
