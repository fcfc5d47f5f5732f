#include "worker/foreign/port_claims.h"

#include <algorithm>

#include <gtest/gtest.h>
#include <unistd.h>

namespace pdjob::worker {
namespace {

constexpr const char* kHost = "127.0.0.1";

// Below the ports that the kernel gives to others, and another one for each process.
engine::PortBand band() {
  const auto first = static_cast<uint16_t>(12'000 + getpid() % 400 * 21);
  return {first, static_cast<uint16_t>(first + 20)};
}

TEST(PortClaims, TwoWorkersNeverTakeTheSamePort) {
  const engine::PortBand ports = band();
  const auto one = PortClaims::take(kHost, {{}, {}}, ports, 0);
  const auto other = PortClaims::take(kHost, {{}, {}}, ports, 0);
  ASSERT_TRUE(one.has_value() && other.has_value());
  for (const uint16_t port : one->ports()) {
    EXPECT_EQ(std::ranges::count(other->ports(), port), 0);
  }
}

TEST(PortClaims, SeveralPortsInARowAreAllFreeAndNoBandIsLeft) {
  const engine::PortBand ports = band();
  const auto thief = net::listen_on(kHost, static_cast<uint16_t>(ports.first + 2));
  ASSERT_TRUE(thief.has_value());
  const auto claims = PortClaims::take(kHost, {{}, {.count = 4}}, ports, 0);
  ASSERT_TRUE(claims.has_value()) << claims.error().message;
  EXPECT_EQ(claims->ports(),
            (std::vector<uint16_t>{ports.first, static_cast<uint16_t>(ports.first + 3)}));
  const auto other = PortClaims::take(kHost, {{.count = 4}}, ports, 18);
  ASSERT_TRUE(other.has_value());
  EXPECT_EQ(other->ports().front(), ports.first + 7) << "the band ends before four, and goes round";
}

TEST(PortClaims, PortsThatOtherNodesCountOnAreTheseOrNone) {
  const engine::PortBand ports = band();
  EXPECT_EQ(PortClaims::take(kHost, {{}, {.count = 2}}, ports, 5, true)->ports().back(),
            ports.first + 6);
  const auto thief = net::listen_on(kHost, static_cast<uint16_t>(ports.first + 6));
  ASSERT_TRUE(thief.has_value());
  EXPECT_FALSE(PortClaims::take(kHost, {{}, {.count = 2}}, ports, 5, true).has_value());
}

TEST(PortClaims, APortThatSomebodyListensOnIsReplaced) {
  const engine::PortBand ports = band();
  const auto free = PortClaims::take(kHost, {{}}, ports, 0)->ports().front();
  const auto thief = net::listen_on(kHost, free);
  ASSERT_TRUE(thief.has_value());
  EXPECT_NE(PortClaims::take(kHost, {{}}, ports, 0)->ports().front(), free);
}

TEST(PortClaims, TheEngineCanListenOnAClaimedPort) {
  const auto claims = PortClaims::take(kHost, {{}}, band(), 0);
  ASSERT_TRUE(claims.has_value());
  const auto engine = net::listen_on(kHost, claims->ports().front());
  EXPECT_TRUE(engine.has_value()) << engine.error().message;
}

TEST(PortClaims, APortOfTheUsersIsTakenUnlessSomebodyListensThere) {
  const engine::PortBand ports = band();
  {
    const auto claims = PortClaims::take(kHost, {{ports.last}, {}}, ports, 0);
    ASSERT_TRUE(claims.has_value());
    EXPECT_EQ(claims->ports(), (std::vector<uint16_t>{ports.last, ports.first}));
  }
  const auto owner = net::listen_on(kHost, ports.last);
  EXPECT_FALSE(PortClaims::take(kHost, {{ports.last}}, ports, 0).has_value());
}

TEST(PortClaims, TheSearchGoesRoundTheBand) {
  const engine::PortBand ports = band();
  const auto claims = PortClaims::take(kHost, {{}, {}}, ports, 20);
  ASSERT_TRUE(claims.has_value());
  EXPECT_LE(claims->ports().back(), ports.last);
  EXPECT_GE(claims->ports().back(), ports.first);
}

TEST(PortClaims, ABandThatIsUsedUpIsAnError) {
  engine::PortBand ports = band();
  ports.last = ports.first;
  const auto one = PortClaims::take(kHost, {{}}, ports, 0);
  const auto other = PortClaims::take(kHost, {{}}, ports, 0);
  ASSERT_FALSE(other.has_value());
  EXPECT_NE(other.error().message.find("no free port for the engine in engine.ports"),
            std::string::npos);
}

}  // namespace
}  // namespace pdjob::worker
