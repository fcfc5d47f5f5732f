#include "net/control/process_spec.h"

#include <gtest/gtest.h>

namespace pdjob::net {
namespace {

ProcessSpec spec() {
  return {.job = "quick \"start\"",
          .name = "prefill-0",
          .role = Role::kPrefill,
          .engine_id = "prefill-0.1",
          .model = "org/Large-7B",
          .host = "127.0.0.1",
          .port = 40001,
          .listen_fd = 7,
          .threads_fd = 8,
          .control = {.endpoint = "tcp://127.0.0.1:1",
                      .server_public_key = "s",
                      .client = {.public_key = "p", .secret_key = "k"}},
          .gpus = "GPU-8a1",
          .key = "the worker's",
          .router_key = "the router's",
          .probe_key = "the probes'",
          .link_keys = "the links'",
          .batch_address = "127.0.0.1:2",
          .batch_key = "the batches'",
          .front_address = "127.0.0.1:3",
          .rows_key = "the rows'",
          .weights = {"/w/7.gguf", "step-7", "d"},
          .begins_closed = true,
          .control_key = "the trainer's",
          .ports_from = uint64_t{1} << 40,
          .part = 2,
          .head_host = "10.0.0.1",
          .work = "model: x\n"};
}

TEST(ProcessSpec, SurvivesARoundTrip) {
  const Result<ProcessSpec> decoded = decode_spec(encode_spec(spec()));
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(encode_spec(*decoded), encode_spec(spec()));
  EXPECT_EQ(decoded->job, spec().job);
  EXPECT_EQ(decoded->role, Role::kPrefill);
  EXPECT_EQ(decoded->model, "org/Large-7B");
  EXPECT_EQ(decoded->port, 40001);
  EXPECT_EQ(decoded->listen_fd, 7);
  EXPECT_EQ(decoded->threads_fd, 8);
  EXPECT_EQ(decoded->gpus, "GPU-8a1");
  EXPECT_EQ(decoded->front_address, "127.0.0.1:3");
  EXPECT_TRUE(decoded->begins_closed);
  EXPECT_EQ(decoded->ports_from, uint64_t{1} << 40);
  EXPECT_EQ(decoded->part, 2U);
  EXPECT_EQ(decoded->head_host, "10.0.0.1");
  EXPECT_EQ(decoded->work, "model: x\n");
  EXPECT_EQ(decoded->control.client.secret_key, "k");
}

TEST(ProcessSpec, BytesThatAreCutOrLongerAreRefused) {
  const std::string bytes = encode_spec(spec());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_spec(bytes.substr(0, size))) << size;
  }
  EXPECT_FALSE(decode_spec(bytes + "x"));
}

}  // namespace
}  // namespace pdjob::net
