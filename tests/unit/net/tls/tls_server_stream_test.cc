#include "net/tls/tls_server_stream.h"

#include <array>
#include <cerrno>

#include <gtest/gtest.h>
#include <sys/epoll.h>

#include "tests/unit/net/loop_test_support.h"
#include "tests/unit/net/tls/tls_client.h"

namespace pdjob::net {
namespace {

// The plain stream below: bytes that a test puts there, and a peer that takes so many.
class MemoryStream final : public Stream {
 public:
  Status watch(FdHandler& handler) override {
    watcher = &handler;
    return ok();
  }
  int connect_error() const override { return 0; }
  ssize_t read(std::span<char> to) override {
    if (in.empty()) {
      return ended ? 0 : -EAGAIN;
    }
    const size_t count = std::min(to.size(), in.size());
    in.copy(to.data(), count);
    in.erase(0, count);
    return static_cast<ssize_t>(count);
  }
  ssize_t write(std::span<const std::string_view> pieces) override {
    size_t total = 0;
    for (const std::string_view piece : pieces) {
      const size_t count = std::min(piece.size(), room - total);
      out.append(piece.substr(0, count));
      total += count;
    }
    room -= total;
    ++writes;
    return total == 0 ? -EAGAIN : static_cast<ssize_t>(total);
  }
  void finish_writing() override { finished = true; }
  void reset_when_closed() override {}

  std::string in;
  std::string out;
  size_t room = 1 << 30;
  size_t writes = 0;
  bool ended = false;
  bool finished = false;
  FdHandler* watcher = nullptr;
};

// Reads all it can, as a server does.
class Reader final : public FdHandler {
 public:
  explicit Reader(Stream& stream) : stream_(stream) {}
  void on_ready(uint32_t epoll_events) override {
    events |= epoll_events;
    std::array<char, 1024> buffer;
    ssize_t got = 0;
    while ((got = stream_.read(buffer)) > 0) {
      text.append(buffer.data(), static_cast<size_t>(got));
    }
    ended = ended || got == 0;
    broken = broken || (got < 0 && got != -EAGAIN);
  }

  std::string text;
  uint32_t events = 0;
  bool ended = false;
  bool broken = false;

 private:
  Stream& stream_;
};

class TlsServerStreamTest : public testing::Test {
 protected:
  TlsServerStreamTest() { begin({}); }

  void begin(const TlsClient::Options& options) {
    auto owned = std::make_unique<MemoryStream>();
    plain = owned.get();
    stream = std::make_unique<TlsServerStream>(loop, tls->context(), std::move(owned));
    client = std::make_unique<TlsClient>(options);
    reader = std::make_unique<Reader>(*stream);
  }
  // Returns the outcome at the server.
  int shake_hands() {
    int outcome = -EAGAIN;
    for (int turn = 0; turn < 10 && outcome == -EAGAIN; ++turn) {
      client->shake_hands();
      plain->in += client->take();
      outcome = stream->shake_hands();
      client->feed(std::exchange(plain->out, {}));
    }
    client->shake_hands();
    return outcome;
  }
  void open() {
    ASSERT_EQ(shake_hands(), 1) << stream->session().failure();
    ASSERT_TRUE(stream->watch(*reader));
  }
  ssize_t write(std::string_view text) { return stream->write(std::array{text}); }
  // What the client reads of what the server has written.
  std::string arrived() {
    client->feed(std::exchange(plain->out, {}));
    return client->read();
  }
  void tell(uint32_t epoll_events) { plain->watcher->on_ready(epoll_events); }

