#include "net/control/wire.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

#include <gtest/gtest.h>

#include "common/limits.h"
#include "common/random.h"

namespace pdjob::net {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

WorkerEntry worker_entry() {
  return {.name = "prefill-0",
          .engine_id = "prefill-0.ab12.1",
          .role = Role::kPrefill,
          .host = "127.0.0.1",
          .port = 40123,
          .model = "smollm2",
          .kv_address = R"({"remote_port":1})",
          .key = "a key of sixteen or more",
          .protocol = Protocol::kSglang,
          .abort = "DELETE /pdjob/transfers/{transfer}",
          .standing = Standing::kLeaving,
          .local_links = true,
          .model_digest = "0123456789abcdef",
          .weight_version = "step-7",
          .context_max = 4096,
          .created = 1790000000,
          .shares_cores = true,
          .fingerprint = "fedcba9876543210",
          .routes = {"/v1/rerank", "/pooling"},
          .adapters = {"sql", "tone"},
          .adapter_name = "{model}:{adapter}",
          .generates = false,
          .kv_events_port = 5557,
          .kv_replay_port = 5561,
          .kv_ranks = 4,
          .background_priority = 1};
}

WorkerLoad worker_load() {
  return {.requests_running = 1,
          .requests_queued = 2,
          .tokens_queued = 3,
          .kv_rows_used = 4,
          .kv_rows_max = 1ULL << 40,
          .standstill_ms = 5,
          .kv_received = 6,
          .patience_ms = 7,
          .ttft_us = 8,
          .itl_us = 9,
          .phases = {.queue_us = 23, .prefill_us = 24, .kv_us = 25},
          .tokens_computed = 10,
          .busy_us = 11,
          .ttft_sum_us = 12,
          .ttft_count = 13,
          .itl_sum_us = 14,
          .itl_count = 15,
          .steps = {.us = 16, .steps = 17, .tokens = 18, .rows_read = 19, .outputs = 20},
          .borrowed_steps = 21,
          .lending_rests = 22,
          .lending_rests_now = true};
}

std::vector<Message> one_of_each() {
  return {Registered{.worker = worker_entry(), .pid = 4711, .number = 2},
          HeartbeatSent{.name = "decode-1",
                        .engine_id = "e",
                        .sequence = 9,
                        .waited_us = 1234567,
                        .starved_permille = 430,
                        .load = worker_load(),
                        .unusable = true,
                        .troubles = {{"decode-2", "it answered 401"},
                                     {.worker = "decode-2",
                                      .why = "it answered 502",
                                      .partner = "prefill-0",
                                      .lasts = true}}},
          Acknowledge{.number = 2},
          Membership{.version = 7,
                     .since = 6,
                     .workers = {worker_entry(), worker_entry()},
                     .routers = {worker_entry()},
                     .stores = {{.name = "store-0", .role = Role::kStore, .kv_address = "{}"}},
                     .left = {{"decode-2", "decode-2.ab12.2", LossCause::kCrash},
                              {"prefill-0", "prefill-0.ab12.1", LossCause::kUnknown}},
                     .asleep = true},
          LoadReported{.name = "decode-1", .engine_id = "e", .load = worker_load()},
          Drain{.deadline_ms = 30000,
                .next = {.role = Role::kDecode,
                         .engine_id = "p.ab12.9",
                         .link_keys = "k",
                         .weights_order = 3,
                         .weight_version = "step-8"}},
          MembershipApplied{.engine_id = "router-0.ab12.3", .version = 7},
          RegisterAsked{},
          WeightsPrepared{.engine_id = "decode-1.ab12.4",
                          .order = 5,
                          .path = "/weights/step-8.gguf",
                          .digest = "fedc",
                          .bytes = 1ULL << 33,
                          .took_us = 1500000,
                          .error = "no such file",
                          .refused = true},
          AdmissionApplied{.engine_id = "router-0.ab12.3", .epoch = 6, .running = 7},
          OrderAsked{.id = 1ULL << 50,
                     .kind = OrderKind::kUpdate,
                     .mode = PauseMode::kRetract,
                     .path = "/weights/step-8.gguf",
                     .version = "step-8",
                     .keeps_pause = true},
          PrepareWeights{.order = 5, .path = "/weights/step-8.gguf"},
          AdmissionAsked{.epoch = 6, .closed = true, .mode = PauseMode::kAbort},
          OrderAnswered{.id = 1ULL << 50,
                        .status = 400,
                        .message = "another model",
                        .weights = {"/weights/step-7.gguf", "step-7", "abcd"},
                        .paused = true,
                        .mode = PauseMode::kAbort,
                        .workers = 4,
                        .serving = 3,
                        .updates = 8,
                        .troubles = {{"decode-1", "it died"}}},
          SpecAsked{.digest = "0a1b", .work = "router:\n  queue_timeout: 5s\n"},
          SpecApplied{.engine_id = "router-0.ab12.3", .digest = "0a1b"}};
}

TEST(Wire, EveryMessageSurvivesARoundTrip) {
  const std::vector<Message> messages = one_of_each();
  ASSERT_EQ(messages.size(), std::variant_size_v<Message>);
  for (size_t i = 0; i < messages.size(); ++i) {
    ASSERT_EQ(messages[i].index(), i) << "one_of_each() must hold every type";
    const Result<Message> decoded = decode(bytes_of(encode(messages[i])));
    ASSERT_TRUE(decoded) << decoded.error().message;
    EXPECT_EQ(*decoded, messages[i]);
  }
}

TEST(Wire, BytesAreWhatTheFormatSays) {
  EXPECT_EQ(encode(Drain{.deadline_ms = 0x0102}),
            std::string("pdjb\x18\x00\x06\x00\x02\x01\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00"
                        "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
                        37));
  EXPECT_EQ(encode(MembershipApplied{.engine_id = "ab", .version = 3}),
            std::string("pdjb\x18\x00\x07\x00\x02\x00\x00\x00"
                        "ab\x03\x00\x00\x00\x00\x00\x00\x00",
                        22));
}

// After a change of the format: PDJOB_WRITE_CORPUS=1 build/dev/net_control_test
TEST(Wire, TheFuzzersCorpusHoldsEveryMessageOfThisVersion) {
  const std::vector<Message> messages = one_of_each();
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string path = PDJOB_WIRE_CORPUS "/message_" + std::to_string(i + 1);
    if (std::getenv("PDJOB_WRITE_CORPUS") != nullptr) {
      std::ofstream(path, std::ios::binary) << encode(messages[i]);
    }
    std::ifstream file(path, std::ios::binary);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), encode(messages[i])) << path;
  }
}

