#include "openai/kv_events/kv_stream.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/limits.h"
#include "net/loop/event_loop.h"
#include "tests/unit/net/loop_test_support.h"

namespace pdjob::openai {
namespace {

std::string frames(const std::vector<std::string>& batches) {
  std::string bytes;
  for (const std::string& batch : batches) {
    append_kv_frame(bytes, batch);
  }
  return bytes;
}

TEST(KvFrames, AreTakenOutOfAnyPieces) {
  const std::vector<std::string> batches = {"first", "", std::string(70000, 'x'), "last"};
  const std::string bytes = frames(batches);
  for (const size_t piece : {size_t{1}, size_t{3}, size_t{4096}, bytes.size()}) {
    KvFrames reader;
    std::vector<std::string> taken;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      reader.take(std::string_view(bytes).substr(at, piece));
      for (auto frame = reader.next(); frame.value(); frame = reader.next()) {
        taken.emplace_back(**frame);
      }
    }
    EXPECT_EQ(taken, batches) << piece;
  }
}

TEST(KvFrames, RefuseALengthThatNoBatchHas) {
  KvFrames reader;
  reader.take(std::string("\xff\xff\xff\xff", 4));
  EXPECT_EQ(reader.next().error().code, ErrorCode::kCorrupt);
}

class KvStreamTest : public testing::Test, public KvStream::Handler {
 protected:
  void SetUp() override {
    auto opened = net::HttpServer::open(loop, worker, {});
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    server = std::move(*opened);
    stream = std::make_unique<KvStream>(loop, *client, *this,
                                        net::HttpAddress{"127.0.0.1", server->port()}, "the-key");
  }
  void on_connected() override { story += "connected "; }
  void on_disconnected() override { story += "disconnected "; }
  bool on_batch(std::string_view payload) override {
    story.append(payload.empty() ? "." : payload).append(" ");
    return payload != "bad";
  }

  bool wait_for(const std::string& wanted) {
    return run_until(loop, [&] { return story == wanted; });
  }
  // Answers with these batches and leaves the reply open.
  void tell(const std::vector<std::string>& batches) {
    worker.answer = [this, batches](net::ExchangeId id, net::HttpRequest& request) {
      EXPECT_EQ(request.path, "/pdjob/kv_events");
      EXPECT_EQ(request.header("authorization"), "Bearer the-key");
      server->begin(id, 200, "application/octet-stream", {});
      server->write(id, frames(batches));
    };
  }

  net::EventLoop loop;
  net::LambdaHandler worker;
  std::unique_ptr<net::HttpServer> server;
  const std::unique_ptr<net::HttpClient> client = net::HttpClient::create(loop);
  std::unique_ptr<KvStream> stream;
  std::string story;
};

TEST_F(KvStreamTest, HandsOutBatches) {
  tell({"a", "", "b"});
  stream->open();
  EXPECT_TRUE(wait_for("connected a . b ")) << story;
}

TEST_F(KvStreamTest, AsksForEverythingAnewAfterABatchThatCannotBeRead) {
  worker.answer = [this](net::ExchangeId id, net::HttpRequest&) {
    server->begin(id, 200, "application/octet-stream", {});
    server->write(id, frames({"a", "bad", "b"}));
    tell({"c"});
  };
  stream->open();
  EXPECT_TRUE(wait_for("connected a bad disconnected connected c ")) << story;
}

TEST_F(KvStreamTest, ComesBackAfterABrokenConnectionAndTakesNothingOfTheOldOne) {
  tell({"a"});
  stream->open();
  ASSERT_TRUE(wait_for("connected a ")) << story;
  server->write(worker.requests[0], std::string_view(frames({"half"})).substr(0, 6));
  server->abort(worker.requests[0]);
  tell({"b"});
  EXPECT_TRUE(wait_for("connected a disconnected connected b ")) << story;
}

TEST_F(KvStreamTest, ComesBackToAWorkerThatIsTooBusyNow) {
  worker.answer = [this](net::ExchangeId id, net::HttpRequest&) {
    server->reply(id, 503, "text/plain", "later");
    tell({"a"});
  };
  stream->open();
  EXPECT_TRUE(wait_for("connected a ")) << story;
  EXPECT_EQ(worker.requests.size(), 2U);
}

TEST_F(KvStreamTest, LeavesAloneAWorkerThatTellsNobody) {
  worker.answer = [this](net::ExchangeId id, net::HttpRequest&) {
    server->reply(id, 404, "text/plain", "what?");
  };
  stream->open();
  EXPECT_FALSE(
      run_until(loop, [&] { return worker.requests.size() > 1; }, std::chrono::milliseconds(1500)));
  EXPECT_EQ(story, "");
}

TEST_F(KvStreamTest, EndsWhatIsNoStreamOfBatches) {
  worker.answer = [this](net::ExchangeId id, net::HttpRequest&) {
    server->begin(id, 200, "application/octet-stream", {});
    server->write(id, "HTTP/1.1 this is not");
    tell({"a"});
  };
  stream->open();
  EXPECT_TRUE(wait_for("connected disconnected connected a ")) << story;
}

TEST_F(KvStreamTest, MayBeDestroyedAtAnyTime) {
  tell({"a"});
  stream->open();
  ASSERT_TRUE(wait_for("connected a ")) << story;
  stream.reset();
  EXPECT_TRUE(run_until(loop, [&] { return worker.gone.size() == 1; }));
}

}  // namespace
}  // namespace pdjob::openai
