// Peers that die, stop, or lie: forked processes killed for real, and sockets that speak the link's
// protocol badly.
#include <csignal>
#include <functional>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "common/check.h"
#include "common/real_clock.h"
#include "kvtransfer/link_handshake.h"
#include "kvtransfer/row_digest.h"
#include "kvtransfer/socket.h"
#include "tests/unit/kvtransfer/forked_peer.h"
#include "tests/unit/kvtransfer/kv_fixture.h"

namespace pdjob::kvtransfer {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kDeadline = seconds(30);
constexpr TestRegion::Shape kBig{.windows = 4, .rows = 2048, .row_bytes = 512};

class KvFaults : public testing::TestWithParam<TransportKind> {
 protected:
  static bool is_shm() { return GetParam() == TransportKind::kShm; }
  static TestRegion target(TestRegion::Shape shape) {
    return TestRegion(shape, is_shm() ? TestRegion::Memory::kShared : TestRegion::Memory::kPrivate);
  }
  static TestEndpoint::Options options(const std::string& engine_id) {
    return {.engine_id = engine_id, .transport = GetParam()};
  }
  // Offers transfer 1, of which half is ready, and says "moving" when that is sent. Whole transfers
  // follow for each number it is told.
  static void send_half(Pipe& to_test, Pipe& from_test) {
    TestEndpoint sender(options("prefill"));
    TestRegion source(kBig);
    source.fill(1, 0, kBig.rows);
    sender->offer(transfer_id(1), source.region(), in(kDeadline));
    sender->rows_ready(transfer_id(1), kBig.rows / 2);
    to_test.say(sender->address());
    wait_until([&] { return sender->stats().bytes_sent >= kBig.rows / 2 * source.row_bytes(); });
    to_test.say("moving");
    for (std::string line = from_test.hear(); !line.empty(); line = from_test.hear()) {
      sender->offer(transfer_id(std::stoull(line)), source.region(), in(kDeadline));
      sender->commit(transfer_id(std::stoull(line)), kBig.rows, {});
    }
  }
};

TEST_P(KvFaults, MovesBetweenProcesses) {
  ForkedPeer peer(send_half);
  TestEndpoint receiver(options("decode"));
  const EndpointAddress address = peer.to_test.hear_address();
  TestRegion to = target(kBig), half = target(kBig);
  receiver->fetch(transfer_id(1), address, half.region(), kBig.rows, in(kDeadline));
  ASSERT_EQ(peer.to_test.hear(), "moving");
  peer.from_test.say("2");
  receiver->fetch(transfer_id(2), address, to.region(), kBig.rows, in(kDeadline));
  EXPECT_EQ(receiver.expect<FetchDone>().rows, kBig.rows);
  EXPECT_TRUE(to.holds(1, 0, kBig.rows));
}

TEST_P(KvFaults, KilledSenderFailsTheFetchAtOnce) {
  ForkedPeer peer(send_half);
  TestEndpoint receiver(options("decode"));
  TestRegion to = target(kBig);
  receiver->fetch(transfer_id(1), peer.to_test.hear_address(), to.region(), kBig.rows,
                  in(kDeadline));
  ASSERT_EQ(peer.to_test.hear(), "moving");
  peer.kill();
  const auto failed = receiver.expect<FetchFailed>(seconds(2));
  EXPECT_EQ(failed.error.code, ErrorCode::kUnavailable);
  EXPECT_TRUE(failed.region_safe);
  wait_until([&] { return receiver->stats().links == 0; });
}

TEST_P(KvFaults, KilledReceiverFailsTheOfferAtOnce) {
  ForkedPeer peer([](Pipe& /*to_test*/, Pipe& from_test) {
    TestRegion to = target(kBig);
    TestEndpoint receiver(options("decode"));
    receiver->fetch(transfer_id(1), from_test.hear_address(), to.region(), kBig.rows,
                    in(kDeadline));
    ::pause();
  });
  TestEndpoint sender(options("prefill"));
  TestRegion source(kBig);
  sender->offer(transfer_id(1), source.region(), in(kDeadline));
  sender->rows_ready(transfer_id(1), kBig.rows / 2);
  peer.from_test.say(sender->address());
  wait_until([&] { return sender->stats().bytes_sent >= kBig.rows / 2 * source.row_bytes(); });
  peer.kill();
  EXPECT_EQ(sender.expect<OfferFailed>(seconds(2)).error.code, ErrorCode::kUnavailable);
  wait_until([&] { return sender->stats().links == 0; });
}

TEST_P(KvFaults, StoppedSenderCannotHoldAFetchPastItsDeadline) {
  ForkedPeer peer(send_half);
  TestEndpoint receiver(options("decode"));
  TestRegion to = target(kBig);
  receiver->fetch(transfer_id(1), peer.to_test.hear_address(), to.region(), kBig.rows,
                  in(milliseconds(1500)));
  ASSERT_EQ(peer.to_test.hear(), "moving");
  peer.stop();
  const auto failed = receiver.expect<FetchFailed>(seconds(5));
  EXPECT_EQ(failed.error.code, ErrorCode::kTimeout);
  EXPECT_EQ(failed.region_safe, !is_shm());
  if (is_shm()) {
    EXPECT_FALSE(receiver.next(milliseconds(100)));  // It may still wake up and write.
    peer.signal(SIGCONT);
    receiver.expect<FetchReleased>();
  }
}

TEST_P(KvFaults, StoppedAndThenKilledSenderReleasesTheRows) {
  if (!is_shm()) {
    GTEST_SKIP() << "tcp is safe at once";
  }
  ForkedPeer peer(send_half);
  TestEndpoint receiver(options("decode"));
  TestRegion to = target(kBig);
  receiver->fetch(transfer_id(1), peer.to_test.hear_address(), to.region(), kBig.rows,
                  in(kDeadline));
  ASSERT_EQ(peer.to_test.hear(), "moving");
  peer.stop();
  receiver->cancel(transfer_id(1));
  EXPECT_FALSE(receiver.expect<FetchFailed>().region_safe);
  EXPECT_FALSE(receiver.next(milliseconds(100)));
  peer.kill();
  receiver.expect<FetchReleased>(seconds(2));
}

TEST_P(KvFaults, SilentLinkIsGivenUpAndOpenedAnewWhenThePeerIsBack) {
  ForkedPeer peer(send_half);
  TestEndpoint::Options impatient = options("decode");
  impatient.connect_timeout = milliseconds(300);
  TestEndpoint receiver(impatient);
  const EndpointAddress address = peer.to_test.hear_address();
  TestRegion to = target(kBig), again = target(kBig);
  receiver->fetch(transfer_id(1), address, to.region(), kBig.rows, in(kDeadline));
  ASSERT_EQ(peer.to_test.hear(), "moving");
  peer.stop();
  const auto failed = receiver.expect<FetchFailed>(seconds(5));  // Long before its deadline.
  EXPECT_EQ(failed.error.code, ErrorCode::kUnavailable);
  EXPECT_EQ(failed.region_safe, !is_shm());
  receiver->fetch(transfer_id(2), address, again.region(), kBig.rows, in(kDeadline));
  EXPECT_EQ(receiver.expect<FetchFailed>(seconds(5)).error.code, ErrorCode::kUnavailable);
  peer.signal(SIGCONT);
  if (is_shm()) {
    EXPECT_EQ(receiver.expect<FetchReleased>().id, transfer_id(1));
  }
  peer.from_test.say("3");
  receiver->fetch(transfer_id(3), address, again.region(), kBig.rows, in(kDeadline));
  receiver.expect<FetchDone>();
  EXPECT_TRUE(again.holds(1, 0, kBig.rows));
}

TEST_P(KvFaults, StoppedReceiverLosesItsLease) {
  ForkedPeer peer([](Pipe& /*to_test*/, Pipe& from_test) {
    TestRegion to = target(kBig);
    TestEndpoint receiver(options("decode"));
    receiver->fetch(transfer_id(1), from_test.hear_address(), to.region(), kBig.rows,
                    in(kDeadline));
    ::pause();
  });
  TestEndpoint::Options strict = options("prefill");
  strict.lease = milliseconds(500);
  TestEndpoint sender(strict);
  TestRegion source(kBig);
  sender->offer(transfer_id(1), source.region(), in(milliseconds(500)));
  sender->rows_ready(transfer_id(1), 10);
  peer.from_test.say(sender->address());
  wait_until([&] { return sender->stats().bytes_sent > 0; });
  peer.stop();
  EXPECT_EQ(sender.expect<OfferFailed>(seconds(5)).error.code, ErrorCode::kTimeout);
}

TEST_P(KvFaults, WaitingReceiverKeepsItsLease) {
  TestEndpoint::Options strict = options("prefill"), patient = options("decode");
  strict.lease = patient.lease = milliseconds(300);
  TestEndpoint sender(strict), receiver(patient);
  TestRegion source({});
  TestRegion to = target({});
  sender->offer(transfer_id(1), source.region(), in(milliseconds(300)));
  receiver->fetch(transfer_id(1), sender->address(), to.region(), 64, in(kDeadline));
  EXPECT_FALSE(sender.next(milliseconds(1000)));
  sender->commit(transfer_id(1), 64, {});
  receiver.expect<FetchDone>();
}

INSTANTIATE_TEST_SUITE_P(Transports, KvFaults,
                         testing::Values(TransportKind::kShm, TransportKind::kTcp,
                                         TransportKind::kNccl),
                         [](const auto& param) { return name_of(param.param); });

// One end of a tcp link in the test's own hands.
class RawLink {
 public:
  explicit RawLink(UniqueFd socket) : socket_(std::move(socket)) {}

