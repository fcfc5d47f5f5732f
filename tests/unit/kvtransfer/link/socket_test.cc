// Tests of link sockets that need no endpoint.
#include "kvtransfer/link/socket.h"

#include <array>
#include <string>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

namespace pdjob::kvtransfer {
namespace {

// Regression: under bbr, the default of many hosts, loopback was paced to half of its speed.
TEST(Socket, IsNotPacedWithinOneMachine) {
  for (const char* const host : {"127.0.0.1", "::1"}) {
    const Result<Fd> listener = listen_tcp(host, 0);
    if (!listener && std::string(host) == "::1") {
      continue;  // This host has no IPv6.
    }
    ASSERT_TRUE(listener.has_value());
    const Result<Fd> client = connect_tcp(host, *bound_port(*listener));
    ASSERT_TRUE(client.has_value());
    pollfd waiting{.fd = listener->get(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&waiting, 1, 5000), 1);
    const Fd accepted = accept_next(*listener);
    tune_tcp(accepted);
    std::array<char, 16> name{};
    socklen_t size = name.size();
    ASSERT_EQ(::getsockopt(accepted.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &size), 0);
    EXPECT_STREQ(name.data(), "reno") << host;
    EXPECT_TRUE(stays_here(*client, host));
    EXPECT_TRUE(stays_here(accepted));
    EXPECT_FALSE(stays_here(*client, "192.0.2.1"));
  }
}

}  // namespace
}  // namespace pdjob::kvtransfer
