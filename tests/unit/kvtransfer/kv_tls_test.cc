// Encrypted links between real endpoints, over a relay that listens, changes bytes and cuts
// connections.
#include <string>

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "common/os/real_clock.h"
#include "kvtransfer/link/link_keys.h"
#include "kvtransfer/link/socket.h"
#include "kvtransfer/link/tls_stream.h"
#include "tests/unit/kvtransfer/kv_fixture.h"
#include "tests/unit/kvtransfer/relay.h"

namespace pdjob::kvtransfer {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kDeadline = seconds(30);
// An error while a link opens is reported at once, without waiting for a timeout.
constexpr Duration kAtOnce = seconds(4);
constexpr TestRegion::Shape kBig{.windows = 4, .rows = 2048, .row_bytes = 512};

TestEndpoint::Options encrypting(const std::string& engine_id, bool encrypt = true) {
  return {.engine_id = engine_id,
          .transport = TransportKind::kTcp,
          .tcp = {.encrypt = encrypt ? Encrypt::kAlways : Encrypt::kNever},
          .fingerprint = {{"model_digest", "digest-in-the-open"}}};
}

std::string some_row(const TestRegion& region, uint32_t row) {
  const Window& window = region.region().windows[1];
  return {reinterpret_cast<const char*>(window.base + uint64_t{row} * window.row_bytes), 24};
}

class KvTls : public testing::Test {
 protected:
  // Fetches `source_` over the relay, with a tail. Returns whether everything arrived right.
  bool moves(TestEndpoint& sender, TestEndpoint& receiver, const Relay& relay, uint64_t number) {
    TestRegion to(kBig);
    sender->offer(transfer_id(number), source_.region(), in(kDeadline));
    receiver->fetch(transfer_id(number), relay.address(), to.region(), kBig.rows, in(kDeadline));
    sender->commit(transfer_id(number), kBig.rows, tail_);
    const auto done = receiver.expect<FetchDone>();
    sender.expect<OfferDone>();
    return done.tail == tail_ && to.holds(3, 0, kBig.rows);
  }
  Error fails(TestEndpoint& receiver, const EndpointAddress& address, Duration within = kAtOnce) {
    TestRegion to(kBig);
    receiver->fetch(transfer_id(99), address, to.region(), kBig.rows, in(kDeadline));
    const auto failed = receiver.expect<FetchFailed>(within);
    EXPECT_TRUE(failed.region_safe);
    return failed.error;
  }