  static RawLink connect(const EndpointAddress& address) {
    return RawLink(*connect_tcp(address.host, address.port));
  }
  void write(const std::string& bytes) {
    ready(POLLOUT);
    PDJOB_CHECK(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
                static_cast<ssize_t>(bytes.size()));
  }
  void send(const LinkMessage& message) { write(encode(message)); }
  // The next message; none when the link was closed.
  std::optional<LinkMessage> hear() {
    const std::string head = read(kFrameHeaderBytes);
    if (head.empty()) {
      return std::nullopt;
    }
    const auto header = decode_header(std::as_bytes(std::span(head)).first<kFrameHeaderBytes>());
    const std::string body = read(header->body_bytes);
    return *decode_body(header->type, std::as_bytes(std::span(body)));
  }
  bool is_closed_by_peer() { return !hear(); }
  // True when the handshake succeeds; as initiator with `hello`, else as acceptor.
  bool open(const LinkIdentity& self, const std::optional<Hello>& hello) {
    LinkHandshake handshake = hello ? LinkHandshake(self, *hello)
                                    : LinkHandshake(self, TransportKind::kTcp, random_nonce());
    if (hello) {
      send(*hello);
    }
    while (const std::optional<LinkMessage> message = hear()) {
      std::vector<LinkMessage> replies;
      const LinkHandshake::Outcome outcome = handshake.step(*message, replies);
      for (const LinkMessage& reply : replies) {
        send(reply);
      }
      if (outcome != LinkHandshake::Outcome::kGoesOn) {
        return outcome == LinkHandshake::Outcome::kReady;
      }
    }
    return false;
  }