  EventLoop loop;
  std::unique_ptr<ServerTls> tls = *ServerTls::open(make_certificate(testing::TempDir()));
  MemoryStream* plain = nullptr;
  std::unique_ptr<TlsServerStream> stream;
  std::unique_ptr<TlsClient> client;
  std::unique_ptr<Reader> reader;
};

TEST_F(TlsServerStreamTest, SpeaksTheNewestVersion) {
  open();
  EXPECT_EQ(client->version(), "TLSv1.3");
  client->write("hello");
  plain->in = client->take();
  tell(EPOLLIN);
  EXPECT_EQ(reader->text, "hello");
  EXPECT_EQ(write("world"), 5);
  EXPECT_EQ(arrived(), "world");
}

TEST_F(TlsServerStreamTest, SpeaksTls12AndNothingOlder) {
  begin({.version_max = 0x0303});
  open();
  EXPECT_EQ(client->version(), "TLSv1.2");
  begin({.version_max = 0x0302});
  EXPECT_EQ(shake_hands(), -EPROTO);
  EXPECT_FALSE(stream->speaks_http());
}

TEST_F(TlsServerStreamTest, ChoosesHttp11OfWhatIsOffered) {
  begin({.protocols = std::string("\x02h2\x08http/1.1")});
  open();
  EXPECT_EQ(client->protocol(), "http/1.1");
  begin({.protocols = "\x02h2"});
  EXPECT_EQ(shake_hands(), -EPROTO) << "a client that speaks HTTP/2 only would misunderstand";
}

TEST_F(TlsServerStreamTest, TakesAHandshakeAndDataByteByByte) {
  int outcome = -EAGAIN;
  for (int turn = 0; turn < 4 && outcome != 1; ++turn) {
    client->shake_hands();
    for (const char byte : client->take()) {
      plain->in += byte;
      outcome = stream->shake_hands();
      ASSERT_TRUE(outcome == 1 || outcome == -EAGAIN) << outcome;
    }
    client->feed(std::exchange(plain->out, {}));
  }
  ASSERT_EQ(outcome, 1);
  ASSERT_TRUE(stream->watch(*reader));
  client->write("GET / HTTP/1.1\r\n\r\n");
  for (const char byte : client->take()) {
    plain->in += byte;
    tell(EPOLLIN);
  }
  EXPECT_EQ(reader->text, "GET / HTTP/1.1\r\n\r\n");
}

// The last message of the handshake and the first request may come together.
TEST_F(TlsServerStreamTest, TellsOfWhatCameWithTheHandshake) {
  client->shake_hands();
  plain->in = client->take();
  ASSERT_EQ(stream->shake_hands(), -EAGAIN);
  client->feed(std::exchange(plain->out, {}));
  ASSERT_TRUE(client->shake_hands());
  client->write("early");
  plain->in = client->take();
  Reader during(*stream);
  ASSERT_TRUE(stream->watch(during));
  ASSERT_EQ(stream->shake_hands(), 1);
  ASSERT_TRUE(stream->watch(*reader));
  EXPECT_TRUE(run_until(loop, [&] { return reader->text == "early"; }));
}

TEST_F(TlsServerStreamTest, LosesNothingWhenThePeerTakesLittle) {
  open();
  std::string sent(300'000, '\0');
  for (size_t i = 0; i < sent.size(); ++i) {
    sent[i] = static_cast<char>(i * 2654435761U >> 13);
  }
  std::string came;
  size_t written = 0;
  for (int turn = 0; turn < 100'000 && came.size() < sent.size(); ++turn) {
    plain->room = static_cast<size_t>(turn % 7) * 1000;
    const std::string_view rest = std::string_view(sent).substr(written);
    const std::array pieces = {rest.substr(0, 13), rest.substr(std::min<size_t>(13, rest.size()))};
    const ssize_t taken = rest.empty() ? 0 : stream->write(pieces);
    ASSERT_TRUE(taken >= 0 || taken == -EAGAIN);
    written += taken > 0 ? static_cast<size_t>(taken) : 0;
    came += arrived();
    // A record is 16 KiB, and only a whole one can be read.
    ASSERT_LE(written, came.size() + 16384);
  }
  EXPECT_EQ(came, sent);
  EXPECT_EQ(written, sent.size());
}

TEST_F(TlsServerStreamTest, SmallPiecesShareARecord) {
  open();
  plain->writes = 0;
  const std::array<std::string_view, 4> pieces = {"5\r\n", "hello", "\r\n", "0\r\n\r\n"};
  EXPECT_EQ(stream->write(pieces), 15);
  EXPECT_EQ(plain->writes, 1U);
  // 5 bytes of head, 1 of type, 16 of its seal.
  EXPECT_EQ(plain->out.size(), 15U + 22U);
  EXPECT_EQ(arrived(), "5\r\nhello\r\n0\r\n\r\n");
}

TEST_F(TlsServerStreamTest, AShortReadMeansThatNothingIsLeft) {
  open();
  for (int i = 0; i < 20; ++i) {  // Many small records, in one piece of the wire.
    client->write("0123456789");
  }
  plain->in = client->take();
  std::array<char, 1024> buffer;
  EXPECT_EQ(stream->read(buffer), 200);
}

TEST_F(TlsServerStreamTest, TellsOfAnEndThatCameWithData) {
  open();
  run_for(loop, std::chrono::milliseconds(5));
  client->write("bye");
  client->finish();
  plain->in = client->take();
  std::array<char, 1024> buffer;
  EXPECT_EQ(stream->read(buffer), 3);
  EXPECT_TRUE(run_until(loop, [&] { return reader->ended; }));
  EXPECT_NE(reader->events & EPOLLRDHUP, 0U);
}

TEST_F(TlsServerStreamTest, CountsBytesOnceTheyHaveLeft) {
  open();
  plain->room = 0;
  EXPECT_EQ(write("last words"), -EAGAIN);
  plain->room = 20;  // A part of the record.
  EXPECT_EQ(write("last words"), -EAGAIN);
  plain->room = 1000;
  EXPECT_EQ(write("last words, and more"), 20);
  EXPECT_EQ(arrived(), "last words, and more");
}

TEST_F(TlsServerStreamTest, SaysThatItEnds) {
  open();
  EXPECT_EQ(write("last words"), 10);
  stream->finish_writing();
  EXPECT_TRUE(plain->finished);
  EXPECT_EQ(arrived(), "last words");
  EXPECT_TRUE(client->ended());
}

TEST_F(TlsServerStreamTest, AnswersNewKeysEvenWhileItCannotWrite) {
  open();
  plain->room = 0;
  client->change_keys();
  client->write("under new keys");
  plain->in = client->take();
  tell(EPOLLIN);
  plain->room = 1000;
  tell(EPOLLOUT);
  EXPECT_EQ(reader->text, "under new keys");
  EXPECT_EQ(write("the same"), 8);
  EXPECT_EQ(arrived(), "the same");
  EXPECT_EQ(client->failure(), "");
}

// Each costs a derivation of keys, and no data ever reaches a limit of HTTP.
TEST_F(TlsServerStreamTest, AFloodOfNewKeysEndsTheSession) {
  open();
  for (int i = 0; i < 1000; ++i) {
    client->change_keys();
  }
  plain->in = client->take();
  const size_t sent = plain->in.size();
  tell(EPOLLIN);
  EXPECT_TRUE(reader->broken);
  EXPECT_EQ(stream->session().failure(), "the peer sends too many records without data");
  EXPECT_GT(plain->in.size(), sent / 4) << "what it sends after that is not even read";
}

TEST_F(TlsServerStreamTest, AFloodOfNewKeysBesideLittleDataEndsTheSession) {
  open();
  for (int i = 0; i < 100; ++i) {
    client->change_keys();
    client->write("x");
    plain->in += client->take();
    tell(EPOLLIN);
  }
  EXPECT_TRUE(reader->broken);
  EXPECT_LT(reader->text.size(), 50U);
}

TEST_F(TlsServerStreamTest, TakesNewKeysBesideMuchData) {
  open();
  const std::string much(100'000, 'x');
  for (int i = 0; i < 30; ++i) {
    client->change_keys();
    client->write(much);
    plain->in += client->take();
    tell(EPOLLIN);
  }
  EXPECT_FALSE(reader->broken);
  EXPECT_EQ(reader->text.size(), 30 * much.size());
}

// One client's records, however many and small, leave room for others in each turn.
TEST_F(TlsServerStreamTest, ATurnReadsABoundedPartOfWhatHasCome) {
  open();
  for (int i = 0; i < 20'000; ++i) {
    client->write("0123456789");
  }
  plain->in = client->take();
  const size_t sent = plain->in.size();
  size_t left = 0;
  loop.call_at(loop.now(), [&] {
    tell(EPOLLIN | EPOLLRDHUP);
    tell(EPOLLIN);
    left = plain->in.size();
    plain->ended = true;
  });
  EXPECT_TRUE(run_until(loop, [&] { return reader->ended; }));
  EXPECT_GT(left, sent / 2);
  EXPECT_EQ(reader->text.size(), 200'000U);
  EXPECT_NE(reader->events & EPOLLRDHUP, 0U);
}

TEST_F(TlsServerStreamTest, RefusesToNegotiateAgain) {
  begin({.version_max = 0x0303});
  open();
  ASSERT_TRUE(client->renegotiate());
  plain->in = client->take();
  tell(EPOLLIN);
  arrived();
  EXPECT_EQ(client->failure(), "no renegotiation");
}

TEST_F(TlsServerStreamTest, BrokenRecordsBreakTheConnection) {
  open();
  client->write("hello");
  plain->in = client->take();
  plain->in[8] = static_cast<char>(plain->in[8] ^ 1);
  tell(EPOLLIN);
  EXPECT_TRUE(reader->broken);
  EXPECT_EQ(reader->text, "");
  begin({});
  open();
  plain->in = std::string("\x17\x03\x03\xff\xff", 5);  // A record of 64 KiB.
  tell(EPOLLIN);
  EXPECT_TRUE(reader->broken);
}

TEST_F(TlsServerStreamTest, RefusesOtherProtocolsAtTheirFirstByte) {
  plain->in = "GET / HTTP/1.1\r\n";
  EXPECT_EQ(stream->shake_hands(), -EPROTO);
  EXPECT_TRUE(stream->speaks_http());
  begin({});
  plain->in = std::string("\0\0\0\0", 4);
  EXPECT_EQ(stream->shake_hands(), -EPROTO);
  EXPECT_FALSE(stream->speaks_http());
}

TEST_F(TlsServerStreamTest, AnEndWithinTheHandshakeIsAnError) {
  client->shake_hands();
  plain->in = client->take().substr(0, 100);
  EXPECT_EQ(stream->shake_hands(), -EAGAIN);
  plain->ended = true;
  const int outcome = stream->shake_hands();
  EXPECT_LT(outcome, 1);
  EXPECT_NE(outcome, -EAGAIN);
}

}  // namespace
}  // namespace pdjob::net
