// The Batch API's process in a test: the real server, catalog and files, before a router that is a
// double. Loop-bound.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "batch/api/batch_server.h"
#include "net/http/http_client.h"
#include "net/loop/event_loop.h"
#include "openai/headers.h"
#include "tests/unit/batch/scratch_folder.h"
#include "tests/unit/net/loop_test_support.h"

namespace pdjob::batch {

// Answers rows as `answer` says; an empty body: it hangs.
class RouterDouble final : public net::HttpHandler {
 public:
  explicit RouterDouble(net::Loop& loop)
      : server_(net::HttpServer::open(loop, *this, {}).value()) {}

  RowServer address() const {
    return parse_row_server("http://127.0.0.1:" + std::to_string(server_->port())).value();
  }

  static std::string completion() {
    return R"({"choices":[{"index":0,"text":"x"}],"usage":{"prompt_tokens":3,"completion_tokens":2}})";
  }
  std::function<std::pair<int, std::string>(const net::HttpRequest&)> answer =
      [](const net::HttpRequest& /*request*/) { return std::pair(200, completion()); };
  int rows = 0;  // That it was asked.
  std::string tenant;

 private:
  void on_request(net::ExchangeId id, net::HttpRequest& request) override {
    if (request.method == "GET") {
      return server_->reply(id, 200, "application/json", R"([{"standing":"serving"}])");
    }
    ++rows;
    tenant = request.header(openai::header::kBatchTenant);
    const auto [status, body] = answer(request);
    if (!body.empty()) {
      server_->reply(id, status, "application/json", body);
    }
  }
  void on_client_gone(net::ExchangeId /*id*/) override {}

  const std::unique_ptr<net::HttpServer> server_;
};

class BatchApiTest : public testing::Test {
 protected:
  static constexpr const char* kKey = "the-key-of-routers";

  void SetUp() override {
    config.dir = folder.path() + "/api";
    open();
  }
  void open() {
    server.reset();
    server = BatchServer::open(loop,
                               {.config = config,
                                .http = {},
                                .key = kKey,
                                .rows = router.address(),
                                .lifecycle = lifecycle},
                               [this](const std::string& why) { broken = why; })
                 .value();
  }

  struct Asked {
    std::string tenant = "alice";
    std::string body = {};
    std::string type = "application/json";
    std::string key = kKey;
  };
  net::HttpReply ask(const std::string& method, const std::string& target) {
    return ask(method, target, Asked{});
  }
  net::HttpReply ask(const std::string& method, const std::string& target, const Asked& how) {
    std::string lines = "Content-Type: " + how.type + "\r\n" +
                        std::string(openai::header::kBatchTenant) + ": " + how.tenant + "\r\n";
    if (!how.key.empty()) {
      lines += "Authorization: Bearer " + how.key + "\r\n";
    }
    net::HttpCall call;
    call.to = {"127.0.0.1", server->http().port()};
    call.method = method;
    call.target = target;
    call.header_lines = lines;
    call.body = how.body;
    call.head_timeout = call.idle_timeout = std::chrono::seconds(20);
    Result<net::HttpReply> reply = Error{ErrorCode::kTimeout, ""};
    bool ended = false;
    net::fetch(loop, *client, std::move(call), size_t{1} << 20, [&](Result<net::HttpReply> got) {
      reply = std::move(got);
      ended = true;
    });
    EXPECT_TRUE(net::run_until(loop, [&] { return ended; }));
    return reply ? *reply : net::HttpReply{.status = 0, .body = reply.error().message};
  }

  // Sends it so many times at once. Returns the statuses.
  std::vector<int> ask_together(size_t times, const std::string& target, const std::string& body) {
    const std::string lines = "Content-Type: application/json\r\nAuthorization: Bearer " +
                              std::string(kKey) + "\r\n" +
                              std::string(openai::header::kBatchTenant) + ": alice\r\n";
    std::vector<int> statuses;
    for (size_t i = 0; i < times; ++i) {
      net::HttpCall call;
      call.to = {"127.0.0.1", server->http().port()};
      call.method = "POST";
      call.target = target;
      call.header_lines = lines;
      call.body = body;
      net::fetch(
          loop, *client, std::move(call), size_t{1} << 20,
          [&](const Result<net::HttpReply>& got) { statuses.push_back(got ? got->status : 0); });
    }
    EXPECT_TRUE(net::run_until(loop, [&] { return statuses.size() == times; }));
    return statuses;
  }

  static std::string row(int number) {
    return R"({"custom_id":"r)" + std::to_string(number) +
           R"(","method":"POST","url":"/v1/completions","body":{"prompt":"a"}})" + "\n";
  }
  static std::string rows(int count) {
    std::string text;
    for (int number = 0; number < count; ++number) {
      text += row(number);
    }
    return text;
  }
  static std::string member(const std::string& json, const std::string& name) {
    const std::string mark = '"' + name + "\":\"";
    const size_t at = json.find(mark);
    return at == std::string::npos
               ? ""
               : json.substr(at + mark.size(), json.find('"', at + mark.size()) - at - mark.size());
  }
  net::HttpReply upload(const std::string& content, const std::string& tenant = "alice") {
    return ask("POST", "/v1/files",
               {.tenant = tenant,
                .body = "--XX\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
                        "--XX\r\nContent-Disposition: form-data; name=\"file\"; "
                        "filename=\"rows.jsonl\"\r\n\r\n" +
                        content + "\r\n--XX--\r\n",
                .type = "multipart/form-data; boundary=XX"});
  }
  static std::string batch_of(const std::string& file) {
    return R"({"input_file_id":")" + file +
           R"(","endpoint":"/v1/completions","completion_window":"24h"})";
  }
  net::HttpReply create(const std::string& file, const std::string& tenant = "alice") {
    return ask("POST", "/v1/batches", {.tenant = tenant, .body = batch_of(file)});
  }
  // Returns the id of a batch of so many rows.
  std::string begin(int count, const std::string& tenant = "alice") {
    return member(create(member(upload(rows(count), tenant).body, "id"), tenant).body, "id");
  }
  std::string status_of(const std::string& batch, const std::string& tenant = "alice") {
    return member(ask("GET", "/v1/batches/" + batch, {.tenant = tenant}).body, "status");
  }
  // Returns the batch once it has that status.
  std::string wait_status(const std::string& batch, const std::string& status) {
    std::string object;
    EXPECT_TRUE(net::run_until(loop, [&] {
      object = ask("GET", "/v1/batches/" + batch).body;
      return member(object, "status") == status;
    })) << object;
    return object;
  }

  ScratchFolder folder;
  net::EventLoop loop;
  std::unique_ptr<net::HttpClient> client = net::HttpClient::create(loop);
  RouterDouble router{loop};
  BatchApiConfig config;
  LifecycleConfig lifecycle;
  std::string broken;
  std::unique_ptr<BatchServer> server;
};

}  // namespace pdjob::batch