 private:
  void ready(short events) {
    pollfd waited{.fd = socket_.get(), .events = events, .revents = 0};
    PDJOB_CHECK(::poll(&waited, 1, 20'000) == 1);
  }
  std::string read(size_t size) {
    std::string bytes(size, '\0');
    for (size_t filled = 0; filled < size;) {
      ready(POLLIN);
      const ssize_t got = ::recv(socket_.get(), bytes.data() + filled, size - filled, 0);
      if (got <= 0) {
        return "";
      }
      filled += static_cast<size_t>(got);
    }
    return bytes;
  }

  UniqueFd socket_;
};

LinkIdentity raw_identity(const std::string& engine_id) {
  return {.engine_id = engine_id,
          .key = make_key("secret"),
          .fingerprint = {{"model_digest", "abc"}, {"kv_type", "f16"}}};
}
Hello raw_hello(uint64_t epoch = 1) {
  return {.transport = TransportKind::kTcp,
          .epoch = epoch,
          .engine_id = "raw",
          .peer_engine_id = "prefill",
          .nonce = random_nonce()};
}
Grant raw_grant(uint64_t number, const TestRegion& region) {
  Grant grant{.id = transfer_id(number), .rows = 64};
  for (const Window& window : region.region().windows) {
    grant.windows.push_back({.row_bytes = window.row_bytes});
  }
  return grant;
}

// A sender that is the test: what it sends after the grant decides the fetch.
class LyingSender : public testing::Test {
 protected:
  LyingSender() {
    EndpointAddress address{
        .engine_id = "raw", .host = "127.0.0.1", .port = *bound_port(listener_)};
    receiver_->fetch(transfer_id(1), address, to_.region(), 64, in(kDeadline));
    pollfd waited{.fd = listener_.get(), .events = POLLIN, .revents = 0};
    PDJOB_CHECK(::poll(&waited, 1, 20'000) == 1);
    link_.emplace(accept_next(listener_));
    const LinkIdentity self = raw_identity("raw");
    EXPECT_TRUE(link_->open(self, std::nullopt));
    EXPECT_TRUE(std::holds_alternative<Grant>(*link_->hear()));
    rows_.resize(2 * to_.row_bytes(), 'x');
    digest_.update(std::as_bytes(std::span(rows_)));
  }
  Rows rows(uint32_t first, uint32_t count) const {
    return {.id = transfer_id(1),
            .first = first,
            .count = count,
            .payload_bytes = count * to_.row_bytes()};
  }
  Commit commit() const {
    return {.id = transfer_id(1), .rows = 2, .bytes = rows_.size(), .digest = digest_.value()};
  }
  void expect_corrupt() {
    const auto failed = receiver_.expect<FetchFailed>(seconds(3));
    EXPECT_EQ(failed.error.code, ErrorCode::kCorrupt);
    EXPECT_TRUE(failed.region_safe);
    EXPECT_EQ(receiver_->stats().digest_errors, 1);
  }

  UniqueFd listener_ = *listen_tcp("127.0.0.1", 0);
  TestRegion to_{{}};
  TestEndpoint receiver_{{.engine_id = "decode", .transport = TransportKind::kTcp}};
  std::optional<RawLink> link_;
  std::string rows_;
  RowDigest digest_;
};

TEST_F(LyingSender, WhoTellsTheTruthIsBelieved) {
  link_->send(rows(0, 2));
  link_->write(rows_);
  link_->send(commit());
  receiver_.expect<FetchDone>();
  EXPECT_TRUE(std::holds_alternative<Committed>(*link_->hear()));
}

TEST_F(LyingSender, FlippedBitIsFound) {
  rows_[100] ^= 1;
  link_->send(rows(0, 2));
  link_->write(rows_);
  link_->send(commit());
  expect_corrupt();
  EXPECT_EQ(std::get<Cancel>(*link_->hear()).error.code, ErrorCode::kCorrupt);
}

TEST_F(LyingSender, WrongCountInCommitIsFound) {
  link_->send(rows(0, 2));
  link_->write(rows_);
  Commit wrong = commit();
  wrong.rows = 3;
  link_->send(wrong);
  expect_corrupt();
}

TEST_F(LyingSender, RowsBeyondTheGrantAreDiscarded) {
  link_->send(rows(0, 65));
  link_->write(std::string(65 * to_.row_bytes(), 'y'));
  expect_corrupt();
  EXPECT_TRUE(std::holds_alternative<Cancel>(*link_->hear()));
  EXPECT_EQ(to_.region().windows[0].base[0], std::byte{0});
}

TEST_F(LyingSender, WrongPayloadSizeEndsTheLink) {
  Rows wrong = rows(0, 2);
  wrong.payload_bytes += 1;
  link_->send(wrong);
  EXPECT_EQ(receiver_.expect<FetchFailed>(seconds(3)).error.code, ErrorCode::kCorrupt);
  EXPECT_TRUE(link_->is_closed_by_peer());
}

TEST_F(LyingSender, HugePayloadOrTailEndsTheLink) {
  link_->send(Commit{.id = transfer_id(9), .tail_bytes = 0xffffffff});
  EXPECT_EQ(receiver_.expect<FetchFailed>(seconds(3)).error.code, ErrorCode::kCorrupt);
}

TEST_F(LyingSender, MessagesOfTheOtherSideEndTheLink) {
  link_->send(Renew{});
  EXPECT_EQ(receiver_.expect<FetchFailed>(seconds(3)).error.code, ErrorCode::kCorrupt);
}

TEST_F(LyingSender, GarbageEndsTheLink) {
  link_->write("HTTP/1.1 200 OK\r\n\r\n");
  EXPECT_EQ(receiver_.expect<FetchFailed>(seconds(3)).error.code, ErrorCode::kCorrupt);
}

TEST_F(LyingSender, StrangersTransfersAreIgnored) {
  link_->send(Commit{.id = transfer_id(9), .tail_bytes = 3});
  link_->write("abc");
  link_->send(Rows{.id = transfer_id(9), .count = 1, .payload_bytes = 5});
  link_->write("12345");
  link_->send(Abort{transfer_id(9), {ErrorCode::kInternal, "?"}});
  link_->send(rows(0, 2));
  link_->write(rows_);
  link_->send(commit());
  receiver_.expect<FetchDone>();
}

class LyingReceiver : public testing::Test {
 protected:
  TestEndpoint sender_{{.engine_id = "prefill", .connect_timeout = milliseconds(300)}};
  TestRegion source_{{}};
  const LinkIdentity self_ = raw_identity("raw");
};

TEST_F(LyingReceiver, SilentConnectionIsClosedAfterTheTimeout) {
  RawLink link = RawLink::connect(sender_->address());
  EXPECT_TRUE(link.is_closed_by_peer());
}

TEST_F(LyingReceiver, GarbageIsClosedAtOnce) {
  for (const std::string& garbage :
       {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), std::string(100, '\0'),
        std::string(100, '\xff'), encode(Grant{}), encode(Rows{}), encode(Commit{})}) {
    RawLink link = RawLink::connect(sender_->address());
    link.write(garbage);
    EXPECT_TRUE(link.is_closed_by_peer());
  }
}

TEST_F(LyingReceiver, WrongProofIsRefused) {
  RawLink link = RawLink::connect(sender_->address());
  link.send(raw_hello());
  EXPECT_TRUE(std::holds_alternative<Challenge>(*link.hear()));
  link.send(Prove{});
  EXPECT_EQ(std::get<Refuse>(*link.hear()).error.code, ErrorCode::kUnsupported);
  EXPECT_TRUE(link.is_closed_by_peer());
}

TEST_F(LyingReceiver, StaleEpochIsRefusedAndANewerOneReplaces) {
  RawLink second = RawLink::connect(sender_->address());
  ASSERT_TRUE(second.open(self_, raw_hello(2)));
  sender_->offer(transfer_id(1), source_.region(), in(kDeadline));
  second.send(raw_grant(1, source_));
  RawLink first = RawLink::connect(sender_->address());
  EXPECT_FALSE(first.open(self_, raw_hello(1)));
  RawLink third = RawLink::connect(sender_->address());
  ASSERT_TRUE(third.open(self_, raw_hello(3)));
  EXPECT_EQ(sender_.expect<OfferFailed>(seconds(3)).error.code, ErrorCode::kUnavailable);
  EXPECT_TRUE(second.is_closed_by_peer());
}

TEST_F(LyingReceiver, SecondGrantOnTheSameLinkEndsIt) {
  RawLink link = RawLink::connect(sender_->address());
  ASSERT_TRUE(link.open(self_, raw_hello()));
  link.send(raw_grant(1, source_));
  link.send(raw_grant(1, source_));
  EXPECT_TRUE(link.is_closed_by_peer());
}

TEST_F(LyingReceiver, CancelOfAnythingIsAcknowledged) {
  RawLink link = RawLink::connect(sender_->address());
  ASSERT_TRUE(link.open(self_, raw_hello()));
  link.send(Cancel{transfer_id(5), {}});
  EXPECT_EQ(std::get<Cancelled>(*link.hear()).id, transfer_id(5));
  link.send(raw_grant(6, source_));
  link.send(Cancel{transfer_id(6), {}});
  EXPECT_EQ(std::get<Cancelled>(*link.hear()).id, transfer_id(6));
  link.send(Renew{});
  EXPECT_TRUE(std::holds_alternative<Renewed>(*link.hear()));
}

TEST_F(LyingReceiver, EarlyConfirmationFailsTheOffer) {
  RawLink link = RawLink::connect(sender_->address());
  ASSERT_TRUE(link.open(self_, raw_hello()));
  sender_->offer(transfer_id(1), source_.region(), in(kDeadline));
  wait_until([&] { return sender_->stats().offers_alive == 1; });
  link.send(raw_grant(1, source_));
  link.send(Committed{transfer_id(1)});
  EXPECT_EQ(sender_.expect<OfferFailed>(seconds(3)).error.code, ErrorCode::kCorrupt);
}

TEST_F(LyingReceiver, WhoDoesNotReadCannotHoldUpOthers) {
  TestRegion big(kBig), source({}), to({});
  RawLink link = RawLink::connect(sender_->address());
  ASSERT_TRUE(link.open(self_, raw_hello()));
  Grant grant = raw_grant(1, big);
  grant.rows = kBig.rows;
  sender_->offer(transfer_id(1), big.region(), in(kDeadline));
  sender_->rows_ready(transfer_id(1), kBig.rows);
  link.send(grant);
  wait_until([&] { return sender_->stats().links == 1; });
  TestEndpoint receiver({.engine_id = "decode", .transport = TransportKind::kTcp});
  sender_->offer(transfer_id(2), source.region(), in(kDeadline));
  sender_->commit(transfer_id(2), 64, {});
  receiver->fetch(transfer_id(2), sender_->address(), to.region(), 64, in(kDeadline));
  receiver.expect<FetchDone>(seconds(5));
}

}  // namespace
}  // namespace pdjob::kvtransfer
