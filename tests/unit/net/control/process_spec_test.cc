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
          .https = true,
          .rows_key = "the rows'",
          .weights = {"/w/7.gguf", "step-7", "d"},
          .begins_closed = true,
          .control_key = "the trainer's",
          .config_yaml = "name: x\nmode: serve\n",
          .config_name = "job.yaml"};
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
  EXPECT_TRUE(decoded->https);
  EXPECT_EQ(decoded->control.client.secret_key, "k");
}

TEST(ProcessSpec, ConfigThatIsNotUtf8DoesNotStopTheEncoder) {
  ProcessSpec odd = spec();
  odd.config_yaml = "name: \xff\xfe";
  EXPECT_TRUE(decode_spec(encode_spec(odd)));
}

TEST(ProcessSpec, WhatIsNotASpecIsRefusedNamingTheField) {
  EXPECT_EQ(decode_spec("").error().message, "process spec: not a JSON object");
  EXPECT_EQ(decode_spec("[]").error().message, "process spec: not a JSON object");
  EXPECT_EQ(decode_spec("{\"job\":").error().message, "process spec: not a JSON object");
  EXPECT_EQ(decode_spec("{}").error().message, "process spec: bad or missing job");

  std::string text = encode_spec(spec());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return decode_spec(changed).error().message;
  };
  EXPECT_EQ(with("\"port\":40001", "\"port\":70000"), "process spec: bad or missing port");
  EXPECT_EQ(with("\"port\":40001", "\"port\":\"1\""), "process spec: bad or missing port");
  EXPECT_EQ(with("\"prefill\"", "\"chef\""), "process spec: unknown role chef");
}

}  // namespace
}  // namespace pdjob::net
