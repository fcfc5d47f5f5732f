// What the server does for every handler alike: HEAD, paths, packed bodies, and CORS.
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include "common/limits.h"
#include "net/http/cors.h"
#include "net/http/http_server.h"
#include "tests/unit/net/loop_test_support.h"

namespace pdjob::net {
namespace {

std::string gzip(const std::string& text) {
  std::string packed(compressBound(text.size()) + 64, '\0');
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(packed.size() - stream.avail_out);
  deflateEnd(&stream);
  return packed;
}

std::string zstd(const std::string& text, int window_log = 0) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log);
  packed.resize(ZSTD_compress2(context, packed.data(), packed.size(), text.data(), text.size()));
  ZSTD_freeCCtx(context);
  return packed;
}

std::string post(const std::string& coding, const std::string& body) {
  return "POST /p HTTP/1.1\r\nHost: h\r\nContent-Encoding: " + coding +
         "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

// Text that packs by less than a half.
std::string noise(size_t bytes) {
  std::string text;
  for (uint64_t state = 1; text.size() < bytes;) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    text += static_cast<char>('!' + (state >> 58));
  }
  return text;
}

class HttpSurfaceTest : public testing::Test {
 protected:
  void open(HttpServerOptions options = {}) {
    auto opened = HttpServer::open(loop, handler, options);
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    server = std::move(*opened);
    handler.answer = [this](ExchangeId id, HttpRequest& request) {
      bodies.push_back(request.body);
      coding = request.header("content-encoding");
      server->reply(id, 200, "text/plain",
                    std::string(request.method) + " " + std::string(request.path));
    };
  }
  // Everything that comes until `end`, or until the server closes.
  std::string ask(const std::string& request, std::string_view end = "\r\n\r\n") {
    RawClient client(loop, server->port());
    client.send(request);
    run_until(loop,
              [&] { return client.received().find(end) != std::string::npos || client.ended(); });
    run_for(loop, std::chrono::milliseconds(5));
    return client.received();
  }
  std::string status_of(const std::string& request) { return ask(request).substr(9, 3); }

  EventLoop loop;
  LambdaHandler handler;
  std::unique_ptr<HttpServer> server;
  std::vector<std::string> bodies;
  std::string coding;
};

