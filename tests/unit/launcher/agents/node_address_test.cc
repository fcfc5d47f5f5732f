#include "launcher/agents/node_address.h"

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

TEST(NodeAddress, TowardsThisMachineIsLoopback) {
  const auto address = address_towards("127.0.0.1", 80);
  ASSERT_TRUE(address.has_value());
  EXPECT_EQ(*address, "127.0.0.1");
}

TEST(NodeAddress, IsChosenByInterfaceNetworkOrAddress) {
  for (const char* choice : {"lo", "127.0.0.0/8", "127.0.0.1"}) {
    const auto address = address_by_choice(choice);
    ASSERT_TRUE(address.has_value()) << address.error().message;
    EXPECT_EQ(*address, "127.0.0.1");
  }
}

TEST(NodeAddress, OfIpv6IsFoundByItsNetworkToo) {
  const auto towards = address_towards("::1", 80);
  if (!towards) {
    GTEST_SKIP() << "no IPv6 here: " << towards.error().message;
  }
  EXPECT_EQ(*towards, "::1");
  for (const char* choice : {"::1/128", "::1"}) {
    const auto address = address_by_choice(choice);
    ASSERT_TRUE(address.has_value()) << address.error().message;
    EXPECT_EQ(*address, "::1");
  }
}

TEST(NodeAddress, AnErrorListsWhatThereIs) {
  const auto address = address_by_choice("no-such-if0");
  ASSERT_FALSE(address.has_value());
  EXPECT_NE(address.error().message.find("127.0.0.1 (lo)"), std::string::npos);
}

}  // namespace
}  // namespace pdjob::launcher
