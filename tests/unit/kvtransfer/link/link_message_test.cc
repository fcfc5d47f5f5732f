#include "kvtransfer/link/link_message.h"

#include <gtest/gtest.h>

#include "common/limits.h"

namespace pdjob::kvtransfer {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

Result<LinkMessage> decode(const std::string& frame) {
  const Result<FrameHeader> header = decode_header(bytes_of(frame).first<kFrameHeaderBytes>());
  if (!header) {
    return header.error();
  }
  return decode_body(header->type, bytes_of(frame).subspan(kFrameHeaderBytes));
}

std::vector<LinkMessage> one_of_each() {
  const TransferId id{.high = 1, .low = 2};
  const Error error{ErrorCode::kTimeout, "too late"};
  Nonce nonce{};
  nonce.fill(std::byte{7});
  LinkCertificate certificate;
  certificate.key.fill(std::byte{8});
  certificate.signature.fill(std::byte{9});
  return {Hello{.transport = TransportKind::kShm,
                .epoch = 3,
                .engine_id = "a",
                .peer_engine_id = "b",
                .nonce = nonce,
                .stream = 2},
          Challenge{.nonce = nonce, .certificate = certificate, .proof = certificate.signature},
          Prove{.certificate = certificate,
                .proof = certificate.signature,
                .fingerprint = {{"kv_type", "f16"}, {"model", ""}}},
          Welcome{},
          Refuse{error},
          Grant{.id = id,
                .rows = 9,
                .shared_bytes = 1 << 20,
                .shared_id = 7,
                .windows = {{64, 0}, {128, 4096}}},
          Committed{id},
          Cancel{id, error},
          Renew{},
          Rows{.id = id, .first = 1, .count = 2, .payload_bytes = 384},
          Commit{.id = id, .rows = 3, .bytes = 4, .digest = 5, .ready_at_ns = 6, .tail_bytes = 7},
          Cancelled{id},
          Abort{id, error},
          Renewed{},
          NcclOffer{.epoch = 1, .id = {std::byte{1}, std::byte{2}}},
          NcclPosted{.epoch = 2, .number = 3},
          NcclSlab{.epoch = 4, .number = 5, .transfer = id, .bytes = 6},
          NcclLeave{.epoch = 7},
          Wait{.id = id, .at_most_ms = 600'000},
          Landed{.id = id, .bytes = 1 << 20},
          BlockNews{.kind = BlockNews::Kind::kHeld,
                    .owner = BlockOwner{7},
                    .holder = {.engine_id = "a",
                               .host = "h",
                               .port = 1,
                               .unix_path = "@u",
                               .host_id = "m",
                               .gpu_path = "@g"},
                    .rows = 64,
                    .row_bytes = {48, 64},
                    .before = {.high = 5, .low = 6},
                    .blocks = {{.name = {.high = 3, .low = 4}, .transfer = id}}}};
}

TEST(LinkMessage, EveryMessageSurvivesTheWire) {
  const std::vector<LinkMessage> messages = one_of_each();
  ASSERT_EQ(messages.size(), std::variant_size_v<LinkMessage>);
  for (size_t i = 0; i < messages.size(); ++i) {
    ASSERT_EQ(messages[i].index(), i);
    const Result<LinkMessage> decoded = decode(encode(messages[i]));
    ASSERT_TRUE(decoded.has_value()) << name_of(messages[i]);
    EXPECT_EQ(*decoded, messages[i]) << name_of(messages[i]);
  }
}

TEST(LinkMessage, BytesAreAsDocumented) {
  const std::string frame = encode(Committed{{.high = 0x0102030405060708, .low = 9}});
  EXPECT_EQ(
      frame,
      std::string("\x10\0\0\0\x07\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01\x09\0\0\0\0\0\0\0", 24));
}

TEST(LinkMessage, RefusesEveryTruncationAndTrailingByte) {
  for (const LinkMessage& message : one_of_each()) {
    const std::string frame = encode(message);
    for (size_t size = kFrameHeaderBytes; size < frame.size(); ++size) {
      EXPECT_FALSE(decode(frame.substr(0, size)).has_value())
          << name_of(message) << " cut to " << size;
    }
    EXPECT_FALSE(decode(frame + '\0').has_value()) << name_of(message);
  }
}

TEST(LinkMessage, RefusesUnknownTypesAndLongBodies) {
  std::string header = encode(Renew{});
  for (const char type : {'\0', static_cast<char>(std::variant_size_v<LinkMessage> + 1), '\xff'}) {
    header[4] = type;
    EXPECT_FALSE(decode_header(bytes_of(header).first<kFrameHeaderBytes>()).has_value());
  }
  header = encode(Renew{});
  header[2] = 2;  // Claims 128 KiB.
  EXPECT_FALSE(decode_header(bytes_of(header).first<kFrameHeaderBytes>()).has_value());
}

// Regression: a longer or shorter HELLO counted as malformed, so the peers never learned that their
// versions differ.
TEST(LinkMessage, ReadsTheVersionOfAnyHello) {
  for (const size_t cut : {10, 1, 0}) {
    std::string frame = encode(Hello{.version = kLinkVersion - 1, .engine_id = "a"});
    frame.resize(frame.size() - cut);
    const Result<LinkMessage> decoded = decode(frame + (cut == 0 ? "more" : ""));
    ASSERT_TRUE(decoded.has_value());
    EXPECT_EQ(std::get<Hello>(*decoded).version, kLinkVersion - 1);
  }
}

TEST(LinkMessage, RefusesAStreamBeyondTheLast) {
  std::string frame = encode(Hello{.stream = limits::kLinkStreamsMax - 1});
  EXPECT_TRUE(decode(frame).has_value());
  frame.back() = limits::kLinkStreamsMax;
  EXPECT_FALSE(decode(frame).has_value());
}

TEST(LinkMessage, RefusesMoreWindowsThanAllowed) {
  Grant grant;
  grant.windows.resize(limits::kWindowsMax);
  EXPECT_TRUE(decode(encode(grant)).has_value());
  std::string frame = encode(grant);
  EXPECT_LE(frame.size(), limits::kLinkMessageBytesMax);
  constexpr size_t kWindowBytes = 12;
  frame.append(kWindowBytes, '\0');
  ++frame[frame.size() - (limits::kWindowsMax + 1) * kWindowBytes - sizeof(uint32_t)];
  EXPECT_FALSE(decode(frame).has_value());
}

TEST(LinkMessage, CutsOverlongTextsOfErrors) {
  const Result<LinkMessage> decoded =
      decode(encode(Abort{{}, {ErrorCode::kInternal, std::string(1 << 20, 'x')}}));
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(std::get<Abort>(*decoded).error.message.size(), 4096);
}

}  // namespace
}  // namespace pdjob::kvtransfer