  TestRegion source_ = [] {
    TestRegion made(kBig);
    made.fill(3, 0, kBig.rows);
    return made;
  }();
  const std::vector<std::byte> tail_ = [] {
    const std::string text = "the last logits, in the open";
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    return std::vector<std::byte>(bytes, bytes + text.size());
  }();
};

TEST_F(KvTls, NothingReadableCrossesTheNetwork) {
  for (const bool encrypt : {false, true}) {
    TestEndpoint sender(encrypting("prefill-of-this-job", encrypt)),
        receiver(encrypting("decode-of-this-job", encrypt));
    Relay relay(sender->address());
    ASSERT_TRUE(moves(sender, receiver, relay, 1));
    // Without encryption the relay hears all of it. This shows that the test can detect a leak.
    for (const std::string& text :
         {std::string("prefill-of-this-job"), std::string("decode-of-this-job"),
          std::string("model_digest"), std::string("digest-in-the-open"),
          std::string("in the open"), some_row(source_, 0), some_row(source_, 1000)}) {
      EXPECT_EQ(relay.heard(text), !encrypt) << text;
    }
    EXPECT_GT(relay.carried(0), kBig.rows * source_.row_bytes());
  }
}

TEST_F(KvTls, AnotherTokenIsRefusedAtOnce) {
  TestEndpoint::Options other = encrypting("prefill");
  other.token = "another job's";
  TestEndpoint sender(other), receiver(encrypting("decode"));
  const Error error = fails(receiver, sender->address());
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_NE(error.message.find("is it of this job?"), std::string::npos) << error.message;
}

TEST_F(KvTls, AnEndThatEncryptsAndOneThatDoesNotSaySo) {
  for (const bool encrypt : {false, true}) {
    TestEndpoint sender(encrypting("prefill", !encrypt)), receiver(encrypting("decode", encrypt));
    const Error error = fails(receiver, sender->address());
    EXPECT_EQ(error.code, ErrorCode::kUnsupported);
    EXPECT_EQ(error.message,
              encrypt ? "KV link: the peer does not encrypt: kvtransfer.tcp.encrypt must be the "
                        "same on both ends"
                      : "KV link: the sender encrypts, the receiver does not: "
                        "kvtransfer.tcp.encrypt must be the same on both ends");
    EXPECT_TRUE(becomes_true([&] { return sender->stats().links == 0; }));
  }
}

TEST_F(KvTls, AStreamThatIsCutOffAnywhereEndsTheLinkAndNothingElse) {
  for (const uint64_t cut : {1U, 100U, 400U, 100'000U, 3'000'000U}) {
    TestEndpoint sender(encrypting("prefill")), receiver(encrypting("decode"));
    Relay relay(sender->address(), {.cut_after = cut});
    sender->offer(transfer_id(99), source_.region(), in(kDeadline));
    sender->rows_ready(transfer_id(99), kBig.rows);
    EXPECT_EQ(fails(receiver, relay.address()).code, ErrorCode::kUnavailable) << cut;
    sender->withdraw(transfer_id(99), {ErrorCode::kCancelled, "the test is over"});
    sender.expect<OfferFailed>();
    relay.heal();
    EXPECT_TRUE(moves(sender, receiver, relay, 2)) << cut;
  }
}

TEST_F(KvTls, AChangedBitEndsTheLink) {
  TestEndpoint sender(encrypting("prefill")), receiver(encrypting("decode"));
  Relay relay(sender->address(), {.flip_at = 1'000'000});
  sender->offer(transfer_id(99), source_.region(), in(kDeadline));
  sender->rows_ready(transfer_id(99), kBig.rows);
  const Error error = fails(receiver, relay.address());
  EXPECT_EQ(error.code, ErrorCode::kCorrupt);
  EXPECT_NE(error.message.find("TLS failed"), std::string::npos) << error.message;
  sender.expect<OfferFailed>();
}

TEST_F(KvTls, APeerThatSaysNothingIsGivenUpInTime) {
  TestEndpoint::Options hasty = encrypting("hasty");
  hasty.connect_timeout = milliseconds(300);
  TestEndpoint endpoint(hasty);
  const Fd silent = *listen_tcp("127.0.0.1", 0);
  EndpointAddress address = endpoint->address();
  address.engine_id = "silent";
  address.port = *bound_port(silent);
  EXPECT_EQ(fails(endpoint, address).code, ErrorCode::kUnavailable);
  // Sends nothing, then the beginning that fits either greeting, then the beginning of a
  // ClientHello.
  for (const std::string& said : {std::string(), std::string("\x16\x03", 2),
                                  std::string("\x16\x03\x01\x01\x40\x01\x00\x01", 8)}) {
    const Fd socket = *connect_tcp("127.0.0.1", endpoint->address().port);
    ASSERT_TRUE(becomes_true([&] { return endpoint->stats().links == 1; }));
    ASSERT_EQ(::send(socket.get(), said.data(), said.size(), 0), std::ssize(said));
    EXPECT_TRUE(becomes_true([&] { return endpoint->stats().links == 0; }));
  }
}

TEST_F(KvTls, NeedsAToken) {
  const auto started = KvEndpoint::start(
      {.config = {.transport = TransportKind::kTcp, .tcp = {.encrypt = Encrypt::kAlways}},
       .engine_id = "alone"});
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(started.error().message.find("kvtransfer.tcp.encrypt needs the keys of a job"),
            std::string::npos);
}

TEST_F(KvTls, TheKeyIsOfTheTokenAndNotTheOneThatProvesLinks) {
  const auto tls_key = [](const char* secret) { return LinkAuthority(secret).issue("e").tls; };
  EXPECT_EQ(tls_key("secret"), tls_key("secret"));
  EXPECT_NE(tls_key("secret"), tls_key("another"));
  EXPECT_NE(tls_key("secret"), LinkAuthority("secret").issue("e").authority);
}

// Drives both ends of one stream by turns.
TEST(TlsStream, TakesNewKeysOnItsWayAndKeepsTheOrderWhenBlocked) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  const Fd left(ends[0]), right(ends[1]);
  const auto context =
      *TlsContext::open({.key = LinkAuthority("secret").issue("e").tls, .bytes_per_key = 100'000});
  TlsStream from(*context, left.get(), TlsSide::kAcceptor);
  TlsStream to(*context, right.get(), TlsSide::kInitiator);
  std::string sent(3'000'000, '\0');
  for (size_t i = 0; i < sent.size(); ++i) {
    sent[i] = static_cast<char>(i * 2654435761U >> 13);
  }
  std::string came(sent.size(), '\0');
  size_t written = 0, read = 0;
  for (const Instant end = in(kDeadline); read < came.size() && real_now() < end;) {
    for (ssize_t taken = 1; taken > 0 && written < sent.size();) {
      iovec pieces[] = {{sent.data() + written, std::min<size_t>(7, sent.size() - written)}, {}};
      pieces[1] = {sent.data() + written + pieces[0].iov_len,
                   std::min<size_t>(50'000, sent.size() - written - pieces[0].iov_len)};
      taken = from.write(pieces);
      written += taken > 0 ? static_cast<size_t>(taken) : 0;
    }
    from.flush();
    const iovec place{came.data() + read, std::min<size_t>(33'333, came.size() - read)};
    const ssize_t got = to.read(std::span(&place, 1));
    ASSERT_NE(got, 0);
    read += got > 0 ? static_cast<size_t>(got) : 0;
    // The acceptor's half of the handshake is read too.
    std::byte none{};
    const iovec nowhere{&none, 1};
    ASSERT_EQ(from.read(std::span(&nowhere, 1)), -1);
    ASSERT_EQ(errno, EAGAIN);
  }
  EXPECT_EQ(came, sent);
}

}  // namespace
}  // namespace pdjob::kvtransfer
