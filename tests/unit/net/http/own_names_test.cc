#include "net/http/own_names.h"

#include <gtest/gtest.h>

namespace pdjob::net {
namespace {

TEST(OwnNames, ARequestOfThisMachineNamesIt) {
  for (const char* host :
       {"", "127.0.0.1", "127.0.0.1:8001", "127.0.1.1", "localhost", "LocalHost:1", "[::1]",
        "[::1]:8001", "box", "box:8001", "host.docker.internal:8001", "a.localhost"}) {
    EXPECT_TRUE(names_this_machine(host)) << host;
  }
}

TEST(OwnNames, ANameThatPublicDnsCanLeadHereDoesNotNameThisMachine) {
  for (const char* host :
       {"evil.example", "evil.example:8001", "127.0.0.1.evil.example", "localhost.evil.example:1",
        "10.0.0.1:8001", "127.0.0.1:1:2", "2130706433", "[::2]", "[127.0.0.1]", "evil.example.",
        "localhost.evil", "internal.evil.example", "a.internal.evil.example"}) {
    EXPECT_FALSE(names_this_machine(host)) << host;
  }
}

TEST(OwnNames, LoopbackIsWhatOnlyThisMachineReaches) {
  for (const char* host : {"127.0.0.1", "127.8.9.1", "::1", "localhost"}) {
    EXPECT_TRUE(is_loopback(host)) << host;
  }
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "127.evil.example", "box", ""}) {
    EXPECT_FALSE(is_loopback(host)) << host;
  }
}

}  // namespace
}  // namespace pdjob::net
