// Peers that lie: raw sockets that break the link's protocol.
#include <atomic>
#include <deque>
#include <functional>
#include <optional>
#include <thread>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include "common/check.h"
#include "common/limits.h"
#include "common/os/real_clock.h"
#include "kvtransfer/link/link_handshake.h"
#include "kvtransfer/link/socket.h"
#include "kvtransfer/rows/row_digest.h"
#include "kvtransfer/session/sender.h"
#include "tests/unit/kvtransfer/kv_fixture.h"

namespace pdjob::kvtransfer {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kDeadline = seconds(30);
constexpr TestRegion::Shape kBig{.windows = 4, .rows = 2048, .row_bytes = 512};

// One end of a link, driven by the test.
class RawLink {
 public:
  explicit RawLink(Fd socket) : socket_(std::move(socket)) {}

  static RawLink connect(const EndpointAddress& address) {
    return RawLink(*connect_tcp(address.host, address.port));
  }
  void write(const std::string& bytes) {
    ready(POLLOUT);
    PDJOB_CHECK(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
                static_cast<ssize_t>(bytes.size()));
  }
  void write_if_open(const std::string& bytes) {
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    static_cast<void>(sent);
  }
  void send(const LinkMessage& message) { write(encode(message)); }
  // Returns the next message, or none if the link was closed.
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
  // Returns the next message that is no sign of life. Answers the signs of life before it.
  std::optional<LinkMessage> hear_but_renew() {
    std::optional<LinkMessage> message = hear();
    for (; message && std::holds_alternative<Renew>(*message); message = hear()) {
      send(Renewed{});
    }
    return message;
  }
  // Returns whether the handshake succeeds. With `hello` this end initiates, otherwise it accepts.
  bool open(const LinkIdentity& self, const std::optional<Hello>& hello,
            TransportKind transport = TransportKind::kTcp) {
    LinkHandshake handshake =
        hello ? LinkHandshake(self, *hello) : LinkHandshake(self, transport, random_nonce());
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

  Fd socket_;
};

LinkIdentity raw_identity(const std::string& engine_id) {
  return {.engine_id = engine_id,
          .keys = LinkAuthority("secret").issue(engine_id),
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

// The test plays the sender. Its messages after the grant decide the fetch.
class LyingSender : public testing::Test {
 protected:
  explicit LyingSender(TransportKind transport = TransportKind::kTcp,
                       Duration connect_timeout = seconds(5))
      : to_({}, TestRegion::Memory::kShared),
        receiver_(
            {.engine_id = "decode", .transport = transport, .connect_timeout = connect_timeout}) {
    EndpointAddress address = receiver_->address();  // On the same machine.
    address.engine_id = "raw";
    if (transport == TransportKind::kShm) {
      address.unix_path += "-raw";
      listener_ = *listen_unix(address.unix_path);
    } else {
      listener_ = *listen_tcp("127.0.0.1", 0);
      address.port = *bound_port(listener_);
    }
    receiver_->fetch(transfer_id(1), address, to_.region(), 64, in(kDeadline));
    pollfd waited{.fd = listener_.get(), .events = POLLIN, .revents = 0};
    PDJOB_CHECK(::poll(&waited, 1, 20'000) == 1);
    link_.emplace(accept_next(listener_));
    const LinkIdentity self = raw_identity("raw");
    EXPECT_TRUE(link_->open(self, std::nullopt, transport));
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

  Fd listener_;
  TestRegion to_;
  TestEndpoint receiver_;
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

// The time comes from another process. 2^63 ns do not fit a Duration, and other values lay 146
// years back.
class WhenRowsWereReady : public LyingSender, public testing::WithParamInterface<uint64_t> {};

TEST_P(WhenRowsWereReady, IsWithinTheFetch) {
  link_->send(rows(0, 2));
  link_->write(rows_);
  Commit odd = commit();
  odd.ready_at_ns = GetParam();
  link_->send(odd);
  const auto done = receiver_.expect<FetchDone>();
  EXPECT_GE(done.visible, Duration(0));
  EXPECT_LE(done.visible, done.duration);
}

INSTANTIATE_TEST_SUITE_P(LyingSender, WhenRowsWereReady,
                         testing::Values(0, uint64_t{1} << 63, uint64_t{3} << 62,
                                         (uint64_t{1} << 63) - 1, UINT64_MAX));

// The sender keeps talking, but the data that it owes never comes.
class StallingSender : public LyingSender {
 protected:
  explicit StallingSender(TransportKind transport = TransportKind::kTcp)
      : LyingSender(transport, milliseconds(300)) {}

  // Sends a byte now and then until the receiver has closed its end. Ignores what the receiver
  // says.
  void trickle_until_closed() {
    std::thread talking([this] {
      while (!stopped_) {
        link_->write_if_open("x");
        std::this_thread::sleep_for(milliseconds(20));
      }
    });
    const Instant start = real_now();
    while (link_->hear()) {
    }
    stopped_ = true;
    talking.join();
    EXPECT_LT(real_now() - start, seconds(5));
  }
  void expect_timeout() {
    const auto failed = receiver_.expect<FetchFailed>(seconds(5));  // Long before its deadline.
    EXPECT_TRUE(failed.error.code == ErrorCode::kTimeout ||
                failed.error.code == ErrorCode::kUnavailable)
        << failed.error.message;
    EXPECT_TRUE(failed.region_safe);
  }

  std::atomic<bool> stopped_ = false;
};

TEST_F(StallingSender, PayloadThatTricklesEndsTheLink) {
  link_->send(rows(0, 2));
  link_->write(rows_.substr(0, 100));
  trickle_until_closed();
  expect_timeout();
}

TEST_F(StallingSender, TailThatTricklesEndsTheLink) {
  link_->send(rows(0, 2));
  link_->write(rows_);
  Commit with_tail = commit();
  with_tail.tail_bytes = 1000;
  link_->send(with_tail);
  trickle_until_closed();
  expect_timeout();
}

class StallingShmSender : public StallingSender {
 protected:
  StallingShmSender() : StallingSender(TransportKind::kShm) {}
};

TEST_F(StallingShmSender, CancelThatIsNotAnsweredEndsTheLink) {
  receiver_->cancel(transfer_id(1));
  EXPECT_FALSE(receiver_.expect<FetchFailed>().region_safe);
  EXPECT_TRUE(std::holds_alternative<Cancel>(*link_->hear_but_renew()));
  EXPECT_FALSE(link_->hear_but_renew());            // The receiver has closed its end,
  EXPECT_FALSE(receiver_.next(milliseconds(100)));  // but this sender may still write.
  link_.reset();
  receiver_.expect<FetchReleased>();
}

// The receiver hashes the rows that the sender says are in place. A wrong claim is found, or times
// out.
class LyingShmSender : public StallingShmSender {
 protected:
  void announce() {
    Rows announced = rows(0, 2);
    announced.payload_bytes = 0;
    link_->send(announced);
  }
};

TEST_F(LyingShmSender, RowsThatAreInPlaceAreTakenAsTheyLand) {
  link_->send(Landed{transfer_id(9), 1});  // As if from a cancelled transfer.
  announce();
  uint64_t landed = 0;
  for (const Window& window : to_.region().windows) {
    std::fill_n(window.base, 2 * window.row_bytes, std::byte{'x'});
    link_->send(Landed{transfer_id(1), landed += uint64_t{2} * window.row_bytes});
  }
  link_->send(commit());
  receiver_.expect<FetchDone>();
}

TEST_F(LyingShmSender, RowsThatLandedAndAreNotThereFailTheDigest) {
  announce();
  link_->send(Landed{transfer_id(1), rows_.size()});
  link_->send(commit());
  EXPECT_EQ(receiver_.expect<FetchFailed>().error.code, ErrorCode::kCorrupt);
}

TEST_F(LyingShmSender, MoreThanWasAnnouncedIsNotBelieved) {
  link_->send(Landed{transfer_id(1), UINT64_MAX});  // Nothing was announced.
  announce();
  for (const Window& window : to_.region().windows) {
    std::fill_n(window.base, 2 * window.row_bytes, std::byte{'x'});
  }
  link_->send(Landed{transfer_id(1), rows_.size() + 1});
  link_->send(commit());
  receiver_.expect<FetchDone>();
}

TEST_F(LyingShmSender, CommitOfRowsThatNeverLandTimesOut) {
  announce();
  link_->send(commit());
  const std::optional<LinkMessage> said = link_->hear_but_renew();
  ASSERT_TRUE(said && std::holds_alternative<Cancel>(*said));
  link_->send(Cancelled{transfer_id(1)});
  EXPECT_EQ(receiver_.expect<FetchFailed>().error.code, ErrorCode::kTimeout);
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

TEST_F(LyingReceiver, EpochsAreOfOneStream) {
  RawLink first = RawLink::connect(sender_->address());
  RawLink second = RawLink::connect(sender_->address());
  ASSERT_TRUE(first.open(self_, raw_hello(5)));
  Hello hello = raw_hello(1);
  hello.stream = 1;
  ASSERT_TRUE(second.open(self_, hello)) << "another stream's epoch is no stale one";
  for (RawLink* link : {&first, &second}) {
    link->send(Renew{});
    EXPECT_TRUE(link->hear()) << "neither replaced the other";
  }
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

// Regression: the honest receiver was refused with "too many KV transfers".
TEST_F(LyingReceiver, WhoGrantsWhatIsNeverOfferedTakesNoPlaceOfOthers) {
  RawLink greedy = RawLink::connect(sender_->address());
  RawLink honest = RawLink::connect(sender_->address());
  ASSERT_TRUE(greedy.open(self_, raw_hello()));
  const LinkIdentity other = raw_identity("honest");
  Hello hello = raw_hello();
  hello.engine_id = "honest";
  ASSERT_TRUE(honest.open(other, hello));
  for (uint64_t number = 0; number < limits::kTransfersMax; ++number) {
    greedy.send(raw_grant(1000 + number, source_));
  }
  const auto refused = greedy.hear();
  ASSERT_TRUE(refused && std::holds_alternative<Abort>(*refused));
  EXPECT_EQ(std::get<Abort>(*refused).id, transfer_id(1000 + kWaitingGrantsOfLinkMax));
  EXPECT_EQ(std::get<Abort>(*refused).error.code, ErrorCode::kOverloaded);
  honest.send(raw_grant(1, source_));  // Waits for its offer.
  EXPECT_TRUE(sender_.becomes_awaited(transfer_id(1), true));
  sender_->offer(transfer_id(1), source_.region(), in(kDeadline));
  sender_->offer(transfer_id(2), source_.region(), in(kDeadline));
  EXPECT_TRUE(becomes_true([&] { return sender_->stats().offers_alive == 2; }));
  honest.send(raw_grant(2, source_));  // Its offer exists already.
  for (const uint64_t number : {1, 2}) {
    sender_->commit(transfer_id(number), 0, {});
    const auto said = honest.hear();
    ASSERT_TRUE(said && std::holds_alternative<Commit>(*said));
    EXPECT_EQ(std::get<Commit>(*said).id, transfer_id(number));
  }
}

// Regression: connections that sent nothing took all places, again and again.
TEST_F(LyingReceiver, StrangersKeepNoLinkFromOpening) {
  TestEndpoint sender({.engine_id = "prefill", .connect_timeout = kDeadline});
  RawLink opened = RawLink::connect(sender->address());
  ASSERT_TRUE(opened.open(self_, raw_hello(1)));
  std::deque<RawLink> strangers;
  for (size_t i = 0; i <= kUnopenedLinksMax; ++i) {
    strangers.push_back(RawLink::connect(sender->address()));
  }
  EXPECT_TRUE(strangers.front().is_closed_by_peer()) << "the oldest one goes";
  EXPECT_TRUE(becomes_true([&] { return sender->stats().links == 1 + kUnopenedLinksMax; }));
  Hello hello = raw_hello();
  hello.stream = 1;
  RawLink newest = RawLink::connect(sender->address());
  EXPECT_TRUE(newest.open(self_, hello));
  opened.send(Renew{});
  EXPECT_TRUE(opened.hear()) << "an open one stays";
}

TEST_F(LyingReceiver, EarlyConfirmationFailsTheOffer) {
  RawLink link = RawLink::connect(sender_->address());
  ASSERT_TRUE(link.open(self_, raw_hello()));
  sender_->offer(transfer_id(1), source_.region(), in(kDeadline));
  EXPECT_TRUE(becomes_true([&] { return sender_->stats().offers_alive == 1; }));
  link.send(raw_grant(1, source_));
  link.send(Committed{transfer_id(1)});
  EXPECT_EQ(sender_.expect<OfferFailed>(seconds(3)).error.code, ErrorCode::kCorrupt);
}

// Otherwise its rows would be held for as long as it renews.
TEST_F(LyingReceiver, WhoRenewsButNeverConfirmsLosesItsLease) {
  TestEndpoint sender({.engine_id = "prefill", .lease = milliseconds(500)});
  RawLink link = RawLink::connect(sender->address());
  ASSERT_TRUE(link.open(self_, raw_hello()));
  sender->offer(transfer_id(1), source_.region(), in(milliseconds(500)));
  sender->commit(transfer_id(1), 64, {});
  link.send(raw_grant(1, source_));
  std::optional<EndpointEvent> event;
  for (const Instant end = in(seconds(5)); !event && real_now() < end;) {
    link.send(Renew{});
    event = sender.next(milliseconds(50));
  }
  ASSERT_TRUE(event);
  EXPECT_EQ(std::get<OfferFailed>(*event).error.code, ErrorCode::kTimeout);
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
  EXPECT_TRUE(becomes_true([&] { return sender_->stats().links == 1; }));
  TestEndpoint receiver({.engine_id = "decode", .transport = TransportKind::kTcp});
  sender_->offer(transfer_id(2), source.region(), in(kDeadline));
  sender_->commit(transfer_id(2), 64, {});
  receiver->fetch(transfer_id(2), sender_->address(), to.region(), 64, in(kDeadline));
  receiver.expect<FetchDone>(seconds(5));
  EXPECT_EQ(sender_.expect<OfferDone>().id, transfer_id(2));
  const auto failed = sender_.expect<OfferFailed>(seconds(5));  // Long before its lease.
  EXPECT_EQ(failed.error.code, ErrorCode::kTimeout);
}

}  // namespace
}  // namespace pdjob::kvtransfer
