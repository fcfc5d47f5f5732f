#include "router/audit/audit_sink.h"

#include <vector>

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

class Nobody final : public ReplySink {
 public:
  void reply(int, std::string_view, std::string_view, const Headers&) override {}
  void begin(const net::HttpReplyHead&, WorkerId, const ReplyMarks&) override {}
  bool write(std::string_view) override { return true; }
  void change_writer() override {}
  void end() override {}
  void abort() override {}
  bool takes_chunks() const override { return true; }
  void hold_more(size_t) override {}
  void body_freed() override {}
};

struct AuditSinkTest : testing::Test {
  AuditSinkTest() {
    head.status = 200;
    head.framing = net::BodyFraming::kLength;
  }
  void write(const std::string& body, bool changes_writer = false) {
    AuditSink sink(std::make_unique<Nobody>(), /*bytes_max=*/100,
                   [this](const AuditSink::Copy& copy) { kept.push_back(copy.reply.body); });
    sink.begin(head, WorkerId{1}, {.request_id = "r", .prefill = prefill, .decode = "decode-0"});
    if (changes_writer) {
      sink.change_writer();
    }
    sink.write(body);
    sink.end();
  }
  net::HttpReplyHead head;
  std::string prefill = "prefill-0";
  std::vector<std::string> kept;
};

TEST_F(AuditSinkTest, KeepsAWholeAnswerOfOnePair) {
  write("whole");
  EXPECT_EQ(kept, std::vector<std::string>{"whole"});
}

TEST_F(AuditSinkTest, KeepsNoAnswerThatAnAuditWouldAccuseWrongly) {
  write(R"({"choices":[{"text":"a","finish_reason":"abort"}]})");
  write("of two workers", /*changes_writer=*/true);
  write(std::string(101, 'x'));
  head.status = 500;
  write("an error");
  head.status = 200;
  prefill = "";
  write("without a hand-over");
  EXPECT_TRUE(kept.empty());
}

}  // namespace
}  // namespace pdjob::router