TEST(Wire, EveryTruncationIsRefused) {
  for (const Message& message : one_of_each()) {
    const std::string whole = encode(message);
    for (size_t size = 0; size < whole.size(); ++size) {
      const Result<Message> decoded = decode(bytes_of(whole.substr(0, size)));
      ASSERT_FALSE(decoded) << size;
      EXPECT_EQ(decoded.error().code, ErrorCode::kCorrupt);
    }
  }
}

TEST(Wire, TrailingBytesAreRefused) {
  for (const Message& message : one_of_each()) {
    EXPECT_FALSE(decode(bytes_of(encode(message) + '\0')));
  }
}

TEST(Wire, AnOrderIsAMessageBehindTheLaunchersNumber) {
  for (const Message& message : one_of_each()) {
    const std::string bytes = encode_order(0x0203, message);
    EXPECT_EQ(bytes, std::string("\x03\x02\0\0\0\0\0\0", 8) + encode(message));
    const Result<Order> order = decode_order(bytes_of(bytes));
    ASSERT_TRUE(order);
    EXPECT_EQ(order->launcher, 0x0203U);
    EXPECT_EQ(order->message, message);
    EXPECT_FALSE(decode_order(bytes_of(bytes.substr(0, 7))));
    EXPECT_FALSE(decode_order(bytes_of(bytes.substr(1))));
  }
}

TEST(Wire, AnotherVersionIsUnsupportedNotCorrupt) {
  std::string bytes = encode(RegisterAsked{});
  bytes[4] = 1;
  EXPECT_EQ(decode(bytes_of(bytes)).error().code, ErrorCode::kUnsupported);
}

TEST(Wire, UnknownTypesAndRolesAreRefused) {
  std::string bytes = encode(RegisterAsked{});
  for (const char type : {'\0', '\x0b', '\x7f'}) {
    bytes[6] = type;
    EXPECT_EQ(decode(bytes_of(bytes)).error().code, ErrorCode::kCorrupt);
  }
  std::string registered = encode(Registered{});  // Two empty strings, then the role.
  for (const char role : {'\0', '\x07', '\x7f'}) {
    registered[16] = role;
    EXPECT_FALSE(decode(bytes_of(registered)));
  }
  registered[16] = 1;
  EXPECT_TRUE(decode(bytes_of(registered)));
}

TEST(Wire, FalseCountsCostNoMemory) {
  std::string list = encode(Membership{.version = 1});
  list[24] = '\xff';  // It claims 255 entries, but none follows.
  EXPECT_FALSE(decode(bytes_of(list)));
  std::string text = encode(MembershipApplied{});
  text.replace(8, 4, "\xff\xff\xff\xff");
  EXPECT_FALSE(decode(bytes_of(text)));
}

TEST(Wire, StringsAreBounded) {
  const std::string longest(limits::kControlStringBytesMax, 'x');
  std::string bytes = encode(MembershipApplied{.engine_id = longest});
  EXPECT_TRUE(decode(bytes_of(bytes)));
  bytes.replace(8, 4, std::string("\x01\x04\x00\x00", 4)).insert(12, "x");
  EXPECT_FALSE(decode(bytes_of(bytes)));
}

TEST(Wire, FlippedBytesNeverCrashAndReencodeTheSame) {
  Random random(7);
  const std::vector<Message> messages = one_of_each();
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = encode(messages[random.below(messages.size())]);
    for (uint64_t flips = 1 + random.below(3); flips > 0; --flips) {
      bytes[random.below(bytes.size())] = static_cast<char>(random.below(256));
    }
    if (const Result<Message> decoded = decode(bytes_of(bytes))) {
      EXPECT_EQ(encode(*decoded), bytes);  // The form is canonical.
    }
  }
}

}  // namespace
}  // namespace pdjob::net