TEST_F(HttpSurfaceTest, HeadIsAGetWithoutABody) {
  open();
  EXPECT_EQ(ask("HEAD /x HTTP/1.1\r\nHost: h\r\n\r\n"),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\n");
  handler.answer = [this](ExchangeId id, HttpRequest& request) {
    EXPECT_TRUE(request.is_head);
    server->begin_raw(id, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n");
    server->write_raw(id, "abc");
    server->end_raw(id, true);
  };
  EXPECT_EQ(ask("HEAD /x HTTP/1.1\r\nHost: h\r\n\r\n"),
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n");
}

TEST_F(HttpSurfaceTest, EmptySegmentsOfAPathAreIgnored) {
  open();
  for (const auto& [asked, taken] :
       std::vector<std::pair<std::string, std::string>>{{"//v1/models", "/v1/models"},
                                                        {"/v1//models", "/v1/models"},
                                                        {"/v1/models/", "/v1/models"},
                                                        {"///v1////models///?a=//", "/v1/models"},
                                                        {"//", "/"},
                                                        {"/", "/"},
                                                        {"/a%2F%2Fb", "/a%2F%2Fb"}}) {
    const std::string reply = ask("GET " + asked + " HTTP/1.1\r\nHost: h\r\n\r\n", "GET /");
    EXPECT_EQ(reply.substr(reply.find("\r\n\r\n") + 4), "GET " + taken) << asked;
  }
}

TEST_F(HttpSurfaceTest, AByteOrderMarkBeforeABodyIsIgnored) {
  open();
  EXPECT_EQ(status_of(post("identity", "\xEF\xBB\xBF{}")), "200");
  EXPECT_EQ(status_of(post("gzip", gzip("\xEF\xBB\xBF{}"))), "200");
  EXPECT_EQ(bodies, (std::vector<std::string>{"{}", "{}"}));
}

TEST_F(HttpSurfaceTest, PackedBodiesAreDecoded) {
  open();
  const std::string text = noise(3'000'000);
  const std::string frames = zstd("first ") + zstd("second");
  const std::string members = gzip("first ") + gzip("second");
  for (const auto& [name, body, wanted] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {"gzip", gzip("{}"), "{}"},
           {"GZip", gzip(text), text},
           {"x-gzip", members, "first second"},
           {"zstd", zstd(text), text},
           {"zstd", frames, "first second"},
           {"zstd", zstd(""), ""},
           {"gzip", "", ""},
           {"identity", text, text},
           {"gzip", gzip(std::string(900'000, 'a')), std::string(900'000, 'a')}}) {
    bodies.clear();
    EXPECT_EQ(status_of(post(name, body)), "200") << name << ' ' << wanted.size();
    ASSERT_EQ(bodies.size(), 1U);
    EXPECT_TRUE(bodies.front() == wanted) << name << ' ' << wanted.size();
    EXPECT_EQ(coding, "") << "a router passes headers on";
  }
  EXPECT_EQ(server->held().total(), 0U);
}

TEST_F(HttpSurfaceTest, APackedBodyMayComeInChunksBeforeAnotherRequest) {
  open();
  const std::string body = gzip("{\"a\":1}");
  std::string request =
      "POST /p HTTP/1.1\r\nHost: h\r\nContent-Encoding: gzip\r\nTransfer-Encoding: "
      "chunked\r\n\r\n";
  for (const char byte : body) {
    request += std::string("1\r\n") + byte + "\r\n";
  }
  request += "0\r\n\r\nGET /next HTTP/1.1\r\nHost: h\r\n\r\n";
  const std::string replies = ask(request, "GET /next");
  EXPECT_NE(replies.find("POST /p"), std::string::npos);
  EXPECT_NE(replies.find("GET /next"), std::string::npos);
  EXPECT_EQ(bodies.front(), "{\"a\":1}");
}

TEST_F(HttpSurfaceTest, OtherCodingsGetTheListOfKnownOnes) {
  open();
  for (const char* name : {"br", "deflate", "compress", "gzip, zstd", "gzip, gzip", "nonsense"}) {
    const std::string reply = ask(post(name, "x"));
    EXPECT_EQ(reply.substr(9, 3), "415") << name;
    EXPECT_NE(reply.find("Accept-Encoding: gzip, zstd\r\n"), std::string::npos) << name;
  }
  EXPECT_EQ(status_of("POST /p HTTP/1.1\r\nHost: h\r\nContent-Encoding: gzip\r\nContent-Encoding: "
                      "gzip\r\nContent-Length: 1\r\n\r\nx"),
            "415");
  EXPECT_EQ(status_of("GET /p HTTP/1.1\r\nHost: h\r\nContent-Encoding: br\r\n\r\n"), "200")
      << "it has no body";
  handler.head = [](HttpRequest& request) {
    request.streams = true;
    return std::nullopt;
  };
  const std::string reply = ask(post("gzip", gzip("x")));
  EXPECT_EQ(reply.substr(9, 3), "415");
  EXPECT_NE(reply.find("Accept-Encoding: identity\r\n"), std::string::npos);
  EXPECT_TRUE(bodies.empty() || bodies.front().empty());
}

TEST_F(HttpSurfaceTest, ADamagedPackedBodyIsTheClientsMistake) {
  open();
  const std::string text = noise(300'000);
  std::string flipped = gzip(text);
  char& middle = flipped[flipped.size() / 2];
  middle = static_cast<char>(middle ^ 4);
  for (const auto& [name, body] :
       std::vector<std::pair<std::string, std::string>>{{"gzip", "{}"},
                                                        {"zstd", "{}"},
                                                        {"gzip", zstd("{}")},
                                                        {"gzip", gzip(text).substr(0, 50'000)},
                                                        {"zstd", zstd(text).substr(0, 50'000)},
                                                        {"gzip", gzip("{}") + "garbage"},
                                                        {"gzip", flipped}}) {
    EXPECT_EQ(status_of(post(name, body)), "400") << name << ' ' << body.size();
  }
  EXPECT_TRUE(bodies.empty());
  EXPECT_EQ(server->held().total(), 0U);
}

TEST_F(HttpSurfaceTest, APackedBodyIsBoundedByWhatItHolds) {
  open({.body_bytes_max = 4'000'000});
  std::string bomb;
  bomb.resize(20'000'000, ' ');
  EXPECT_EQ(status_of(post("gzip", gzip(bomb))), "413");
  EXPECT_EQ(status_of(post("zstd", zstd(bomb))), "413");
  EXPECT_EQ(status_of(post("gzip", gzip(noise(4'100'000)))), "413");
  EXPECT_EQ(status_of(post("zstd", zstd(std::string(1'500'000, 'a')))), "413")
      << "so few bytes may not cause so much work";
  EXPECT_EQ(status_of(post("zstd", zstd(noise(1'000'000), 27))), "200");
  EXPECT_EQ(server->held().total(), 0U);
}

TEST_F(HttpSurfaceTest, UnpackedBytesCountAsHeldMemory) {
  open({.held_bytes_max = 3'000'000});
  EXPECT_EQ(status_of(post("gzip", gzip(noise(2'900'000)))), "503");
  EXPECT_EQ(status_of(post("gzip", gzip(noise(700'000)))), "200");
  EXPECT_EQ(server->held().total(), 0U);
}

TEST_F(HttpSurfaceTest, AClientMayLeaveWhileItsBodyIsUnpacked) {
  open();
  const std::string request = post("gzip", gzip(noise(20'000'000)));
  {
    RawClient client(loop, server->port());
    client.send(request);
  }
  EXPECT_TRUE(run_until(loop, [&] { return server->held().total() == 0; }));
  EXPECT_EQ(status_of(post("gzip", gzip("{}"))), "200");
}

// --- CORS

constexpr const char* kPreflight =
    "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: h\r\nOrigin: http://localhost:3000\r\n"
    "Access-Control-Request-Method: POST\r\n"
    "Access-Control-Request-Headers: authorization,content-type\r\n\r\n";
constexpr const char* kFromPage =
    "GET /x HTTP/1.1\r\nHost: h\r\nOrigin: http://localhost:3000\r\n\r\n";
constexpr const char* kAllow = "Access-Control-Allow-Origin: http://localhost:3000\r\n";

HttpServerOptions with_origins(std::vector<std::string> origins) {
  HttpServerOptions options;
  options.cors = {.origins = std::move(origins), .exposed = "x-request-id"};
  return options;
}

TEST_F(HttpSurfaceTest, APreflightIsAnsweredBeforeTheHandler) {
  open(with_origins({"http://localhost:3000"}));
  handler.head = [](HttpRequest&) { return EarlyReply{.status = 401, .body = "{}"}; };
  const std::string reply = ask(kPreflight);
  EXPECT_TRUE(reply.starts_with("HTTP/1.1 204 No Content\r\n")) << reply;
  for (const char* line :
       {kAllow, "Access-Control-Allow-Methods: GET, HEAD, POST, PUT, DELETE\r\n",
        "Access-Control-Allow-Headers: authorization,content-type\r\n", "Vary: Origin\r\n"}) {
    EXPECT_NE(reply.find(line), std::string::npos) << line << reply;
  }
  EXPECT_EQ(handler.requests.size(), 0U);
}

TEST_F(HttpSurfaceTest, EveryReplyToAnAllowedPageSaysSo) {
  open(with_origins({"https://other.example", "http://localhost:3000"}));
  EXPECT_NE(ask(kFromPage).find(kAllow), std::string::npos) << "a whole reply";
  EXPECT_NE(ask(kFromPage).find("Access-Control-Expose-Headers: x-request-id\r\n"),
            std::string::npos);
  handler.answer = [this](ExchangeId id, HttpRequest&) {
    server->begin(id, 200, "text/event-stream");
    server->end(id);
  };
  EXPECT_NE(ask(kFromPage).find(kAllow), std::string::npos) << "a stream";
  handler.answer = [this](ExchangeId id, HttpRequest&) {
    server->begin_raw(id, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    server->end_raw(id, true);
  };
  const std::string raw = ask(kFromPage);
  EXPECT_NE(raw.find(kAllow), std::string::npos) << "a relayed reply";
  EXPECT_TRUE(raw.ends_with("\r\n\r\n"));
  handler.head = [](HttpRequest&) { return EarlyReply{.status = 401, .body = "{}"}; };
  EXPECT_NE(ask(kFromPage).find(kAllow), std::string::npos) << "an early refusal";
  handler.head = nullptr;
  const std::string refused =
      ask("POST /x HTTP/1.1\r\nHost: h\r\nOrigin: http://localhost:3000\r\nContent-Length: "
          "99999999999\r\n\r\n");
  EXPECT_EQ(refused.substr(9, 3), "413");
  EXPECT_NE(refused.find(kAllow), std::string::npos) << "a refusal of the server";
}

TEST_F(HttpSurfaceTest, OtherPagesAndOtherClientsGetNoMark) {
  open(with_origins({"https://chat.example"}));
  EXPECT_EQ(ask(kFromPage).find("Access-Control"), std::string::npos);
  EXPECT_EQ(ask("GET /x HTTP/1.1\r\nHost: h\r\n\r\n").find("Access-Control"), std::string::npos);
  EXPECT_EQ(status_of(kPreflight), "200") << "the handler gets it";
  EXPECT_EQ(handler.requests.size(), 3U);
}

TEST_F(HttpSurfaceTest, AStarAllowsAnyPage) {
  open(with_origins({"*"}));
  EXPECT_NE(ask(kFromPage).find("Access-Control-Allow-Origin: *\r\n"), std::string::npos);
  EXPECT_EQ(status_of(kPreflight), "204");
}

TEST_F(HttpSurfaceTest, CorsIsOffByDefault) {
  open();
  EXPECT_EQ(ask(kFromPage).find("Access-Control"), std::string::npos);
  EXPECT_EQ(status_of(kPreflight), "200");
}

}  // namespace
}  // namespace pdjob::net
