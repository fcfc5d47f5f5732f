#include "net/http/http_parser.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/limits.h"

namespace pdjob::net {
namespace {

// Returns the error status; 0 if accepted.
int request_status(const std::string& bytes, RequestHead& head) {
  HeadFinder finder;
  const size_t size = finder.find(bytes);
  if (finder.refusal()) {
    return finder.refusal()->status;
  }
  EXPECT_EQ(size, bytes.size()) << bytes;
  const auto refusal = parse_request_head(bytes, head);
  return refusal ? refusal->status : 0;
}

int request_status(const std::string& bytes) {
  RequestHead head;
  return request_status(bytes, head);
}

std::string request(const std::string& line, const std::string& headers = "") {
  return line + "\r\nHost: h\r\n" + headers + "\r\n";
}
std::string with(const std::string& headers) { return request("POST / HTTP/1.1", headers); }

TEST(HttpRequestHead, IsTakenApart) {
  const std::string bytes =
      "POST /v1/chat/completions?a=b&c HTTP/1.1\r\nHOST: example:80\r\nX-Empty:\r\nX-Padded: \t "
      "two  words \t\r\n"
      "X-Latin: caf\xc3\xa9\r\ncontent-length: 12\r\nX-Padded: again\r\n\r\n";
  RequestHead head;
  ASSERT_EQ(request_status(bytes, head), 0);
  EXPECT_EQ(head.method, "POST");
  EXPECT_EQ(head.path, "/v1/chat/completions");
  EXPECT_EQ(head.query, "a=b&c");
  EXPECT_EQ(head.framing, BodyFraming::kLength);
  EXPECT_EQ(head.content_length, 12U);
  EXPECT_TRUE(head.keep_alive);
  EXPECT_FALSE(head.is_http_1_0);
  EXPECT_FALSE(head.expects_continue);
  EXPECT_EQ(head.headers.size(), 6U);
  EXPECT_EQ(find_header(head.headers, "host"), "example:80");
  EXPECT_EQ(find_header(head.headers, "x-empty"), "");
  EXPECT_EQ(find_header(head.headers, "x-padded"), "two  words");
  EXPECT_EQ(find_header(head.headers, "x-none"), "");
}

struct TargetCase {
  std::string target;
  std::string path;
  std::string query;
};

TEST(HttpRequestHead, KnowsTheFormsOfATarget) {
  const std::vector<TargetCase> cases = {
      {"/", "/", ""},
      {"/a?b?c", "/a", "b?c"},
      {"/?", "/", ""},
      {"http://h/x?y", "/x", "y"},
      {"HTTP://h", "/", ""},
      {"http://h:80/", "/", ""},
      {"/%00%0d", "/%00%0d", ""},
  };
  for (const TargetCase& target : cases) {
    const std::string bytes = request("GET " + target.target + " HTTP/1.1");
    RequestHead head;
    ASSERT_EQ(request_status(bytes, head), 0) << target.target;
    EXPECT_EQ(head.path, target.path);
    EXPECT_EQ(head.query, target.query);
  }
  EXPECT_EQ(request_status(request("OPTIONS * HTTP/1.1")), 0);
}

struct AcceptedCase {
  std::string bytes;
  bool keep_alive;
  BodyFraming framing;
};

TEST(HttpRequestHead, KnowsConnectionAndFraming) {
  const std::vector<AcceptedCase> cases = {
      {with(""), true, BodyFraming::kNone},
      {with("Connection: close\r\n"), false, BodyFraming::kNone},
      {with("Connection: Upgrade ,\tCLOSE\r\n"), false, BodyFraming::kNone},
      {with("Connection: keep-alive\r\nConnection: close\r\n"), false, BodyFraming::kNone},
      {with("Connection: closed\r\n"), true, BodyFraming::kNone},
      {with("Content-Length: 0\r\n"), true, BodyFraming::kNone},
      {with("Content-Length: 5\r\nContent-Length: 5\r\n"), true, BodyFraming::kLength},
      {with("Transfer-Encoding: Chunked\r\n"), true, BodyFraming::kChunked},
      {"GET / HTTP/1.0\r\n\r\n", false, BodyFraming::kNone},
      {"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true, BodyFraming::kNone},
  };
  for (const AcceptedCase& accepted : cases) {
    RequestHead head;
    ASSERT_EQ(request_status(accepted.bytes, head), 0) << accepted.bytes;
    EXPECT_EQ(head.keep_alive, accepted.keep_alive) << accepted.bytes;
    EXPECT_EQ(head.framing, accepted.framing) << accepted.bytes;
  }
}

struct RefusedCase {
  std::string bytes;
  int status;
};

TEST(HttpRequestHead, RefusesWhatCouldBeReadInTwoWays) {
  const std::string nul(1, '\0');
  const std::vector<RefusedCase> cases = {
      // The request line.
      {"\r\n\r\n", 400},
      {request("GET /"), 400},
      {request("GET  / HTTP/1.1"), 400},
      {request("GET / HTTP/1.1 "), 400},
      {request(" GET / HTTP/1.1"), 400},
      {request("GET\t/\tHTTP/1.1"), 400},
      {request("G@T / HTTP/1.1"), 400},
      {request(" / HTTP/1.1"), 400},
      {request("GET x HTTP/1.1"), 400},
      {request("GET * HTTP/1.1"), 400},
      {request("CONNECT h:80 HTTP/1.1"), 400},
      {request("GET http:///x HTTP/1.1"), 400},
      {request("GET http://h?x HTTP/1.1"), 400},
      {request("GET https://h/ HTTP/1.1"), 400},
      {request("GET /a b HTTP/1.1"), 400},
      {request("GET /a#b HTTP/1.1"), 400},
      {request("GET /\x7f HTTP/1.1"), 400},
      {request("GET /\xc3\xa9 HTTP/1.1"), 400},
      {request("GET /" + nul + " HTTP/1.1"), 400},
      {request("GET /\r HTTP/1.1"), 400},
      {request("GET / http/1.1"), 400},
      {request("GET / HTTP/1"), 400},
      {request("GET / HTTP/11"), 400},
      {request("GET / HTTP/1.1x"), 400},
      {request("GET / HTTP/2.0"), 505},
      {request("GET / HTTP/1.2"), 505},
      {request("GET / HTTP/0.9"), 505},
      {"PRI * HTTP/2.0\r\n\r\n", 505},
      // Lines.
      {"GET / HTTP/1.1\nHost: h\r\n\r\n", 400},
      {with("X: a\nY: b\r\n"), 400},
      {with("X: a\rY: b\r\n"), 400},
      {with("X: a\r\n folded\r\n"), 400},
      {with("X: a\r\n\tfolded\r\n"), 400},
      {"GET / HTTP/1.1\r\n Host: h\r\n\r\n", 400},
      // Fields.
      {with("X : a\r\n"), 400},
      {with("X\t: a\r\n"), 400},
      {with(": a\r\n"), 400},
      {with("X\r\n"), 400},
      {with("X Y: a\r\n"), 400},
      {with("X(Y): a\r\n"), 400},
      {with("X\xc3\xa9: a\r\n"), 400},
      {with("X" + nul + ": a\r\n"), 400},
      {with("X: a" + nul + "b\r\n"), 400},
      {with("X: a\x1b[0m\r\n"), 400},
      {with("X: a\x7f\r\n"), 400},
      // Host.
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {with("Host: other\r\n"), 400},
      // Framing.
      {with("Content-Length: 1\r\nContent-Length: 2\r\n"), 400},
      {with("Content-Length: 1, 1\r\n"), 400},
      {with("Content-Length: +1\r\n"), 400},
      {with("Content-Length: -1\r\n"), 400},
      {with("Content-Length: 0x1\r\n"), 400},
      {with("Content-Length: 1 \x0b\r\n"), 400},
      {with("Content-Length:\r\n"), 400},
      {with("Content-Length: 1e3\r\n"), 400},
      {with("Content-Length: 99999999999999999999\r\n"), 400},
      {with("Content-Length: 18446744073709551617\r\n"), 400},
      {with("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"), 400},
      {with("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n"), 400},
      {with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400},
      {with("Transfer-Encoding: gzip, chunked\r\n"), 501},
      {with("Transfer-Encoding: chunked, identity\r\n"), 501},
      {with("Transfer-Encoding: identity\r\n"), 501},
      {with("Transfer-Encoding: \"chunked\"\r\n"), 501},
      {with("Transfer-Encoding:\r\n"), 501},
      {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {with("Expect: 200-maybe\r\n"), 417},
  };
  for (const RefusedCase& refused : cases) {
    EXPECT_EQ(request_status(refused.bytes), refused.status) << refused.bytes;
  }
}

TEST(HttpRequestHead, BoundsTheNumberOfFields) {
  std::string fields;
  for (size_t i = 1; i < limits::kHttpHeadersMax; ++i) {
    fields += "X: y\r\n";
  }
  EXPECT_EQ(request_status(with(fields)), 0);
  EXPECT_EQ(request_status(with(fields + "X: y\r\n")), 431);
}

TEST(HttpRequestHead, ForgetsTheHeadBefore) {
  RequestHead head;
  ASSERT_EQ(request_status(
                with("Content-Length: 7\r\nConnection: close\r\nExpect: 100-continue\r\n"), head),
            0);
  EXPECT_TRUE(head.expects_continue);
  ASSERT_EQ(request_status(with(""), head), 0);
  EXPECT_FALSE(head.expects_continue);
  EXPECT_EQ(head.framing, BodyFraming::kNone);
  EXPECT_EQ(head.content_length, 0U);
  EXPECT_TRUE(head.keep_alive);
  EXPECT_EQ(head.headers.size(), 1U);
}

TEST(HeadFinder, FindsTheEndInAnySplit) {
  const std::string head = with("X: y\r\n");
  const std::string bytes = head + "\r\n\r\nbody";
  for (size_t first = 0; first <= head.size(); ++first) {
    HeadFinder finder;
    const size_t early = finder.find(std::string_view(bytes).substr(0, first));
    EXPECT_EQ(early, first == head.size() ? head.size() : 0U);
    if (early == 0) {
      EXPECT_EQ(finder.find(bytes), head.size());
    }
    EXPECT_FALSE(finder.refusal());
  }
}

TEST(HeadFinder, RefusesATlsHelloAtOnce) {
  HeadFinder finder;
  EXPECT_EQ(finder.find("\x16\x03\x01"), 0U);
  ASSERT_TRUE(finder.refusal().has_value());
  EXPECT_EQ(finder.refusal()->status, 400);
}

TEST(HeadFinder, BoundsTheHead) {
  HeadFinder fitting;
  std::string head = "GET / HTTP/1.1\r\nX: ";
  head += std::string(limits::kHttpHeadBytesMax - head.size() - 4, 'x') + "\r\n\r\n";
  EXPECT_EQ(fitting.find(head), limits::kHttpHeadBytesMax);
  HeadFinder large;
  EXPECT_EQ(large.find("x" + head), 0U);
  ASSERT_TRUE(large.refusal());
  EXPECT_EQ(large.refusal()->status, 431);
}

// Returns the error status; 0 if accepted.
int response_status(const std::string& bytes, ResponseHead& head, std::string_view method = "GET") {
  HeadFinder finder;
  EXPECT_EQ(finder.find(bytes), bytes.size()) << bytes;
  const auto refusal = parse_response_head(bytes, method, head);
  return refusal ? refusal->status : 0;
}

struct ResponseCase {
  std::string bytes;
  std::string_view method;
  int status;
  bool keep_alive;
  BodyFraming framing;
};

TEST(HttpResponseHead, KnowsStatusConnectionAndFraming) {
  const std::vector<ResponseCase> cases = {
      {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "GET", 200, true, BodyFraming::kLength},
      {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "GET", 200, true, BodyFraming::kNone},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "POST", 200, true,
       BodyFraming::kChunked},
      {"HTTP/1.1 200 OK\r\n\r\n", "GET", 200, true, BodyFraming::kUntilClose},
      {"HTTP/1.0 200 OK\r\n\r\n", "GET", 200, false, BodyFraming::kUntilClose},
      {"HTTP/1.1 503 \r\nContent-Length: 3\r\nConnection: close\r\n\r\n", "GET", 503, false,
       BodyFraming::kLength},
      {"HTTP/1.1 599\r\nContent-Length: 3\r\n\r\n", "GET", 599, true, BodyFraming::kLength},
      {"HTTP/1.1 204 No Content\r\n\r\n", "GET", 204, true, BodyFraming::kNone},
      {"HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n", "GET", 304, true,
       BodyFraming::kNone},
      {"HTTP/1.1 100 Continue\r\n\r\n", "GET", 100, true, BodyFraming::kNone},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "HEAD", 200, true,
       BodyFraming::kNone},
  };
  for (const ResponseCase& response : cases) {
    ResponseHead head;
    ASSERT_EQ(response_status(response.bytes, head, response.method), 0) << response.bytes;
    EXPECT_EQ(head.status, response.status) << response.bytes;
    EXPECT_EQ(head.keep_alive, response.keep_alive) << response.bytes;
    EXPECT_EQ(head.framing, response.framing) << response.bytes;
  }
}

TEST(HttpResponseHead, RefusesWhatCouldBeReadInTwoWays) {
  for (const char* bytes :
       {"HTTP/1.1\r\n\r\n", "HTTP/1.1 20 OK\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n", "HTTP/1.1 099 x\r\n\r\n", "http/1.1 200 OK\r\n\r\n",
        "HTTP/2 200\r\n\r\n", "HTTP/2.0 200 OK\r\n\r\n", "HTTP/1.1 200 O\x01K\r\n\r\n",
        "ICY 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "HTTP/1.1 200 OK\r\nX : y\r\n\r\n"}) {
    ResponseHead head;
    EXPECT_NE(response_status(bytes, head), 0) << bytes;
  }
}

struct ChunkedCase {
  std::string raw;
  std::string payload;
};

const std::vector<ChunkedCase>& chunked_bodies() {
  static const std::vector<ChunkedCase> cases = {
      {"0\r\n\r\n", ""},
      {"000\r\n\r\n", ""},
      {"5\r\nhello\r\n0\r\n\r\n", "hello"},
      {"A\r\n0123456789\r\na;x=\"y\"\r\n0123456789\r\n0;last\r\n\r\n", "01234567890123456789"},
      {"2\r\n\r\n\r\n3\r\n0\r\n\r\n0\r\nTrailer: x\r\nOther: y\r\n\r\n", "\r\n0\r\n"},
  };
  return cases;
}

TEST(ChunkScanner, FindsTheEndInAnySplit) {
  for (const ChunkedCase& body : chunked_bodies()) {
    const std::string raw = body.raw + "HTTP/1.1 next";
    for (size_t first = 0; first <= raw.size(); ++first) {
      ChunkScanner scanner;
      ChunkDecoder decoder;
      std::string payload;
      size_t scanned = 0;
      size_t decoded = 0;
      for (const std::string_view piece :
           {std::string_view(raw).substr(0, first), std::string_view(raw).substr(first)}) {
        scanned += scanner.feed(piece);
        decoded += decoder.decode(piece, payload);
      }
      EXPECT_TRUE(scanner.done() && decoder.done()) << body.raw;
      EXPECT_EQ(scanned, body.raw.size());
      EXPECT_EQ(decoded, body.raw.size());
      EXPECT_EQ(payload, body.payload);
    }
  }
}

TEST(ChunkScanner, IsNotDoneBeforeTheLastByte) {
  for (const ChunkedCase& body : chunked_bodies()) {
    ChunkScanner scanner;
    EXPECT_EQ(scanner.feed(std::string_view(body.raw).substr(0, body.raw.size() - 1)),
              body.raw.size() - 1);
    EXPECT_FALSE(scanner.done() || scanner.failed());
  }
}

TEST(ChunkScanner, RefusesWhatCouldBeReadInTwoWays) {
  for (const std::string& raw : {std::string("\r\n"),
                                 std::string("x\r\n"),
                                 std::string("-1\r\n"),
                                 std::string("+1\r\n"),
                                 std::string("0x1\r\n"),
                                 std::string(" 1\r\n"),
                                 std::string("1 \r\n"),
                                 std::string("1\n"),
                                 std::string("1\rx"),
                                 std::string(";x\r\n"),
                                 std::string("1;a\nb\r\n"),
                                 std::string("1;a\rb"),
                                 std::string("1\r\naa\r\n"),
                                 std::string("1\r\na\n"),
                                 std::string("1\r\na\rx"),
                                 std::string("0\r\nT: x\n\r\n"),
                                 std::string("0\r\n\n"),
                                 std::string("0\r\n\rx"),
                                 std::string("1000000000000000\r\n"),
                                 std::string("ffffffffffffffffff\r\n"),
                                 std::string("0\r\nT: a\x01\r\n\r\n"),
                                 "1;" + std::string(limits::kHttpHeadBytesMax + 1, 'x'),
                                 "0\r\nT: " + std::string(limits::kHttpHeadBytesMax + 1, 'x')}) {
    ChunkScanner scanner;
    scanner.feed(raw);
    EXPECT_TRUE(scanner.failed()) << raw;
    EXPECT_EQ(scanner.feed("0\r\n\r\n"), 0U);
  }
}

}  // namespace
}  // namespace pdjob::net
