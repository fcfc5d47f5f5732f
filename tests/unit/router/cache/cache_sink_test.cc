#include "router/cache/cache_sink.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

// Notes what is written to it, in order.
class WrittenReply final : public ReplySink {
 public:
  // `text` outlives the sink; `keeps_up` is what write() returns.
  explicit WrittenReply(std::string& text, bool keeps_up = true)
      : text_(text), keeps_up_(keeps_up) {}
  ~WrittenReply() override { text_ += "dropped"; }
  WrittenReply(const WrittenReply&) = delete;
  WrittenReply& operator=(const WrittenReply&) = delete;

  void reply(int status, std::string_view content_type, std::string_view body,
             const Headers& headers) override {
    text_.append("reply ").append(std::to_string(status)).append(" ").append(content_type);
    text_.append(" ").append(body);
    for (const auto& [name, value] : headers) {
      text_.append(" ").append(name).append("=").append(value);
    }
    text_.append("; ");
  }
  void begin(const net::HttpReplyHead& head, WorkerId writer, const ReplyMarks& marks) override {
    text_.append("begin ").append(std::to_string(head.status));
    text_.append(" by ").append(std::to_string(writer.value)).append(" ").append(marks.more);
    text_.append("; ");
  }
  bool write(std::string_view raw) override {
    text_.append(raw).append("; ");
    return keeps_up_;
  }
  void change_writer() override { text_.append("change; "); }
  void end() override { text_.append("end; "); }
  void abort() override { text_.append("abort; "); }
  bool takes_chunks() const override { return false; }
  void hold_more(size_t bytes) override {
    text_.append("hold ").append(std::to_string(bytes)).append("; ");
  }
  void body_freed() override { text_.append("freed; "); }

 private:
  std::string& text_;
  const bool keeps_up_;
};

struct CacheSinkTest : testing::Test {
  std::unique_ptr<CacheSink> open(bool keeps_up = true) {
    return std::make_unique<CacheSink>(
        std::make_unique<WrittenReply>(written, keeps_up), /*bytes_max=*/30,
        [this](const CapturedReply& reply) { kept.push_back(reply.body); });
  }
  static net::HttpReplyHead head(std::string_view type,
                                 net::BodyFraming framing = net::BodyFraming::kLength) {
    return {.status = 200, .headers = {{"Content-Type", type}}, .framing = framing};
  }

  std::string written;
  std::vector<std::string> kept;
};

TEST_F(CacheSinkTest, KeepsNoAbortedReply) {
  auto sink = open();
  sink->begin(head("application/json"), WorkerId{7}, {});
  sink->write(R"({"finish_reason":"abort"})");
  sink->end();
  EXPECT_TRUE(kept.empty());
  sink = open();
  sink->begin(head("application/json"), WorkerId{7}, {});
  sink->write(R"({"t":"\"finish_reason\":\"a"})");
  sink->end();
  EXPECT_EQ(kept.size(), 1U);
}

TEST_F(CacheSinkTest, WritesOnWhatItKeeps) {
  auto sink = open();
  sink->hold_more(7);
  sink->begin(head("application/json"), WorkerId{3}, {.more = "a: b\r\n"});
  EXPECT_TRUE(sink->write("{}"));
  sink->body_freed();
  EXPECT_TRUE(kept.empty());
  sink->end();
  EXPECT_EQ(kept, std::vector<std::string>{"{}"});
  sink.reset();
  EXPECT_EQ(written,
            "hold 7; begin 200 by 3 a: b\r\nx-pdjob-cache: miss\r\n; {}; freed; end; dropped");
}

TEST_F(CacheSinkTest, IsAsSlowAndAsOldAsItsReader) {
  const auto sink = open(/*keeps_up=*/false);
  EXPECT_FALSE(sink->takes_chunks());
  sink->begin(head("application/json"), WorkerId{3}, {});
  EXPECT_FALSE(sink->write("{}"));
}

TEST_F(CacheSinkTest, KeepsAStreamAtItsLastEvent) {
  auto sink = open();
  sink->begin(head("text/event-stream", net::BodyFraming::kChunked), WorkerId{3}, {});
  sink->write("e\r\ndata: [DONE]\n\n\r\n");
  EXPECT_EQ(kept, std::vector<std::string>{"data: [DONE]\n\n"});
  sink->abort();
  EXPECT_EQ(kept.size(), 1U) << "the client had all of it";
}

TEST_F(CacheSinkTest, KeepsNothingThatBrokeOff) {
  auto sink = open();
  sink->begin(head("application/json"), WorkerId{3}, {});
  sink->write("{");
  sink->abort();
  sink.reset();
  EXPECT_TRUE(kept.empty());
  EXPECT_TRUE(written.ends_with("{; abort; dropped")) << written;
}

TEST_F(CacheSinkTest, KeepsNothingWhoseClientLeft) {
  auto sink = open();
  sink->begin(head("application/json"), WorkerId{3}, {});
  sink->write("{}");
  sink.reset();
  EXPECT_TRUE(kept.empty());
}

TEST_F(CacheSinkTest, KeepsNothingOfTwoWorkers) {
  auto sink = open();
  sink->begin(head("text/event-stream", net::BodyFraming::kChunked), WorkerId{3}, {});
  sink->change_writer();
  sink->write("e\r\ndata: [DONE]\n\n\r\n");
  sink->end();
  EXPECT_TRUE(kept.empty());
}

TEST_F(CacheSinkTest, KeepsNoReplyOfTheRouterItself) {
  auto sink = open();
  sink->reply(503, "application/json", "{}", {{"Retry-After", "1"}});
  sink.reset();
  EXPECT_TRUE(kept.empty());
  EXPECT_EQ(written, "reply 503 application/json {} Retry-After=1; dropped");
}

}  // namespace
}  // namespace pdjob::router
