#include "net/loop/port_owner.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "net/loop/socket.h"

namespace pdjob::net {
namespace {

TEST(PortOwner, IsTheProcessThatListensThere) {
  uint16_t port = 0;
  {
    const auto socket = listen_on("127.0.0.1", 0);
    ASSERT_TRUE(socket);
    port = local_port(socket->get());
    const auto owner = port_owner(port);
    ASSERT_TRUE(owner);
    EXPECT_EQ(owner->pid, getpid());
  }
  EXPECT_FALSE(port_owner(port));
}

TEST(PortOwner, StandsInTheErrorOfAPortInUse) {
  const auto socket = listen_on("127.0.0.1", 0);
  ASSERT_TRUE(socket);
  const auto again = listen_on("127.0.0.1", local_port(socket->get()));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kOverloaded);
  EXPECT_TRUE(again.error().message.ends_with(", pid " + std::to_string(getpid())))
      << again.error().message;
}

}  // namespace
}  // namespace pdjob::net
