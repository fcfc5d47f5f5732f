#include "common/address_text.h"

#include <gtest/gtest.h>

namespace pdjob {
namespace {

TEST(AddressText, AnAddressOfIpv6HasBrackets) {
  EXPECT_EQ(address_text("10.0.0.1", 80), "10.0.0.1:80");
  EXPECT_EQ(address_text("node-1.lab", 80), "node-1.lab:80");
  EXPECT_EQ(address_text("::1", 80), "[::1]:80");
  EXPECT_EQ(address_text("fd00::7", "any"), "[fd00::7]:any");
}

}  // namespace
}  // namespace pdjob
