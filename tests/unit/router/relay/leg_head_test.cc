#include "router/relay/leg_head.h"

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

TEST(LegHead, PassesWhatIsEndToEnd) {
  net::HttpRequest request;
  request.headers = {{"Host", "router"},
                     {"Authorization", "Bearer k"},
                     {"traceparent", "00-ab-cd-01"},
                     {"Connection", "close, X-Hop"},
                     {"x-hop", "1"},
                     {"TE", "trailers"},
                     {"Content-Length", "12"},
                     {"Expect", "100-continue"},
                     {"Accept-Encoding", "gzip"},
                     {"X-PDJOB-Pin-Decode", "d0"},
                     {"Content-Type", "application/json"}};
  EXPECT_EQ(leg_header_lines(request),
            "Authorization: Bearer k\r\n"
            "traceparent: 00-ab-cd-01\r\n"
            "Content-Type: application/json\r\n");
}

TEST(LegHead, EveryConnectionLineNamesHopByHopHeaders) {
  net::HttpRequest request;
  request.headers = {{"X-First", "1"},  {"Connection", "keep-alive, X-First"},
                     {"X-Second", "2"}, {"connection", " x-second ,X-Third"},
                     {"X-Third", "3"},  {"X-Stays", "4"}};
  EXPECT_EQ(leg_header_lines(request), "X-Stays: 4\r\n");
}

TEST(LegHead, AClientNamesNoStoreToAWorker) {
  net::HttpRequest request;
  request.headers = {{"X-Pdjob-KV-Store", R"({"remote_host":"evil"})"}, {"X-Stays", "4"}};
  EXPECT_EQ(leg_header_lines(request), "X-Stays: 4\r\n");
}

TEST(LegHead, LeavesOutWhatEachLegHasOfItsOwn) {
  net::HttpRequest request;
  request.headers = {{"X-Request-Id", "mine"}, {"X-Data-Parallel-Rank", "3"}};
  EXPECT_EQ(leg_header_lines(request), "");
}

net::HttpReplyHead sse_head() {
  net::HttpReplyHead head;
  head.status = 200;
  head.raw = "HTTP/1.0 200 Very OK\r\nx: y\r\n\r\n";
  head.headers = {{"Content-Type", "text/event-stream"},
                  {"Transfer-Encoding", "chunked"},
                  {"Connection", "keep-alive"},
                  {"X-Request-Id", "theirs"},
                  {"x-pdjob-worker", "d0"},
                  {"X-Pdjob-Decode", "forged"},
                  {"Access-Control-Allow-Origin", "*"},
                  {"access-control-expose-headers", "x"}};
  return head;
}

TEST(LegHead, MarksTheReplyAndKeepsItsFraming) {
  EXPECT_EQ(reply_head(sse_head(), {.request_id = "r1", .prefill = "p0", .decode = "d0"},
                       ReplyFraming::kAsReceived),
            "HTTP/1.1 200 Very OK\r\n"
            "Content-Type: text/event-stream\r\n"
            "Transfer-Encoding: chunked\r\n"
            "x-pdjob-worker: d0\r\n"
            "x-request-id: r1\r\n"
            "x-pdjob-prefill: p0\r\n"
            "x-pdjob-decode: d0\r\n"
            "X-Accel-Buffering: no\r\n\r\n");
}

TEST(LegHead, SaysThatTheConnectionClosesWhenThatEndsTheBody) {
  EXPECT_EQ(reply_head(sse_head(), {.request_id = "r1", .prefill = "", .decode = "d0"},
                       ReplyFraming::kUntilClose),
            "HTTP/1.1 200 Very OK\r\n"
            "Content-Type: text/event-stream\r\n"
            "x-pdjob-worker: d0\r\n"
            "x-request-id: r1\r\n"
            "x-pdjob-decode: d0\r\n"
            "X-Accel-Buffering: no\r\n"
            "Connection: close\r\n\r\n");
}

TEST(LegHead, SurvivesAHeadWithoutReason) {
  net::HttpReplyHead head;
  head.raw = "HTTP/1.1 204";
  EXPECT_EQ(reply_head(head, {.request_id = "r"}, ReplyFraming::kAsReceived),
            "HTTP/1.1 204\r\nx-request-id: r\r\n\r\n");
}

TEST(LegHeaderLines, KeepTheKeyOfTheRouterToItself) {
  net::HttpRequest request;
  request.headers = {{"Authorization", "Bearer secret"}, {"x-a", "b"}};
  EXPECT_EQ(leg_header_lines(request, {.own_key = true}), "x-a: b\r\n");
  EXPECT_EQ(leg_header_lines(request), "Authorization: Bearer secret\r\nx-a: b\r\n");
}

TEST(LegHeaderLines, NameTheTenantThatTheRouterKnowsAndNeverTheOneThatTheClientClaims) {
  net::HttpRequest request;
  request.headers = {
      {"X-Pdjob-Tenant", "bob"}, {"x-a", "b"}, {"x-pdjob-tenant", "carol"}, {"X-Pdjob-Leg", "n-1"}};
  EXPECT_EQ(leg_header_lines(request), "x-a: b\r\n");
  EXPECT_EQ(leg_header_lines(request, {.own_key = true, .tenant = "alice"}),
            "x-a: b\r\nx-pdjob-tenant: alice\r\n");
}

TEST(LegHeaderLines, SayThatTheRequestIsInTheBackgroundWhateverTheClientWrote) {
  net::HttpRequest request;
  request.headers = {{"X-Pdjob-Background", "yes"}, {"x-a", "b"}};
  EXPECT_EQ(leg_header_lines(request), "x-a: b\r\n");
  EXPECT_EQ(leg_header_lines(request, {.background = true}), "x-a: b\r\nx-pdjob-background: 1\r\n");
}

}  // namespace
}  // namespace pdjob::router
