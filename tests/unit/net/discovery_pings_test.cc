#include "net/discovery_pings.h"

#include <gtest/gtest.h>
#include <zmq.h>

namespace pdjob::net {
namespace {

const WorkerEntry kPrefill = {.role = Role::kPrefill, .host = "10.0.0.2", .port = 8000};

TEST(DiscoveryPings, TheFrameIsAMsgpackMapOfThreeTexts) {
  EXPECT_EQ(discovery_ping(kPrefill), std::string("\x83"
                                                  "\xd9\x04type\xd9\x01P"
                                                  "\xd9\x0chttp_address\xd9\x0d"
                                                  "10.0.0.2:8000"
                                                  "\xd9\x0bzmq_address\xd9\x0d"
                                                  "10.0.0.2:8000"));
}

TEST(DiscoveryPings, ComeAsOneFrameBehindTheIdentityOfTheWorker) {
  void* const context = zmq_ctx_new();
  void* const router = zmq_socket(context, ZMQ_ROUTER);
  ASSERT_EQ(zmq_bind(router, "tcp://127.0.0.1:0"), 0);
  char endpoint[64];
  size_t size = sizeof endpoint;
  ASSERT_EQ(zmq_getsockopt(router, ZMQ_LAST_ENDPOINT, endpoint, &size), 0);
  const std::string text(endpoint);
  DiscoveryPings pings(static_cast<uint16_t>(std::stoi(text.substr(text.rfind(':') + 1))));
  pings.send({&kPrefill, 1});
  std::vector<std::string> frames;
  int more = 1;
  while (more != 0) {
    char frame[256];
    const int bytes = zmq_recv(router, frame, sizeof frame, 0);
    ASSERT_GE(bytes, 0);
    frames.emplace_back(frame, static_cast<size_t>(bytes));
    size = sizeof more;
    zmq_getsockopt(router, ZMQ_RCVMORE, &more, &size);
  }
  EXPECT_EQ(frames, (std::vector<std::string>{"10.0.0.2:8000", discovery_ping(kPrefill)}));
  zmq_close(router);
  zmq_ctx_term(context);
}

}  // namespace
}  // namespace pdjob::net
