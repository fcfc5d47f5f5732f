#include "router/relay/trace.h"

#include <array>

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

constexpr const char* kCaller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(Trace, ReadsAndWritesTheHeaderOfW3c) {
  const auto context = parse_traceparent(kCaller);
  ASSERT_TRUE(context);
  EXPECT_EQ(context->trace.to_string(), "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(context->span, 0xb7ad6b7169203331U);
  EXPECT_TRUE(context->sampled);
  EXPECT_EQ(traceparent(*context), kCaller);
  EXPECT_FALSE(
      parse_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")->sampled);
  // A later version may have more fields.
  EXPECT_TRUE(parse_traceparent("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what"));
}

TEST(Trace, TakesNoHeaderThatIsNotAsW3cHasIt) {
  for (const char* header : {"", "00", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                             "00-00000000000000000000000000000000-b7ad6b7169203331-01",
                             "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
                             "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
                             "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333g-01",
                             "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                             "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what",
                             "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01what"}) {
    EXPECT_FALSE(parse_traceparent(header)) << header;
  }
}

TEST(Trace, ASpanIsWhatCollectorsTake) {
  const std::array<Span, 1> spans = {Span{.name = "prefill",
                                          .kind = Span::Kind::kClient,
                                          .context = *parse_traceparent(kCaller),
                                          .parent = 5,
                                          .begin = Instant(Duration(10)),
                                          .end = Instant(Duration(40)),
                                          .first_byte = Instant(Duration(20)),
                                          .attributes = {{"pdjob.worker", "p\"0"}},
                                          .error = "cancelled"}};
  EXPECT_EQ(otlp_traces(spans, "i1", 1000),
            R"({"resourceSpans":[{"resource":{"attributes":[)"
            R"({"key":"service.name","value":{"stringValue":"pdjob-router"}},)"
            R"({"key":"service.instance.id","value":{"stringValue":"i1"}}]},)"
            R"("scopeSpans":[{"scope":{"name":"pdjob"},"spans":[)"
            R"({"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"b7ad6b7169203331",)"
            R"("parentSpanId":"0000000000000005","name":"prefill","kind":3,)"
            R"("startTimeUnixNano":"1010","endTimeUnixNano":"1040",)"
            R"("attributes":[{"key":"pdjob.worker","value":{"stringValue":"p\"0"}}],)"
            R"("events":[{"timeUnixNano":"1020","name":"first_byte"}],)"
            R"("status":{"code":2,"message":"cancelled"}}]}]}]})");
}

}  // namespace
}  // namespace pdjob::router
