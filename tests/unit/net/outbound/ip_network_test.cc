#include "net/outbound/ip_network.h"

#include <gtest/gtest.h>

namespace pdjob::net {
namespace {

bool has(const char* network, const char* address) {
  return IpNetwork::parse(network)->contains(*parse_ip(address));
}

TEST(IpNetwork, ContainsTheAddressesOfItsBlock) {
  EXPECT_TRUE(has("10.0.0.0/8", "10.255.0.1"));
  EXPECT_FALSE(has("10.0.0.0/8", "11.0.0.0"));
  EXPECT_TRUE(has("172.16.0.0/12", "172.31.255.255"));
  EXPECT_FALSE(has("172.16.0.0/12", "172.32.0.0"));
  EXPECT_TRUE(has("192.168.1.7", "192.168.1.7"));
  EXPECT_FALSE(has("192.168.1.7", "192.168.1.8"));
  EXPECT_TRUE(has("fd00::/8", "fdff::1"));
  EXPECT_FALSE(has("fd00::/8", "fe00::1"));
  EXPECT_TRUE(has("0.0.0.0/0", "1.2.3.4"));
  EXPECT_FALSE(has("0.0.0.0/0", "2001:db9::1"));
}

TEST(IpNetwork, AnIpv4AddressWrittenAsIpv6IsTheSame) {
  EXPECT_TRUE(has("10.0.0.0/8", "::ffff:10.0.0.1"));
  EXPECT_FALSE(is_public(*parse_ip("::ffff:127.0.0.1")));
}

TEST(IpNetwork, ATextWithBitsBehindItsPrefixOrOfAnotherFormIsNone) {
  for (const char* text : {"", "a", "10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1",
                           "10.0.0.0/08x", "10.0/8", "::/129", "fd00::1/8", "1.2.3.4/24"}) {
    EXPECT_FALSE(IpNetwork::parse(text)) << text;
  }
}

TEST(IpAddress, IsNotPublicIfItLeadsInsideOrNowhere) {
  for (const char* inside :
       {"0.0.0.0", "127.0.0.1", "127.9.9.9", "10.0.0.1", "172.16.0.1", "192.168.0.1",
        "169.254.169.254", "100.64.0.1", "224.0.0.1", "255.255.255.255", "::", "::1", "fe80::1",
        "fd00::1", "ff02::1", "64:ff9b::7f00:1", "2002:7f00:1::"}) {
    EXPECT_FALSE(is_public(*parse_ip(inside))) << inside;
  }
  for (const char* outside : {"93.184.216.34", "8.8.8.8", "2606:4700::1111"}) {
    EXPECT_TRUE(is_public(*parse_ip(outside))) << outside;
  }
}

}  // namespace
}  // namespace pdjob::net
